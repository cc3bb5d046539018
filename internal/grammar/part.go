package grammar

// part is a state of a regular part: a term, and what follows each class of bytes.
type part struct {
	t       *term
	uid     uint64
	accept  bool // the part may end here
	last    bool // and cannot go on
	life    life
	next    []*part // by class; nil is not known yet
	loops   uint32  // sorts of bytes that lead back here, and looped once they are known
	clamped [levels]*part
}

// life is whether anything fits a term.
type life uint8

const (
	unknown life = iota
	alive
	dead
)

// state is a term as a state. g.mu is held.
func (g *Grammar) part(t *term) *part {
	if t.part == nil {
		p := &part{t: t, uid: uids.Add(1), accept: t.null, last: t.kind == empty, next: make([]*part, len(g.reps))}
		switch {
		case t.kind == never:
			p.life = dead
		case t.null || !t.bool:
			p.life = alive
		}
		t.part = p
		g.terms.take(160 + 8*len(g.reps))
	}
	return t.part
}

// step returns what follows p after a byte of class c, the dead state if nothing can.
func (g *Grammar) step(p *part, c uint8) *part {
	if q := p.next[c]; q != nil {
		return q
	}
	q := g.part(g.terms.derive(p.t, g.reps[c]))
	if !g.lives(q) {
		q = g.part(g.terms.none)
	}
	p.next[c] = q
	return q
}

// searched is what a state costs that a search keeps, in steps: some 700 bytes.
const searched = 32

// lives reports whether anything fits p. Terms without both and not say it themselves; the others are searched for an
// accepting state.
func (g *Grammar) lives(p *part) bool {
	if p.life != unknown {
		return p.life == alive
	}
	type visit struct {
		p    *part
		from int
	}
	seen := map[*part]bool{p: true}
	queue := []visit{{p, -1}}
	for i := 0; i < len(queue); i++ {
		for _, b := range g.reps {
			q := g.part(g.terms.derive(queue[i].p.t, b))
			if q.life == alive {
				for j := i; j >= 0; j = queue[j].from {
					queue[j].p.life = alive
				}
				return true
			}
			if q.life == unknown && !seen[q] {
				seen[q] = true
				g.terms.burn(searched)
				queue = append(queue, visit{q, i})
			}
		}
	}
	for _, v := range queue {
		v.p.life = dead
	}
	return false
}

// clampedPart returns p for the tokens of a level.
func (g *Grammar) clampedPart(p *part, level int) *part {
	if !p.t.counts {
		return p
	}
	if p.clamped[level] == nil {
		p.clamped[level] = g.part(g.terms.clamp(p.t, level))
	}
	return p.clamped[level]
}

// looped says that a part's loops are known.
const looped = 1 << 31

// loops returns the sorts of bytes that leave p as it is.
func (g *Grammar) loops(p *part) uint32 {
	if p.loops != 0 {
		return p.loops &^ looped
	}
	known := ^uint32(0)
	for b, sort := range sorts {
		if g.step(p, g.classes[b]) != p {
			known &^= 1 << sort
		}
	}
	p.loops = known | looped
	return known &^ looped
}
