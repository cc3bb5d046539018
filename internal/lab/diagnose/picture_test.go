package diagnose

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/vision"
)

// seeing are the folders of models that see.
var seeing = []string{"qwen3vl", "qwen25vl", "gemma3", "mistral3", "smolvlm", "lfm2vl", "gemma4"}

// eye opens the tower of a record.
func eye(t *testing.T, name string) *vision.Model {
	t.Helper()
	c, err := checkpoint.Open(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.Tower.Processor = []byte(strings.Replace(string(c.Tower.Processor), `"max_soft_tokens": 280`,
		`"max_soft_tokens": 12`, 1))
	m, err := vision.Open(c.Tower, reference.Backend{}, "")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestLooks wants each mistake in preparing pictures named from the pixels, and none from right ones.
func TestLooks(t *testing.T) {
	named := map[string]bool{} // causes that a model before has shown
	for _, name := range seeing {
		if !golden.Slow() && name != "qwen25vl" && name != "gemma3" {
			continue
		}
		m := eye(t, name)
		var files [][]byte
		var shown []string
		for _, picture := range []string{"noise", "checker"} {
			data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/"+picture+".png"))
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, data)
		}
		seen := func(looks ...*mistake.Look) *sightings {
			s := &sightings{m: m}
			for _, data := range files {
				x, err := mistake.See(m, data, "", looks...)
				if err != nil {
					return nil
				}
				p := sighted{data: data}
				for _, tile := range x.Tiles {
					p.rows = append(p.rows, tile.Embeddings...)
				}
				s.all = append(s.all, p)
			}
			return s
		}
		for i, l := range append([]*mistake.Look{nil}, mistake.Looks(m)...) {
			looks := []*mistake.Look{l}
			if i == 0 {
				looks = nil
			} else if named[l.Cause] && !golden.Slow() {
				continue
			}
			s := seen(looks...)
			if s == nil {
				continue
			}
			if j := s.judge(0, ""); i > 0 && (j.share >= prepared || j.level && j.share > 0.5) {
				t.Logf("%s: %s %v changes nothing", name, l.Cause, l.Detail)
				continue
			}
			j, exact, err := s.name(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.findings(j, exact) {
				got = append(got, f.Cause)
			}
			var want []string
			if i > 0 {
				want, shown = []string{l.Cause}, append(shown, l.Cause)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v: share %v, exact %v", name, got, want, j.share, exact)
				for _, x := range looks {
					t.Logf("%v", x.Detail)
				}
			}
		}
		for _, cause := range shown {
			named[cause] = true
		}
	}
}
