package engine

import "github.com/karat-run/karat/internal/draft"

// proposal is the next tokens of a request: the last chosen one, and a draft.
type proposal struct {
	drafter *draft.Drafter // nil for none
	tokens  []int32
	odds    []float32
}

// propose returns a new proposal behind history. Its draft has at most most tokens, negative for any number.
func (p *proposal) propose(history []int, most int) []int32 {
	p.tokens, p.odds = append(p.tokens[:0], int32(history[len(history)-1])), p.odds[:0]
	if p.drafter != nil {
		if most < 0 {
			most = draft.Most
		}
		p.tokens, p.odds = p.drafter.Propose(p.tokens, p.odds, most)
	}
	return p.tokens
}

// guessed reports whether the draft is to be made by the model's head.
func (p *proposal) guessed() bool { return len(p.odds) > 0 && p.drafter.Kind() == draft.MTP }

// ends tells the drafter the token chosen after the first i of the draft, of verified ones. It reports whether the step
// verified a draft, and no more of its tokens are right.
func (p *proposal) ends(id, i, verified int) bool {
	if p.drafter == nil {
		return false
	}
	right := i < verified && int(p.tokens[1+i]) == id
	if right {
		p.drafter.Count(1, 0)
	} else if i < verified {
		p.drafter.Count(0, verified-i)
	}
	p.drafter.Add(int32(id))
	return verified > 0 && !right
}

// rows is memory for rows of logits.
type rows [][]float32

// put adds a row, if there is one.
func (r *rows) put(row []float32) {
	if row != nil {
		*r = append(*r, row)
	}
}

// take returns an empty row, with memory if there is one.
func (r *rows) take() (row []float32) {
	if n := len(*r); n > 0 {
		row, *r = (*r)[n-1], (*r)[:n-1]
	}
	return row[:0]
}

// free keeps one row.
func (r *rows) free() {
	if len(*r) > 1 {
		clear((*r)[1:])
		*r = (*r)[:1]
	}
}
