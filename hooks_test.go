package karat_test

import (
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// rows are the logits of a prompt and three tokens after it.
func rows(t *testing.T, m *karat.Model, ids []int, h *karat.Hooks) (all [][]float32) {
	t.Helper()
	for token, err := range m.GenerateIDs(t.Context(), ids, karat.GenerateOptions{MaxTokens: 4, Logits: true, Sampling: &karat.Sampling{}, Hooks: h}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, slices.Clone(token.Logits))
	}
	return all
}

func sameRows(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
	})
}

// TestHooksKeepBits: with every family, quantized or not, a hook that does nothing, one that writes zeros and
// then what was there, and one that writes a run's own values to another run change no bit.
func TestHooksKeepBits(t *testing.T) {
	for _, name := range golden.Sample(append(golden.Models(t), golden.Families(t)...)) {
		t.Run(name, func(t *testing.T) {
			dir := golden.Model(t, name)
			small := filepath.Join(t.TempDir(), "q.gguf")
			paths := []string{dir}
			if _, err := karat.Quantize(t.Context(), dir, small, karat.QuantizeOptions{Type: "Q4_K_M"}); err != nil {
				if _, err := karat.Quantize(t.Context(), dir, small, karat.QuantizeOptions{Type: "Q8_0"}); err != nil {
					t.Logf("not quantized: %v", err)
				} else {
					paths = append(paths, small)
				}
			} else {
				paths = append(paths, small)
			}
			for _, path := range paths {
				for _, precision := range []karat.Precision{karat.Fast, karat.Float64} {
					if precision == karat.Float64 && path == small {
						continue
					}
					keepsBits(t, path, precision)
				}
			}
		})
	}
}

func keepsBits(t *testing.T, path string, precision karat.Precision) {
	t.Helper()
	m, err := karat.Load(t.Context(), path, karat.Options{Threads: 2, Context: 64, Precision: precision})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := []int{2, 7, 11, 30, 5, 9}
	want := rows(t, m, ids, nil)
	type place struct {
		node string
		at   int
	}
	values, calls := map[place][]float32{}, 0
	if got := rows(t, m, ids, &karat.Hooks{See: func(n karat.Node, positions []int, x []float32) {
		calls++
		size := len(x) / len(positions)
		for i, p := range positions {
			values[place{n.Name, p}] = slices.Clone(x[i*size:][:size])
		}
		kept := slices.Clone(x)
		clear(x)
		copy(x, kept)
	}}); !sameRows(got, want) {
		t.Errorf("%s, %s: a hook changes the logits", path, precision)
	}
	if steps := 4; calls != steps*len(m.Nodes()) {
		t.Errorf("%s: %d calls, want %d of each of %d nodes", path, calls, steps, len(m.Nodes()))
	}
	if got := rows(t, m, ids, &karat.Hooks{See: func(n karat.Node, positions []int, x []float32) {
		size := len(x) / len(positions)
		for i, p := range positions {
			copy(x[i*size:][:size], values[place{n.Name, p}])
		}
	}}); !sameRows(got, want) {
		t.Errorf("%s, %s: a patch with the run's own values changes the logits", path, precision)
	}
}

// TestHooksWrite: what a hook writes flows on: logits are what it says, a layer whose output is the one before's
// is skipped, and the next request is as if nothing had been.
func TestHooksWrite(t *testing.T) {
	m := load(t)
	ids := []int{2, 517, 645, 531}
	want := rows(t, m, ids, nil)
	nodes := m.Nodes()
	last := nodes[len(nodes)-1].Name
	for _, row := range rows(t, m, ids, &karat.Hooks{Nodes: func(n karat.Node) bool { return n.Name == last }, See: func(n karat.Node, _ []int, x []float32) {
		if n.Name != last {
			t.Errorf("sees %s", n.Name)
		}
		for i := range x {
			x[i] = float32(i % 7)
		}
	}}) {
		for i, v := range row {
			if v != float32(i%7) {
				t.Fatalf("logit %d is %v", i, v)
			}
		}
	}
	var seen []int
	got := rows(t, m, ids, &karat.Hooks{Nodes: func(n karat.Node) bool { return n.Name == "blk.0.attn_q" }, See: func(_ karat.Node, at []int, x []float32) {
		seen = append(seen, at...)
		clear(x)
	}})
	if sameRows(got, want) || !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6}) {
		t.Errorf("queries of 0 leave the logits, or are at %v", seen)
	}
	if !sameRows(rows(t, m, ids, nil), want) {
		t.Error("other logits afterwards")
	}
}

// TestHooksRefuse: no function, requests inside a hook, and a closed session.
func TestHooksRefuse(t *testing.T) {
	m := load(t)
	ask := func(s *karat.Session, h *karat.Hooks) (failed error) {
		for _, err := range s.GenerateIDs(t.Context(), []int{2, 517}, karat.GenerateOptions{MaxTokens: 1, Hooks: h}) {
			failed = err
		}
		return failed
	}
	s := m.NewSession()
	if err := ask(s, &karat.Hooks{}); err == nil || !strings.Contains(err.Error(), "no function") {
		t.Error(err)
	}
	err := ask(s, &karat.Hooks{See: func(karat.Node, []int, []float32) {
		inner := m.NewSession()
		defer inner.Close()
		if err := ask(inner, &karat.Hooks{See: func(karat.Node, []int, []float32) {}}); !errors.Is(err, karat.ErrInTap) {
			t.Error(err)
		}
	}})
	if err != nil {
		t.Error(err)
	}
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				t.Errorf("panicked with %v", p)
			}
		}()
		_ = ask(s, &karat.Hooks{See: func(karat.Node, []int, []float32) { panic("mine") }})
	}()
	if err := ask(s, nil); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := ask(s, &karat.Hooks{See: func(karat.Node, []int, []float32) {}}); !errors.Is(err, karat.ErrClosed) {
		t.Error(err)
	}
}
