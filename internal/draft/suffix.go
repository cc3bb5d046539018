package draft

// suffixes is the suffix automaton of a growing text (Blumer et al., 1985). For example, in "a b c d a b" the longest
// end found before is "a b", and "c" followed. A token takes constant time, averaged over a text, and 100 bytes.
type suffixes struct {
	text   []int32
	states []state
	edges  []edge
	wide   map[step]int32 // indices of the edges of states with many
	last   int32          // the state of the whole text
}

// state is a set of substrings with the same ends in the text.
type state struct {
	link   int32 // the state of the longest suffix with other ends; -1 at the root
	length int32 // of the longest substring
	end    int32 // behind an occurrence: of the newest, as far as seen
	edges  int32 // the newest edge, or -1
	count  int32 // of edges
}

// step is a state and a token behind.
type step struct{ state, token int32 }

// edge leads from a state to the state of a token more.
type edge struct{ token, to, next int32 }

const (
	// depth bounds the states told of a new occurrence.
	depth = 16

	// narrow is the maximum of edges searched one by one. The root and the states of commas, for example, have many.
	narrow = 8
)

func newSuffixes(tokens int) *suffixes {
	s := &suffixes{text: make([]int32, 0, tokens), states: make([]state, 1, 2*tokens+1), wide: map[step]int32{}}
	s.states[0] = state{link: -1, edges: -1}
	return s
}

// add appends a token, and returns the length of the text's longest end found before, and the place behind the newest
// such occurrence.
func (s *suffixes) add(token int32) (length, behind int) {
	s.text = append(s.text, token)
	n := int32(len(s.text))
	now, p := s.make(state{length: n, end: n, edges: -1}), s.last
	for p >= 0 && s.edge(p, token) == nil {
		s.lead(p, token, now)
		p = s.states[p].link
	}
	if p >= 0 {
		s.states[now].link = s.split(p, token)
	}
	s.last = now
	at := s.states[now].link
	length, behind = int(s.states[at].length), int(s.states[at].end)
	for range depth {
		if at <= 0 {
			break
		}
		s.states[at].end = n
		at = s.states[at].link
	}
	return length, behind
}

func (s *suffixes) make(x state) int32 {
	s.states = append(s.states, x)
	return int32(len(s.states) - 1)
}

// split returns the state of the longest substring of p and a token: the state at p's edge, or its part with shorter
// substrings as a state of its own.
func (s *suffixes) split(p, token int32) int32 {
	q := *s.edge(p, token)
	if s.states[q].length == s.states[p].length+1 {
		return q
	}
	part := s.make(state{link: s.states[q].link, length: s.states[p].length + 1, end: s.states[q].end, edges: -1})
	for e := s.states[q].edges; e >= 0; e = s.edges[e].next {
		s.lead(part, s.edges[e].token, s.edges[e].to)
	}
	for ; p >= 0; p = s.states[p].link {
		to := s.edge(p, token)
		if to == nil || *to != q {
			break
		}
		*to = part
	}
	s.states[q].link = part
	return part
}

// edge returns where p's edge of a token leads, nil if there is none.
func (s *suffixes) edge(p, token int32) *int32 {
	if s.states[p].count > narrow {
		if e, ok := s.wide[step{p, token}]; ok {
			return &s.edges[e].to
		}
		return nil
	}
	for e := s.states[p].edges; e >= 0; e = s.edges[e].next {
		if s.edges[e].token == token {
			return &s.edges[e].to
		}
	}
	return nil
}

// lead adds an edge.
func (s *suffixes) lead(p, token, to int32) {
	x := &s.states[p]
	s.edges = append(s.edges, edge{token, to, x.edges})
	x.edges = int32(len(s.edges) - 1)
	switch x.count++; {
	case x.count == narrow+1:
		for e := x.edges; e >= 0; e = s.edges[e].next {
			s.wide[step{p, s.edges[e].token}] = e
		}
	case x.count > narrow:
		s.wide[step{p, token}] = x.edges
	}
}
