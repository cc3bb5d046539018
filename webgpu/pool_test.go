package webgpu_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/golden"
	_ "github.com/karat-run/karat/webgpu"
)

// TestTogether asks a model on a GPU for text, values and vectors at once. Its engines share one pool of keys and
// values, whose pages change hands: the results have the bits that each has alone.
func TestTogether(t *testing.T) {
	path := golden.Model(t, "smollm3")
	ids := func(seed int) []int {
		all := make([]int, 100)
		for i := range all {
			all[i] = (i*(seed+3))%400 + 100
		}
		return all
	}
	do := func(m *karat.Model, kind string, seed int) (out string, err error) {
		switch kind {
		case "embed":
			v, err := m.EmbedIDs(t.Context(), [][]int{ids(seed)}, karat.EmbedOptions{Pooling: karat.PoolLast})
			return fmt.Sprint(v), err
		case "hooks", "generate":
			o := karat.GenerateOptions{MaxTokens: 30, Sampling: &karat.Sampling{}}
			if kind == "hooks" {
				o.Hooks = &karat.Hooks{See: func(karat.Node, []int, []float32) {}}
			}
			for x, err := range m.GenerateIDs(t.Context(), ids(seed), o) {
				if err != nil {
					return out, err
				}
				out += fmt.Sprint(x.ID, " ")
			}
		}
		return out, nil
	}
	kinds := []string{"generate", "embed", "hooks"}
	free, err := karat.Load(t.Context(), path, karat.Options{Backend: karat.WebGPU, Context: 256})
	if errors.Is(err, gpu.ErrNone) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, kind := range kinds {
		for seed := range 2 {
			if want[fmt.Sprint(kind, seed)], err = do(free, kind, seed); err != nil {
				t.Fatal(kind, err)
			}
		}
	}
	page := free.Stats().KVBudget / int64(free.Stats().Pages)
	free.Close()
	m, err := karat.Load(t.Context(), path, karat.Options{Backend: karat.WebGPU, Context: 256, KVBudget: 5 * page})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var all sync.WaitGroup
	for _, kind := range kinds {
		for seed := range 2 {
			all.Go(func() {
				if got, err := do(m, kind, seed); err != nil || got != want[fmt.Sprint(kind, seed)] {
					t.Errorf("%s %d: %v, or other bits", kind, seed, err)
				}
			})
		}
	}
	all.Wait()
	if s := m.Stats(); s.KVUsed != 0 || s.KVUsed+s.KVCached > 5*page {
		t.Errorf("%+v", s)
	}
}
