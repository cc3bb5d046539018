package server

import (
	"sync"
)

// held is a request's bytes in the room of bodies.
type held struct {
	s    *Server
	who  string
	size int64
}

// grow takes room for size bytes in all, or else changes nothing.
func (h *held) grow(size int64) bool {
	small, large := h.parts()
	h.size, size = size, h.size
	moreSmall, moreLarge := h.parts()
	if h.s.rooms.small.take(h.who, moreSmall-small) {
		if h.s.rooms.bodies.take(h.who, moreLarge-large) {
			return true
		}
		h.s.rooms.small.give(h.who, moreSmall-small)
	}
	h.size = size
	return false
}

// parts returns the bytes in the room of small bodies, and the others.
func (h *held) parts() (small, large int64) {
	return min(h.size, firstBody), max(0, h.size-firstBody)
}

// end gives all back.
func (h *held) end() {
	if small, large := h.parts(); h.size > 0 {
		h.s.rooms.small.give(h.who, small)
		h.s.rooms.bodies.give(h.who, large)
		h.size = 0
	}
}

// shares bound the callers' holdings of a thing, as places of requests or bytes of bodies. Half of all is divided
// evenly among the keys: the part of a key not held is kept for the key. The rest is for the first to come. A server
// without keys has a single caller with a right to all.
type shares struct {
	mu   sync.Mutex
	free int64
	all  int64
	each int64            // kept for each key
	owed int64            // the keys' parts not held
	held map[string]int64 // by callers
	keys map[string]bool
}

// newShares returns shares of all for the callers of keys.
func newShares(all int64, keys keyring) *shares {
	s := &shares{free: all, all: all, held: map[string]int64{}, keys: map[string]bool{}}
	for _, k := range keys {
		s.keys[k.Name] = true
	}
	if n := int64(len(s.keys)); n > 1 {
		s.each = max(1, all/(2*n))
		s.owed = n * s.each
	}
	return s
}

// owes returns how much is kept for a caller.
func (s *shares) owes(who string) int64 {
	if !s.keys[who] {
		return 0
	}
	return max(0, s.each-s.held[who])
}

// room returns how much more a caller may take. With more keys than half of all, a key without holdings gets the rest.
func (s *shares) room(who string) int64 {
	own := s.owes(who)
	return max(s.free-min(s.owed-own, s.all/2), min(s.free, own))
}

// most returns the maximum for a caller without holdings, while others hold nothing.
func (s *shares) most(who string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := int64(len(s.keys)) * s.each
	if s.keys[who] {
		others -= s.each
	}
	return s.all - min(others, s.all/2)
}

// take takes n for a caller, if there is room.
func (s *shares) take(who string, n int64) bool { return s.takeLeaving(0, who, n) }

// takeLeaving takes n, if spare is left for others.
func (s *shares) takeLeaving(spare int64, who string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.room(who)-spare {
		return false
	}
	s.move(who, n)
	return true
}

// add takes n for a caller, room or not, for a thing already present. A negative n gives back.
func (s *shares) add(who string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(who, n)
}

func (s *shares) give(who string, n int64) { s.add(who, -n) }

// move changes a caller's holdings. The mutex is held.
func (s *shares) move(who string, n int64) {
	before := s.owes(who)
	s.free -= n
	if s.held[who] += n; s.held[who] == 0 {
		delete(s.held, who)
	}
	s.owed += s.owes(who) - before
}
