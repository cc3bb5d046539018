package autoquant

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// Plan holds the measurements and the choice.
type Plan struct {
	Model       string     `json:"model"`
	Imatrix     string     `json:"imatrix,omitempty"`
	Text        Text       `json:"text"`        // of the choices' measured effects
	Predictions int        `json:"predictions"` // of the measured KL
	Bytes       int64      `json:"bytes"`       // of the weights chosen
	Expected    lab.Number `json:"expected_kl"` // if effects add up, in nats
	KL          lab.Number `json:"kl"`          // measured, mean over the predictions
	Weights     []Weight   `json:"weights"`
}

// Weight is the choice for a weight.
type Weight struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Choices []Choice `json:"choices"`
}

// Choice is the cost of a type.
type Choice struct {
	Type  string  `json:"type"`
	Bytes int64   `json:"bytes"`
	KL    float64 `json:"kl"` // added alone
}

// Type returns a weight's type in the plan.
func (p *Plan) Type(i int) tensor.DType {
	d, _ := tensor.ParseDType(p.Weights[i].Type)
	return d
}

// Read takes over the measurements of a plan of the same model. other is the text of the measurements, if
// different from the text of s.
func (s *Search) Read(data []byte) (other *Text, err error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if len(p.Weights) != len(s.weights) {
		return nil, fmt.Errorf("plan: %d weights, the model has %d", len(p.Weights), len(s.weights))
	}
	for i, x := range s.weights {
		w := p.Weights[i]
		if w.Name != x.name || len(w.Choices) != len(x.choices) {
			return nil, fmt.Errorf("plan: weight %d is %q with %d choices, the model's is %q with %d", i, w.Name,
				len(w.Choices), x.name, len(x.choices))
		}
		for j, c := range w.Choices {
			if d := x.choices[j].dtype.String(); c.Type != d || !(c.KL >= 0 && c.KL <= math.MaxFloat32) {
				return nil, fmt.Errorf("plan: weight %q, choice %d: %s of KL %v, want %s and a finite number from 0",
					w.Name, j, c.Type, c.KL, d)
			}
		}
	}
	for i, x := range s.weights {
		for j := range x.choices {
			x.choices[j].kl = p.Weights[i].Choices[j].KL
		}
	}
	if p.Text != s.on {
		s.on, other = p.Text, &p.Text
	}
	return other, nil
}

// Within returns the plan of the least KL divergence whose weights take at most size bytes.
func (s *Search) Within(ctx context.Context, size int64) (*Plan, error) {
	p := s.fill(size)
	if n := s.bytes(p); n > size {
		return nil, fmt.Errorf("the weights take at least %d bytes, and %d are left for them", n, size)
	}
	return s.plan(ctx, p)
}

// Below returns a plan of few bytes whose KL divergence on the text is at most kl. Where effects do not add
// up, Below looks for a plan with a smaller expectation, or allows a larger. The error without such a plan
// comes with the last plan tried, holding the measurements.
func (s *Search) Below(ctx context.Context, kl float64) (best *Plan, err error) {
	aim := kl
	var p *Plan
	for range 5 {
		if p, err = s.plan(ctx, s.shrink(aim)); err != nil {
			return nil, err
		}
		got, expected := float64(p.KL), float64(p.Expected)
		if got <= kl && (best == nil || p.Bytes < best.Bytes) {
			best = p
		}
		if got <= kl && got > 0.97*kl || expected == 0 || got == 0 {
			break
		}
		aim = kl * expected / got
	}
	if best == nil {
		return p, fmt.Errorf("no choice of types has a KL divergence of %g or less on the text; the last one tried "+
			"has %.3g", kl, float64(p.KL))
	}
	return best, nil
}

// plan measures a plan.
func (s *Search) plan(ctx context.Context, p plan) (*Plan, error) {
	s.o.Report("the chosen types", 0, 1)
	defer s.restore()
	for i, x := range s.weights {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := x.set(x.choices[p[i]].dtype); err != nil {
			return nil, err
		}
	}
	kl, err := s.text.kl(ctx)
	if err != nil {
		return nil, err
	}
	r := &Plan{Model: s.o.Model.Checkpoint.Path, Text: s.on, Predictions: len(s.text.base), Bytes: s.bytes(p),
		Expected: lab.Number(s.expected(p)), KL: lab.Number(kl)}
	for i, x := range s.weights {
		w := Weight{Name: x.name, Type: x.choices[p[i]].dtype.String()}
		for _, c := range x.choices {
			w.Choices = append(w.Choices, Choice{c.dtype.String(), c.bytes, c.kl})
		}
		r.Weights = append(r.Weights, w)
	}
	return r, nil
}

// Most returns the type of most of the weights' bytes.
func (p *Plan) Most() tensor.DType {
	bytes := map[string]int64{}
	for _, w := range p.Weights {
		i := slices.IndexFunc(w.Choices, func(c Choice) bool { return c.Type == w.Type })
		bytes[w.Type] += w.Choices[i].Bytes
	}
	best := p.Weights[0].Type
	for _, w := range p.Weights {
		if bytes[w.Type] > bytes[best] {
			best = w.Type
		}
	}
	d, _ := tensor.ParseDType(best)
	return d
}

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
	gain       float64 // KL saved
}

// hull lists a weight's worthwhile choices from the smallest on: each saves less for a byte than the choice before.
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

// fill returns nearly the plan of the least expected KL in at most size bytes: the steps with the largest
// savings for a byte come first, and then moves and pairs of moves with larger savings.
func (s *Search) fill(size int64) plan {
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

// exchange returns the move, or the two moves of different weights, with the largest saving within left more
// bytes, nil if no move saves.
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
	// Sorted by size, with the best gain among the moves of at most the same size, of two weights.
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

// shrink returns the smallest plan of an expected KL of at most kl, or the best plan of all.
func (s *Search) shrink(kl float64) plan {
	least, most := make(plan, len(s.weights)), make(plan, len(s.weights))
	for i, x := range s.weights {
		most[i] = len(x.choices) - 1
	}
	low, high := s.bytes(least), s.bytes(most)
	best := s.fill(high)
	for high-low > max(64, high>>14) {
		middle := low + (high-low)/2
		if p := s.fill(middle); s.expected(p) <= kl {
			best, high = p, middle
		} else {
			low = middle
		}
	}
	return best
}
