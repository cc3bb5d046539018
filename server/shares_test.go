package server

import (
	"fmt"
	"testing"
)

func (s *shares) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.free)
}

// TestShares: however much one key takes, one that holds nothing finds its share; without keys one caller has all.
func TestShares(t *testing.T) {
	ring := func(n int) (ring keyring) {
		for i := range n {
			ring = append(ring, &keyUse{Key: Key{Name: fmt.Sprint("key", i)}})
		}
		return ring
	}
	for _, x := range []struct{ all, keys int }{{256, 0}, {256, 1}, {256, 2}, {256, 3}, {4, 2}, {16, 100}, {1 << 30, 8}, {3, 2}} {
		s := newShares(int64(x.all), ring(x.keys))
		greedy := 0
		for n := int64(x.all); n > 0; {
			if s.take("key0", n) {
				greedy += int(n)
			} else {
				n /= 2
			}
		}
		if x.keys < 2 && greedy != x.all {
			t.Errorf("%+v: one caller alone has %d", x, greedy)
		}
		if int64(greedy) != newShares(int64(x.all), ring(x.keys)).most("key0") {
			t.Errorf("%+v: it took %d, most says %d", x, greedy, newShares(int64(x.all), ring(x.keys)).most("key0"))
		}
		for i := 1; i < x.keys; i++ {
			if found := s.take(fmt.Sprint("key", i), max(1, int64(x.all/(2*x.keys)))); !found && i <= x.all/2 {
				t.Errorf("%+v: key %d finds none of its share", x, i)
			}
		}
		for name, n := range s.held {
			s.give(name, n)
		}
		if owed := newShares(int64(x.all), ring(x.keys)).owed; s.free != int64(x.all) || s.owed != owed || len(s.held) != 0 {
			t.Errorf("%+v: %d are free, %d are owed, want %d", x, s.free, s.owed, owed)
		}
	}
}
