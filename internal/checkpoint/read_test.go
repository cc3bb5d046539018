package checkpoint

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// readerOf reads the keys of a family's file.
func readerOf(t *testing.T, f *family.Family, all ...gguf.KeyValue) *ggufReader {
	t.Helper()
	c := newCheckpoint("x", GGUF)
	c.Arch, c.family = f.Name, f
	var b bytes.Buffer
	if err := gguf.Write(&b, all, nil); err != nil {
		t.Fatal(err)
	}
	file, err := gguf.Parse(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return &ggufReader{Checkpoint: c, meta: meta{metadata: file.Metadata, of: f, used: map[string]bool{}}}
}

// TestProduct: what follows from a family's settings follows from those that are products, too.
func TestProduct(t *testing.T) {
	var seen any
	f := &family.Family{Name: "fam", Keys: []family.Key{
		{Setting: "each", GGUF: "all", Kind: family.Product, Of: "count"}, // its divisor comes later
		{Setting: "count", GGUF: "count"},
	}, FromGGUF: func(s family.Settings, _ *family.File) { seen = s["each"] }}
	r := readerOf(t, f, gguf.KeyValue{Key: "fam.all", Value: uint32(12)}, gguf.KeyValue{Key: "fam.count", Value: uint32(4)})
	if r.own(); seen != 3. || len(r.errs) > 0 {
		t.Errorf("FromGGUF has seen %v; %v", seen, r.errs)
	}
}

// TestListed: errors of several keys come in one order.
func TestListed(t *testing.T) {
	for range 20 {
		r := readerOf(t, &family.Family{Name: "fam"}, gguf.KeyValue{Key: "fam.attention.head_count_kv", Value: []int32{1, 0}},
			gguf.KeyValue{Key: "fam.feed_forward_length", Value: []int32{0, 1}})
		r.settings["num_hidden_layers"] = 3.
		r.listed()
		if err := errors.Join(r.errs...); err == nil || !strings.Contains(err.Error(), "head_count_kv has 2 values for 3 layers\nkey fam.feed_forward_length has") {
			t.Fatal(err)
		}
	}
}

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
		c.family = registry.Find("gemma3")
		name := c.Name("output_norm", "norm")
		c.tensors[name] = tensor.Tensor{Name: name, DType: tensor.F32, Shape: tensor.Shape{2}, Source: bad}
		x, ok := c.Tensor("output_norm", "norm")
		u, unread := x.Source.(tensor.Unread)
		if !ok || !unread || !errors.Is(u.Err, bad.Err) || !slices.Equal(x.Shape, tensor.Shape{2}) {
			t.Errorf("%v: %+v, %v", f, x, ok)
		}
	}
}
