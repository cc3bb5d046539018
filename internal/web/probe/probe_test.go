package probe

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/golden"
)

// model is a model with a text, closed when the test ends.
func model(t *testing.T) (*karat.Model, []int) {
	t.Helper()
	m, err := karat.Load(t.Context(), golden.Model(t, "tiny-gemma3"), karat.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	ids, err := m.Tokenize(t.Context(), "The color of the sky is blue, and so is the sea behind the hills.", karat.TokenizeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m, ids
}

// TestOf: a node is described by all of its values, each token's, and nothing else.
func TestOf(t *testing.T) {
	m, ids := model(t)
	const name = "blk.3.ffn_down"
	var want []float32
	width := 0
	err := m.Taps(t.Context(), ids, func(n karat.Node, values []float32) {
		if n.Name == name {
			want, width = append(want, values...), n.Shape[0]
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Describe(t.Context(), m, ids, name)
	if err != nil {
		t.Fatal(err)
	}
	describes(t, "all", r.All, want)
	if len(r.Rows) != len(ids) || !slices.Equal(r.Shape, []int{len(ids), width}) || len(want) != len(ids)*width || len(want) <= 64 {
		t.Fatalf("%d rows, shape %v, for %d tokens and %d values", len(r.Rows), r.Shape, len(ids), len(want))
	}
	for i, row := range r.Rows {
		describes(t, "row", row, want[i*width:(i+1)*width])
	}
	counts := 0
	for _, n := range r.Histogram.Counts {
		counts += n
	}
	if counts != len(want) || r.Histogram.From != r.All.Min || r.Histogram.To != r.All.Max {
		t.Errorf("the histogram holds %d of %d values, from %v to %v", counts, len(want), r.Histogram.From, r.Histogram.To)
	}
	if _, err := Describe(t.Context(), m, ids, "blk.99"); err == nil {
		t.Error("a node that is none is described")
	}
}

// describes checks statistics against values.
func describes(t *testing.T, what string, s Statistics, values []float32) {
	t.Helper()
	var squares float64
	for _, v := range values {
		squares += float64(v) * float64(v)
	}
	least, most, rms := float64(slices.Min(values)), float64(slices.Max(values)), math.Sqrt(squares/float64(len(values)))
	if s.N != len(values) || s.Min != least || s.Max != most || math.Abs(s.RMS-rms) > 1e-12*rms {
		t.Errorf("%s: %+v, want %d values from %v to %v, RMS %v", what, s, len(values), least, most, rms)
	}
}

// TestStrange: NaNs are counted, and spoil nothing else.
func TestStrange(t *testing.T) {
	values := []float32{float32(math.NaN()), 3, float32(math.Inf(1)), 0, -4, float32(math.Inf(-1))}
	s := statisticsOf(values)
	if want := (Statistics{N: 6, NaN: 1, Inf: 2, Zero: 1, Min: -4, Max: 3, Mean: -1. / 3, RMS: math.Sqrt(25. / 3), Std: math.Sqrt(25./3 - 1./9)}); s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
	if h := histogramOf(values, s); h.Counts[0] != 1 || h.Counts[63] != 1 || h.From != -4 || h.To != 3 {
		t.Errorf("histogram %+v", h)
	}
}

// TestText: a part of a character is shown by its bytes.
func TestText(t *testing.T) {
	for in, want := range map[string]string{" sky": " sky", "\xe2\x80": "<0xE2><0x80>", "a\xff": "a<0xFF>", "ö": "ö", "": "", "\ufffd": "\ufffd"} {
		if got := Text([]byte(in)); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// TestChange: a factor of 1 keeps every bit, 0 of one head at one position is what the command's edit gives, and what is not
// there is an error.
func TestChange(t *testing.T) {
	m, ids := model(t)
	for _, c := range []struct {
		change Change
		same   bool
		err    string
	}{
		{Change{Node: "blk.0.attention", By: 1}, true, ""},
		{Change{Node: "blk.0.attn_output", Heads: "2", Positions: "3", By: 0}, false, ""},
		{Change{Node: "blk.0.attn_norm", By: -2}, false, ""},
		{Change{Node: "blk.9.nothing", By: 1}, false, "no node"},
		{Change{Node: "blk.0.ffn_down", Heads: "0", By: 1}, false, "no heads"},
		{Change{Node: "blk.0.attention", Positions: "99", By: 1}, false, "positions"},
		{Change{Node: "blk.0.attention", Heads: "x", By: 1}, false, "x"},
	} {
		e, err := c.change.Effect(t.Context(), m, ids)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v: %v, want %s", c.change, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Same != c.same || len(e.Tokens) < likeliest || len(e.Tokens) > 2*likeliest || c.same && e.Before != e.After {
			t.Errorf("%+v: same %v, %d tokens, %q and %q", c.change, e.Same, len(e.Tokens), e.Before, e.After)
		}
	}
}
