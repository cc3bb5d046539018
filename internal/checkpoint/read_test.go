package checkpoint

import (
	"errors"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// TestHalvedUnits reads halves at any byte.
func TestHalvedUnits(t *testing.T) {
	in := tensor.Tensor{Name: "kv", DType: tensor.F16, Shape: tensor.Shape{6, 2}, Data: []byte("aAbBcCdDeEfFgGhHiIjJkKlL")}
	for want, h := range map[string]*halved{
		"aAcCbBdDgGiIhHjJ": {in: in, step: 3, rows: 2, turned: true}, // of each head of 3 rows the first 2
		"eEfFkKlL":         {in: in, step: 3, from: 2, rows: 1},
	} {
		for from := range len(want) {
			for to := from; to <= len(want); to++ {
				p := make([]byte, to-from)
				if n, err := h.ReadAt(p, int64(from)); err != nil || n != len(p) || string(p) != want[from:to] {
					t.Fatalf("bytes %d to %d of %q: %q, %v", from, to, want, p[:n], err)
				}
			}
		}
		if n, err := h.ReadAt(make([]byte, 3), int64(len(want)-2)); n != 2 || err == nil {
			t.Errorf("beyond the end: %d bytes, %v", n, err)
		}
	}
}

// TestUnread: a tensor that must be read and cannot be says so, of either format.
func TestUnread(t *testing.T) {
	bad := tensor.Unread{Err: errors.New("a bad sector")}
	for _, f := range []Format{GGUF, HuggingFace} {
		c := newCheckpoint("x", f)
		c.Family = registry.Find("gemma3")
		name := c.Name("output_norm", "norm")
		c.set.ByName[name] = tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{2}, Source: bad}
		x, ok := c.Tensor("output_norm", "norm")
		u, unread := x.Source.(tensor.Unread)
		if !ok || !unread || !errors.Is(u.Err, bad.Err) || !slices.Equal(x.Shape, tensor.Shape{2}) {
			t.Errorf("%v: %+v, %v", f, x, ok)
		}
	}
}
