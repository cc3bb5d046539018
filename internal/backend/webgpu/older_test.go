package webgpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
)

// TestNarrowPrefix: pages in both forms are shared, copied and gone back to, with the same bits.
func TestNarrowPrefix(t *testing.T) {
	g := load(t, golden.Model(t, "cohere2"))
	b := webgpu.New(open(t), webgpu.Options{Narrow: true, Software: true})
	e, err := engine.New(g, b, engine.Options{Context: 512, Chunk: 64, Budget: 1 << 28})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	defer e.Close()
	text := make([]int32, 400)
	for i := range text {
		text[i] = int32((i*i*7 + 5) % 500)
	}
	feed := func(s *engine.Sequence, ids []int32, outputs int) (bits []uint32) {
		t.Helper()
		rows, err := s.Feed(t.Context(), ids, outputs)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range slices.Concat(rows...) {
			bits = append(bits, math.Float32bits(v))
		}
		return bits
	}
	alone := e.NewSequence()
	defer alone.Close()
	want := feed(alone, text, 5)
	for _, at := range []int{130, 333} {
		first, second, salt := e.NewSequence(), e.NewSequence(), fmt.Sprint(at)
		first.Prefix(text[:at], salt)
		feed(first, text[:at], 0)
		if n := second.Prefix(text[:396], salt); n != at || !slices.Equal(feed(second, text[n:], 5), want) {
			t.Errorf("behind %d of %d tokens of another: other bits", n, at)
		}
		feed(first, []int32{1, 2, 3}, 1)
		if !slices.Equal(feed(first, text[first.Rewind(text[:396]):], 5), want) {
			t.Errorf("back to %d: other bits", at)
		}
		first.Close()
		second.Close()
	}
}
