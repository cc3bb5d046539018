package kv

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// TestPages writes each position's number where the tables say and wants all
// positions of every window to be readable, for random chunks and sequences.
func TestPages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		windows := []int{0, 1 + r.IntN(300)}
		context, chunk := 1+r.IntN(1000), 1+r.IntN(200)
		p := NewPool(windows, context, chunk, 3)
		store := map[[3]int]int{} // class, page, slot -> sequence and position
		seqs := []*Sequence{p.NewSequence(), p.NewSequence(), p.NewSequence()}
		for range 60 {
			i := r.IntN(3)
			s, n := seqs[i], 1+r.IntN(chunk)
			from := s.Len()
			if err := s.Grow(n); errors.Is(err, ErrFull) {
				if from+n <= context {
					t.Fatalf("full at %d of %d: %v", from, context, err)
				}
				s.Free()
				continue
			} else if err != nil {
				t.Fatal(err)
			}
			for c, w := range windows {
				for pos := from; pos < s.Len(); pos++ {
					store[[3]int{c, int(s.Page(c, pos)), pos % PageSize}] = i<<20 | pos
				}
				first := 0
				if w > 0 {
					first = max(0, from-w+1)
				}
				for pos := first; pos < s.Len(); pos++ {
					if got := store[[3]int{c, int(s.Page(c, pos)), pos % PageSize}]; got != i<<20|pos {
						t.Fatalf("window %d, chunk %d: position %d holds %d", w, chunk, pos, got)
					}
				}
			}
		}
	}
}

func TestTruncate(t *testing.T) {
	p := NewPool([]int{0, 64}, 4096, 32, 1)
	s := p.NewSequence()
	for range 20 {
		if err := s.Grow(32); err != nil {
			t.Fatal(err)
		}
	}
	if s.Truncate(100) || s.Len() != 640 {
		t.Error("a ring of 64 gave back position 36 of 640")
	}
	if !s.Truncate(630) || s.Len() != 630 {
		t.Error("truncating by ten failed")
	}
	if s.Truncate(631) {
		t.Error("truncated to more than there was")
	}
}

func TestBounds(t *testing.T) {
	p := NewPool([]int{0}, 128, 64, 1)
	a, b := p.NewSequence(), p.NewSequence()
	if err := a.Grow(65); err == nil || errors.Is(err, ErrFull) {
		t.Errorf("a step over the chunk: %v", err)
	}
	for range 2 {
		if err := a.Grow(64); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Grow(1); !errors.Is(err, ErrFull) {
		t.Errorf("past the context: %v", err)
	}
	if err := b.Grow(1); !errors.Is(err, ErrFull) {
		t.Errorf("no page left: %v", err)
	}
	a.Free()
	if err := b.Grow(1); err != nil {
		t.Errorf("after Free: %v", err)
	}
}
