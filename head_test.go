package karat_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestHead: a model with a head has the same answers, nodes and fingerprint whatever makes its drafts. A model without
// refuses to have them made by the head alone.
func TestHead(t *testing.T) {
	dir := golden.WithHead(t, "glm4moe")
	var texts, prints []string
	var nodes [][]karat.Node
	for _, d := range []karat.Draft{karat.DraftOff, karat.DraftMTP, ""} {
		m, err := karat.Load(t.Context(), dir, karat.Options{Draft: d})
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSession()
		var text strings.Builder
		for x, err := range s.Generate(t.Context(), "a b", karat.GenerateOptions{MaxTokens: 40}) {
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(x.Text)
		}
		if n := s.Drafts()["mtp"]; d == karat.DraftOff && n != (karat.DraftCount{}) {
			t.Errorf("%q: drafts of %v", d, n)
		}
		print, err := m.Fingerprint(t.Context())
		texts, prints, nodes = append(texts, text.String()), append(prints, print), append(nodes, m.Nodes())
		s.Close()
		if err := errors.Join(err, m.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if len(slices.Compact(texts)) != 1 || len(slices.Compact(prints)) != 1 || len(nodes[0]) != len(nodes[1]) {
		t.Errorf("texts %q, fingerprints %q, %d and %d nodes", texts, prints, len(nodes[0]), len(nodes[1]))
	}
	if _, err := karat.Load(t.Context(), golden.Model(t, "tiny-llama"), karat.Options{Draft: karat.DraftMTP}); err == nil || !strings.Contains(err.Error(), "no head") {
		t.Errorf("a model without a head: %v", err)
	}
}
