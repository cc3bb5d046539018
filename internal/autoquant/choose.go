package autoquant

import (
	"cmp"
	"slices"
	"sort"
)

// plan is a choice for each weight.
type plan []int

func (s *Search) bytes(p plan) (n int64) {
	for i, x := range s.weights {
		n += x.choices[p[i]].bytes
	}
	return n
}

// expected returns the KL divergence of a plan if effects add up.
func (s *Search) expected(p plan) (kl float64) {
	for i, x := range s.weights {
		kl += x.choices[p[i]].kl
	}
	return kl
}

// move is another choice for a weight.
type move struct {
	weight, to int
	bytes      int64
	gain       float64 // KL that it saves
}

// hull lists a weight's worthwhile choices from the smallest on: each saves less for a byte than the one before.
func (x *weight) hull() (on []int) {
	for i := range x.choices {
		c := x.choices[i]
		if len(on) > 0 {
			last := on[len(on)-1]
			if c.bytes == x.choices[last].bytes && c.kl < x.choices[last].kl {
				on = on[:len(on)-1]
			} else if c.kl >= x.choices[last].kl {
				continue
			}
		}
		for len(on) > 1 {
			a, b := x.step(on[len(on)-2], on[len(on)-1]), x.step(on[len(on)-2], i)
			if a.gain*float64(b.bytes) > b.gain*float64(a.bytes) {
				break
			}
			on = on[:len(on)-1]
		}
		on = append(on, i)
	}
	return on
}

func (x *weight) step(from, to int) move {
	return move{to: to, bytes: x.choices[to].bytes - x.choices[from].bytes, gain: x.choices[from].kl - x.choices[to].kl}
}

// within returns the plan of the least expected KL that takes at most size bytes, or nearly: the steps that save most
// for a byte come first, and then moves and pairs of moves that save more.
func (s *Search) within(size int64) plan {
	p := make(plan, len(s.weights))
	var steps []move
	for i, x := range s.weights {
		on := x.hull()
		p[i] = on[0]
		for j := 1; j < len(on); j++ {
			m := x.step(on[j-1], on[j])
			m.weight = i
			steps = append(steps, m)
		}
	}
	slices.SortStableFunc(steps, func(a, b move) int {
		return cmp.Compare(b.gain*float64(a.bytes), a.gain*float64(b.bytes))
	})
	left, stuck := size-s.bytes(p), make([]bool, len(p))
	for _, m := range steps {
		if stuck[m.weight] = stuck[m.weight] || m.bytes > left; !stuck[m.weight] {
			p[m.weight], left = m.to, left-m.bytes
		}
	}
	for range 4 * len(p) {
		m := s.exchange(p, left)
		if m == nil {
			break
		}
		for _, m := range m {
			p[m.weight], left = m.to, left-m.bytes
		}
	}
	return p
}

// exchange returns the move or the two of different weights that save most within left more bytes, nil if none saves
// anything.
func (s *Search) exchange(p plan, left int64) (best []move) {
	var all []move
	for i, x := range s.weights {
		for to := range x.choices {
			if m := x.step(p[i], to); to != p[i] {
				m.weight = i
				all = append(all, m)
			}
		}
	}
	// Sorted by size, with the best gain among the ones of at most that size, of two weights.
	slices.SortStableFunc(all, func(a, b move) int { return cmp.Compare(a.bytes, b.bytes) })
	first, second := make([]int, len(all)), make([]int, len(all))
	for i := range all {
		f, n := i, -1
		if i > 0 {
			f, n = first[i-1], second[i-1]
			switch {
			case all[i].weight == all[f].weight:
				if all[i].gain > all[f].gain {
					f = i
				}
			case all[i].gain > all[f].gain:
				f, n = i, f
			case n < 0 || all[i].gain > all[n].gain:
				n = i
			}
		}
		first[i], second[i] = f, n
	}
	gain := 1e-12
	for i, m := range all {
		if m.bytes <= left && m.gain > gain {
			best, gain = []move{m}, m.gain
		}
		j := sort.Search(len(all), func(j int) bool { return all[j].bytes > left-m.bytes }) - 1
		if j < 0 {
			continue
		}
		o := first[j]
		if all[o].weight == m.weight {
			o = second[j]
		}
		if o >= 0 && m.gain+all[o].gain > gain {
			best, gain = []move{all[i], all[o]}, m.gain+all[o].gain
		}
	}
	return best
}

// below returns the smallest plan whose expected KL is at most kl, or the best there is.
func (s *Search) below(kl float64) plan {
	least, most := make(plan, len(s.weights)), make(plan, len(s.weights))
	for i, x := range s.weights {
		most[i] = len(x.choices) - 1
	}
	low, high := s.bytes(least), s.bytes(most)
	best := s.within(high)
	for high-low > max(64, high>>14) {
		middle := low + (high-low)/2
		if p := s.within(middle); s.expected(p) <= kl {
			best, high = p, middle
		} else {
			low = middle
		}
	}
	return best
}
