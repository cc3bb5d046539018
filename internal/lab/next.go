package lab

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
)

// NextToken is a token in the distribution after a prompt.
type NextToken struct {
	ID      int    `json:"id"`
	Text    string `json:"text"`
	Rank    int    `json:"rank"` // 1 is the likeliest; 0 if the logit is NaN
	Logit   Number `json:"logit"`
	Logprob Number `json:"logprob"` // natural logarithm of the probability

	Other *NextOther `json:"other,omitempty"`
}

// NextOther is the same token in another engine.
type NextOther struct {
	Rank    int    `json:"rank"`
	Logit   Number `json:"logit"`
	Logprob Number `json:"logprob"`
}

// Next is the distribution of the token after a prompt, and another engine's beside it if there is one.
type Next struct {
	Entropy Number      `json:"entropy"` // in nats
	Top     []NextToken `json:"top"`     // likeliest first
	Tokens  []NextToken `json:"tokens,omitempty"`

	// Of the other engine: its likeliest tokens, and how far its logits lie from these.
	OtherTop []NextToken `json:"other_top,omitempty"`
	Distance *Distance   `json:"distance,omitempty"`
}

// NewNext describes logits: the top likeliest tokens, and those asked for. other is another engine's
// logits of the same vocabulary, or nil. An id outside the vocabulary is an error, and so is another
// size of the vocabulary.
func NewNext(logits, other []float64, top int, ids []int) (*Next, error) {
	if other != nil && len(other) != len(logits) {
		return nil, fmt.Errorf("next: logits of %d tokens against %d: another vocabulary", len(other), len(logits))
	}
	mine := newRanked(logits)
	n := &Next{Entropy: Number(Entropy(logits))}
	var theirs *ranked
	if other != nil {
		theirs = newRanked(other)
		d := distance(logits, other)
		n.Distance = &d
	}
	token := func(id int) NextToken {
		t := NextToken{ID: id}
		t.Rank, t.Logit, t.Logprob = mine.of(id)
		if theirs != nil {
			t.Other = &NextOther{}
			t.Other.Rank, t.Other.Logit, t.Other.Logprob = theirs.of(id)
		}
		return t
	}
	for _, id := range mine.order[:min(top, len(mine.order))] {
		n.Top = append(n.Top, token(id))
	}
	for _, id := range ids {
		if id < 0 || id >= len(logits) {
			return nil, fmt.Errorf("next: token %d is outside the vocabulary of %d", id, len(logits))
		}
		n.Tokens = append(n.Tokens, token(id))
	}
	if theirs != nil {
		for _, id := range theirs.order[:min(top, len(theirs.order))] {
			n.OtherTop = append(n.OtherTop, token(id))
		}
	}
	return n, nil
}

// ranked is logits in order.
type ranked struct {
	logits []float64
	norm   float64
	order  []int // ids, highest logit first, of equal ones the lowest; without NaN
	rank   []int // by id
}

func newRanked(logits []float64) *ranked {
	r := &ranked{logits: logits, norm: LogSumExp(logits), rank: make([]int, len(logits))}
	for id, x := range logits {
		if x == x {
			r.order = append(r.order, id)
		}
	}
	slices.SortStableFunc(r.order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	for i, id := range r.order {
		r.rank[id] = i + 1
	}
	return r
}

func (r *ranked) of(id int) (rank int, logit, logprob Number) {
	return r.rank[id], Number(r.logits[id]), Number(r.logits[id] - r.norm)
}

// Last finds the record's prompt of those ids, and returns its index and the logits of its last
// position. A prompt without ids is that of any ids if it is the only one. An error says where the
// nearest prompt differs.
func (r *Record) Last(ids []int32) (index int, logits []float64, err error) {
	best, bestSame := -1, -1
	for i, p := range r.Prompts {
		if p.Logits == nil {
			continue
		}
		if slices.Equal(p.IDs, ids) || p.IDs == nil && len(r.Prompts) == 1 {
			logits, err = p.last()
			return p.Index, logits, err
		}
		if same := commonPrefix(p.IDs, ids); p.IDs != nil && same > bestSame {
			best, bestSame = i, same
		}
	}
	if best < 0 {
		return 0, nil, fmt.Errorf("%s: no prompt with ids and logits", r.Path)
	}
	p := r.Prompts[best]
	return 0, nil, fmt.Errorf("%s: no prompt has these %d ids: the nearest, prompt %d, has %d ids and differs at "+
		"position %d (%s against %s)",
		r.Path, len(ids), p.Index, len(p.IDs), bestSame, idAt(p.IDs, bestSame), idAt(ids, bestSame))
}

func commonPrefix(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func idAt(ids []int32, i int) string {
	if i >= len(ids) {
		return "the end"
	}
	return fmt.Sprint(ids[i])
}

// last returns the logits of the last position.
func (p *Prompt) last() ([]float64, error) {
	r := rowsOf(p.Logits)
	x := make([]float64, r.width)
	err := mmap.Guard(func() error {
		r.read(x, r.n-1)
		return nil
	})
	return x, err
}

// Widen returns logits in float64.
func Widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// Name gives every token its text.
func (n *Next) Name(text func(id int) string) {
	for _, list := range [][]NextToken{n.Top, n.Tokens, n.OtherTop} {
		for i := range list {
			list[i].Text = text(list[i].ID)
		}
	}
}

// Text writes the distribution as a table.
func (n *Next) Text() string {
	var b strings.Builder
	head := []string{"rank", "id", "logit", "logprob", "prob", "text"}
	if n.Distance != nil {
		head = []string{"rank", "id", "logit", "logprob", "prob", "theirs: rank", "logit", "logprob", "Δlogit", "text"}
	}
	t := table(&b, head...)
	mark := map[int]bool{}
	write := func(tokens []NextToken, again bool) {
		for _, x := range tokens {
			if mark[x.ID] && !again {
				continue
			}
			mark[x.ID] = true
			cells := []string{fmt.Sprint(x.Rank), fmt.Sprint(x.ID), fmt.Sprintf("%.4f", float64(x.Logit)),
				fmt.Sprintf("%.4f", float64(x.Logprob)), Percent(x.Logprob)}
			if o := x.Other; o != nil {
				cells = append(cells, fmt.Sprint(o.Rank), fmt.Sprintf("%.4f", float64(o.Logit)),
					fmt.Sprintf("%.4f", float64(o.Logprob)), fmt.Sprintf("%+.2g", float64(o.Logit-x.Logit)))
			}
			row(t, append(cells, strconv.Quote(x.Text))...)
		}
	}
	write(n.Top, true)
	write(n.OtherTop, false)
	write(n.Tokens, false)
	t.Flush() // to a strings.Builder, which takes everything
	fmt.Fprintf(&b, "entropy %.4f nats\n", float64(n.Entropy))
	if d := n.Distance; d != nil {
		fmt.Fprintf(&b, "theirs against these: largest difference of a logit %s, KL divergence %s nats, cosine %.9f\n",
			small(d.MaxAbsDiff), small(d.KLMean), float64(d.CosineMin))
	}
	return b.String()
}
