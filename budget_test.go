package karat_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/karat-run/karat"
)

// TestBudgetTogether: requests that generate, embed, see values or carry states share one bound on keys and values. Each ends,
// with the bits that it has alone, where the bound holds little more than one of them.
func TestBudgetTogether(t *testing.T) {
	ids := func(seed int) []int {
		all := make([]int, 100)
		for i := range all {
			all[i] = (i*(seed+3))%500 + 100
		}
		return all
	}
	see := &karat.Hooks{See: func(karat.Node, []int, []float32) {}}
	kinds := []string{"generate", "hooks", "embed", "taps", "export"}
	do := func(m *karat.Model, kind string, seed int) (out string, err error) {
		switch kind {
		case "generate", "hooks":
			o := karat.GenerateOptions{MaxTokens: 60, Sampling: &karat.Sampling{}}
			if kind == "hooks" {
				o.Hooks = see
			}
			for x, err := range m.GenerateIDs(t.Context(), ids(seed), o) {
				if err != nil {
					return out, err
				}
				out += fmt.Sprint(x.ID, " ")
			}
		case "embed":
			v, err := m.EmbedIDs(t.Context(), [][]int{ids(seed)}, karat.EmbedOptions{Pooling: karat.PoolLast})
			return fmt.Sprint(v), err
		case "taps":
			n := 0
			err := m.Taps(t.Context(), ids(seed), func(karat.Node, []float32) { n++ })
			return fmt.Sprint(n > 0), err
		case "export":
			var b bytes.Buffer
			err := m.ExportState(t.Context(), &b, ids(seed))
			return b.String(), err
		}
		return out, nil
	}
	free, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2, Context: 512})
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	want := map[string]string{}
	for _, kind := range kinds {
		for seed := range 2 {
			if want[fmt.Sprint(kind, seed)], err = do(free, kind, seed); err != nil {
				t.Fatal(kind, err)
			}
		}
	}
	page := free.Stats().KVBudget / int64(free.Stats().Pages)
	for _, pages := range []int64{3, 4, 7} { // of 160 tokens, the longest request, three
		m, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2, Context: 512, KVBudget: pages * page})
		if err != nil {
			t.Fatal(err)
		}
		if s := m.Stats(); s.KVBudget != pages*page {
			t.Fatalf("%+v", s)
		}
		var most atomic.Int64
		see.See = func(karat.Node, []int, []float32) { most.Store(max(most.Load(), m.Stats().KVUsed)) }
		if _, err := do(m, "hooks", 0); err != nil || most.Load() <= 0 {
			t.Errorf("a request with hooks holds %d bytes, %v", most.Load(), err)
		}
		kept := m.NewSession() // an idle one with pages
		for _, err := range kept.GenerateIDs(t.Context(), ids(9), karat.GenerateOptions{MaxTokens: 2}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		see.See = func(karat.Node, []int, []float32) {
			s := m.Stats()
			most.Store(max(most.Load(), s.KVUsed+s.KVCached))
		}
		var all sync.WaitGroup
		for _, kind := range slices.Repeat(kinds, 2) {
			for seed := range 2 {
				all.Go(func() {
					if got, err := do(m, kind, seed); err != nil || got != want[fmt.Sprint(kind, seed)] {
						t.Errorf("%d pages, %s %d: %v, or other bits", pages, kind, seed, err)
					}
				})
			}
		}
		all.Wait()
		see.See = func(karat.Node, []int, []float32) {}
		if n := most.Load(); n <= 0 || n > pages*page {
			t.Errorf("%d bytes of %d", n, pages*page)
		}
		kept.Close()
		if s := m.Stats(); s.KVUsed != 0 || s.KVUsed+s.KVCached > s.KVBudget {
			t.Errorf("%+v", s)
		}
		i := m.Info()
		if i.Memory < i.Bytes+pages*page {
			t.Errorf("%d bytes of memory, and the weights have %d", i.Memory, i.Bytes)
		}
		m.Close()
	}
}
