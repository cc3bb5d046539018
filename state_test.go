package karat_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestState: with every family, what goes on from a state has the bits of what never stopped: pages, rings that
// have turned, and slots. The same prompt gives the same bytes.
func TestState(t *testing.T) {
	for _, name := range golden.Sample(append(golden.Models(t), golden.Families(t)...)) {
		t.Run(name, func(t *testing.T) {
			for _, o := range []karat.Options{{}, {KV: karat.KVQ8Forced}, {Precision: karat.Float32}} {
				precision := string(o.Precision) + string(o.KV)
				o.Threads, o.Context = 2, 512
				m, err := karat.Load(t.Context(), golden.Model(t, name), o)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				ids := make([]int, 333)
				for i := range ids {
					ids[i] = (i*i + 7*i) % 90
				}
				want := rows(t, m, ids, nil)
				var file, again bytes.Buffer
				if err := m.ExportState(t.Context(), &file, ids); err != nil {
					t.Fatal(err)
				}
				if err := m.ExportState(t.Context(), &again, ids); err != nil || !bytes.Equal(file.Bytes(), again.Bytes()) {
					t.Errorf("%s: other bytes the second time, %v", precision, err)
				}
				s, kept, err := m.ImportState(t.Context(), file.Bytes())
				if err != nil || !slices.Equal(kept, ids) {
					t.Fatalf("%v: %v", kept, err)
				}
				defer s.Close()
				var got [][]float32
				for token, err := range s.GenerateIDs(t.Context(), ids, karat.GenerateOptions{MaxTokens: 4, Logits: true, Sampling: &karat.Sampling{}}) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, slices.Clone(token.Logits))
				}
				if !sameRows(got, want) {
					t.Errorf("%s: other logits behind a state", precision)
				}
				if n, kept := s.PromptTokens(); n != 333 || kept != 332 {
					t.Errorf("%s: %d of %d tokens kept", precision, kept, n)
				}
			}
		})
	}
}

// TestA14StateRefused is incident A14: a restored state that overflows. Changed files, those of other numerics, prompts without a state, and a backend
// that has none, are refused, and the model goes on: the prompt is computed anew, with the same bits.
func TestA14StateRefused(t *testing.T) {
	m := load(t)
	want := rows(t, m, []int{2, 517, 645}, nil)
	var file bytes.Buffer
	if err := m.ExportState(t.Context(), &file, []int{2, 517, 645}); err != nil {
		t.Fatal(err)
	}
	if err := m.ExportState(t.Context(), &bytes.Buffer{}, []int{2}); err == nil {
		t.Error("a state of one token")
	}
	refused := func(m *karat.Model, data []byte, why string) {
		t.Helper()
		s, _, err := m.ImportState(t.Context(), data)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %q", err, why)
		}
	}
	bad := slices.Clone(file.Bytes())
	bad[len(bad)/2] ^= 1
	refused(m, bad, "changed, or cut off")
	refused(m, file.Bytes()[:len(bad)-1], "changed, or cut off")
	refused(m, nil, "no state of Karat's")
	if !sameRows(rows(t, m, []int{2, 517, 645}, nil), want) {
		t.Error("other logits behind refused files")
	}
	other, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2, KV: karat.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	refused(other, file.Bytes(), "of another model, or of other numerics")
	exact, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2, Precision: karat.Float64})
	if err != nil {
		t.Fatal(err)
	}
	defer exact.Close()
	if err := exact.ExportState(t.Context(), &bytes.Buffer{}, []int{2, 517, 645}); err == nil || !strings.Contains(err.Error(), "cannot be carried") {
		t.Error(err)
	}
}

// TestBudgetEverywhere: what embeds, sees values or carries states keeps to the model's bound on keys and values, too.
func TestBudgetEverywhere(t *testing.T) {
	m, err := karat.Load(t.Context(), demo, karat.Options{Threads: 2, KVBudget: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := make([]int, 2000)
	for i := range ids {
		ids[i] = i%500 + 100
	}
	see := &karat.Hooks{See: func(karat.Node, []int, []float32) {}}
	for what, do := range map[string]func(n int) error{
		"embed": func(n int) error {
			_, err := m.EmbedIDs(t.Context(), [][]int{ids[:n]}, karat.EmbedOptions{Pooling: karat.PoolLast})
			return err
		},
		"hooks": func(n int) error {
			for _, err := range m.GenerateIDs(t.Context(), ids[:n], karat.GenerateOptions{MaxTokens: 1, Hooks: see}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"taps":   func(n int) error { return m.Taps(t.Context(), ids[:n], func(karat.Node, []float32) {}) },
		"export": func(n int) error { return m.ExportState(t.Context(), io.Discard, ids[:n]) },
	} {
		if err := do(20); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := do(len(ids)); !errors.Is(err, karat.ErrBudget) {
			t.Errorf("%s: more than the budget holds: %v", what, err)
		}
	}
}
