package karat_test

import (
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/adaptertest"
)

// peftFolder is an adapter for the demo's attention.
func peftFolder(t *testing.T, v float32) string {
	t.Helper()
	dir := t.TempDir()
	if err := adaptertest.Write(t.Context(), dir, demo, v); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestAdapters: each request has the adapters that it chooses, in one session, too; those that
// choose none have those of Options.
func TestAdapters(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Context: 64, Adapters: []karat.Adapter{
		{Name: "a", Path: peftFolder(t, 0.05), Scale: 1}, {Name: "b", Path: peftFolder(t, -0.08)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	bare, err := karat.Load(t.Context(), demo, karat.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	s := m.NewSession()
	defer s.Close()
	prompt := []int{2, 30, 41, 57, 9}
	first := func(s *karat.Session, chosen map[string]float64) []float32 {
		t.Helper()
		for token, err := range s.GenerateIDs(t.Context(), prompt, karat.GenerateOptions{MaxTokens: 1, Logits: true, Adapters: chosen}) {
			if err != nil {
				t.Fatal(err)
			}
			return token.Logits
		}
		return nil
	}
	alone := bare.NewSession()
	defer alone.Close()
	plain, usual, other := first(alone, nil), first(s, nil), first(s, map[string]float64{"b": 1})
	all, err := m.Logits(t.Context(), prompt)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got, want []float32
		same      bool
	}{
		"none":                    {first(s, map[string]float64{}), plain, true},
		"none by a factor":        {first(s, map[string]float64{"a": 0}), plain, true},
		"those of Options":        {usual, plain, false},
		"those of Options, named": {first(s, map[string]float64{"a": 1}), usual, true},
		"Logits":                  {all[len(all)-1], usual, true},
		"another":                 {other, usual, false},
		"both":                    {first(s, map[string]float64{"a": 1, "b": 1}), other, false},
		"the first again":         {first(s, nil), usual, true},
	} {
		if same := equal(c.got, c.want); same != c.same {
			t.Errorf("%s: the same bits: %v, want %v", name, same, c.same)
		}
	}
	for _, chosen := range []map[string]float64{{"c": 1}, {"a": math.NaN()}} {
		for _, err := range s.GenerateIDs(t.Context(), prompt, karat.GenerateOptions{Adapters: chosen}) {
			if err == nil {
				t.Errorf("%v: no error", chosen)
			}
			break
		}
	}
}

func equal(a, b []float32) bool {
	for i, v := range a {
		if math.Float32bits(v) != math.Float32bits(b[i]) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestAdaptersRefused: adapters that cannot be loaded fail Load, by name.
func TestAdaptersRefused(t *testing.T) {
	dir := peftFolder(t, 1)
	for _, c := range []struct {
		want     string
		adapters []karat.Adapter
	}{
		{"none.gguf", []karat.Adapter{{Path: "none.gguf"}}},
		{"general.type", []karat.Adapter{{Path: demo}}},
		{"two adapters have the name", []karat.Adapter{{Path: dir}, {Path: dir}}},
		{"a factor of +Inf", []karat.Adapter{{Path: dir, Scale: math.Inf(1)}}},
		{"a factor of 1e+39", []karat.Adapter{{Path: dir, Scale: 1e39}}},
	} {
		if m, err := karat.Load(t.Context(), demo, karat.Options{Adapters: c.adapters}); err == nil || m != nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.adapters, err, c.want)
		}
	}
}
