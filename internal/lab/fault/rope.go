package fault

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// turn is how a RoPE turns otherwise than recorded.
type turn struct {
	otherPairs bool                      // (2i, 2i+1) for (i, i+half), or the reverse
	reversed   bool                      // frequencies in the reverse order
	shift      int                       // added to the position
	wrap       int                       // positions begin again after so many; 0 for never
	uncounted  bool                      // the first token is not counted
	text       bool                      // turns by where a row stands, whatever its parts
	parts      func(p [3]int32) [3]int32 // changes a position of three parts; nil for nothing
}

// turn is n's, whose kernel reads it.
func (p *plan) turn(n *graph.Node) *turn {
	t := p.turns[n]
	if t == nil {
		t = &turn{}
		p.turns[n] = t
		p.kernels[n] = t.kernel
	}
	return t
}

func (t *turn) kernel(c *reference.Call) ([]float64, error) {
	n := c.Node
	y, heads, d, attr := slices.Clone(c.In[0]), n.Shape[0], n.Shape[1], n.Attr.(graph.RoPEAttr)
	freqs := attr.Freqs
	attr.Interleaved = attr.Interleaved != t.otherPairs
	if t.reversed {
		freqs = slices.Clone(freqs)
		slices.Reverse(freqs)
	}
	for r, at := range c.Step.Pos {
		for i, f := range freqs {
			pos := max(int(t.position(c.Step, r, attr, i, at))+t.shift, 0)
			if t.wrap > 0 {
				pos %= t.wrap
			}
			if t.uncounted {
				pos = max(pos-1, 0)
			}
			cos, sin := rope.TurnBy(pos, f, attr.Magnitude)
			a, b := attr.Pair(i, d)
			for h := range heads {
				v := y[(r*heads+h)*d:][:d]
				v[a], v[b] = v[a]*cos-v[b]*sin, v[b]*cos+v[a]*sin
			}
		}
	}
	return y, nil
}

// position is what the i-th pair of a row at a position turns by.
func (t *turn) position(s *backend.Step, row int, a graph.RoPEAttr, i int, at int32) int32 {
	p := [3]int32{at, at, at}
	if s.Parts != nil && a.Sections != [3]int{} && !t.text {
		p = s.Parts[row]
	}
	if t.parts != nil {
		p = t.parts(p)
	}
	return p[a.Part(i)]
}

var ropeSpecs = []*spec{
	{id: "rope_style", pick: turning, tokens: 2, apply: plain(func(p *plan, n *graph.Node) (string, error) {
		p.turn(n).otherPairs = true
		if n.Attr.(graph.RoPEAttr).Interleaved {
			return "pairs (i, i+half)", nil
		}
		return "pairs (2i, 2i+1)", nil
	})},
	{id: "rope_theta", pick: turning, tokens: 2, apply: ropeTheta, values: []string{"5e5", root}},
	{id: "rope_scaling", pick: turning, tokens: 2, apply: freqs(unscaled), values: []string{"4"}},
	{id: "rope_factors", pick: turning, tokens: 2, apply: ropeFactors},
	{id: "rope_partial", pick: turning, tokens: 2, apply: ropePartial},
	{id: "rope_magnitude", pick: turning, tokens: 1, apply: plain(func(_ *plan, n *graph.Node) (string, error) {
		a := n.Attr.(graph.RoPEAttr)
		if a.Magnitude == 0 || a.Magnitude == 1 {
			return "", same("there is no magnitude")
		}
		a.Magnitude = 0
		n.Attr = a
		return "cosines and sines without their magnitude", nil
	})},
	{id: "rope_sections", pick: having(graph.RoPE, func(_ *plan, n *graph.Node) bool { return n.Attr.(graph.RoPEAttr).Sections != [3]int{} }),
		tokens: 2, apply: ropeSections, values: []string{"order", "swapped", "text"}},
	{id: "rope_position", pick: turning, one: true, tokens: 2, apply: ropePosition, values: []string{"-1", slot, "bos"}},
	{id: "rope_missing", pick: turning, tokens: 2, apply: skipped, values: untapped},
}

var turning = having(graph.RoPE, func(_ *plan, n *graph.Node) bool {
	return slices.ContainsFunc(n.Attr.(graph.RoPEAttr).Freqs, func(f float64) bool { return f != 0 })
})

// freqs applies a fault of the frequencies alone.
func freqs(change func(f []float64, dim int, value string) ([]float64, string, error)) func(*plan, *graph.Node, string) (string, error) {
	return func(_ *plan, n *graph.Node, value string) (string, error) {
		a := n.Attr.(graph.RoPEAttr)
		f, detail, err := change(a.Freqs, a.Turning(n.Shape.Last()), value)
		if err == nil && slices.Equal(f, a.Freqs) {
			err = same("the frequencies are those")
		}
		if err != nil {
			return "", err
		}
		a.Freqs = f
		n.Attr = a
		return detail, nil
	}
}

// base is the base that frequencies of a head of dim were made from, read off the two fastest. Few scalings
// change these; where one does, as yarn does in a small head, the two slowest have the same factor. Longrope has
// another factor for each pair; the models that are published with it have the base of 1e4.
func base(f []float64, dim int) (float64, error) {
	if len(f) < 2 || f[1] <= 0 || f[0] <= f[1] {
		return 0, errors.New("the base cannot be told from fewer than two frequencies")
	}
	power := func(i int) (rounded float64, exact bool) {
		b := math.Pow(f[i]/f[i+1], float64(dim)/2)
		unit := math.Pow(10, math.Floor(math.Log10(b))-3)
		rounded = math.Round(b/unit) * unit
		like := rope.New(rounded, dim)
		return rounded, math.Abs(f[i]*like[i+1]-f[i+1]*like[i]) <= 1e-6*f[i]*like[i+1]
	}
	b, exact := power(0)
	if slow, exactly := power(len(f) - 2); !exact && exactly {
		return slow, nil
	} else if !exact {
		return 1e4, nil
	}
	return b, nil
}

// root is the value of rope_theta whose exponent is i/dim instead of 2i/dim.
const root = "root"

func ropeTheta(p *plan, n *graph.Node, value string) (string, error) {
	if a, d := n.Attr.(graph.RoPEAttr), n.Shape.Last(); value == root && 2*a.Turning(d) == d {
		return "", errors.New("these are the speeds of the whole head, which is rope_partial")
	}
	return freqs(otherBase)(p, n, value)
}

func otherBase(f []float64, dim int, value string) ([]float64, string, error) {
	right, err := base(f, dim)
	if err != nil {
		return nil, "", err
	}
	usual := 1e4
	if right < 2e4 {
		usual = 1e6
	}
	if value == root {
		value, usual = "", math.Sqrt(right)
	}
	wrong, err := number(value, usual)
	switch {
	case err != nil:
		return nil, "", err
	case !(wrong >= 1 && wrong <= 1e30):
		return nil, "", fmt.Errorf("base %g: want 1 to 1e30", wrong)
	case math.Abs(wrong/right-1) < 1e-3:
		return nil, "", same(fmt.Sprintf("the base is %g", right))
	}
	g := slices.Clone([]float64(rope.New(wrong, dim)[:len(f)]))
	for i, v := range rope.New(right, dim)[:len(f)] {
		if v != f[i] { // scaled, and the scaling stays
			g[i] = float64(float32(g[i] / float64(float32(v/f[i]))))
		}
	}
	return g, fmt.Sprintf("base %g for %g", wrong, right), nil
}

// unscaled are the frequencies without their scaling, or with a linear one that
// the model does not have.
func unscaled(f []float64, dim int, value string) ([]float64, string, error) {
	if value != "" {
		by, err := number(value, 0)
		if err != nil || !(by > 0 && by <= 1e6) {
			return nil, "", fmt.Errorf("factor %q: want a positive number", value)
		}
		return rope.Freqs(f).Linear(by), fmt.Sprintf("frequencies divided by %g", by), nil
	}
	b, err := base(f, dim)
	if err != nil {
		return nil, "", err
	}
	g := rope.New(b, dim)[:len(f)]
	for i, v := range g {
		if math.Abs(f[i]/v-1) > 1e-3 {
			return g, "the frequencies' scaling is not applied", nil
		}
	}
	return nil, "", same("the frequencies have no scaling")
}

// ropeFactors multiplies by factors where the model divides, or uses those of
// another kind of layer.
func ropeFactors(p *plan, n *graph.Node, value string) (string, error) {
	if value != "" {
		return "", odd(value)
	}
	a := n.Attr.(graph.RoPEAttr)
	f, dim := a.Freqs, a.Turning(n.Shape.Last())
	b, err := base(f, dim)
	if err != nil {
		return "", err
	}
	g := slices.Clone(f)
	varies := false
	for i, v := range rope.New(b, dim)[:len(f)] {
		if factor := v / f[i]; factor > 1.001 {
			g[i], varies = float64(float32(v*factor)), varies || math.Abs(v/f[i]/(rope.New(b, dim)[0]/f[0])-1) > 1e-3
		}
	}
	if varies {
		a.Freqs = g
		n.Attr = a
		return "multiplied by the factors", nil
	}
	for _, o := range p.nodes {
		if o.Op != graph.RoPE || o == n {
			continue
		}
		other := o.Attr.(graph.RoPEAttr)
		if g, ok := borrowed(f, other.Freqs, dim, other.Turning(o.Shape.Last())); ok {
			a.Freqs = g
			n.Attr = a
			return "with the factors of " + o.Name, nil
		}
	}
	return "", same("there are no factors")
}

// borrowed is f divided by the factors that are in other, if any are.
func borrowed(f, other []float64, dim, otherDim int) ([]float64, bool) {
	b, err := base(other, otherDim)
	if err != nil {
		return nil, false
	}
	plainOther := rope.New(b, otherDim)
	if len(other) == len(plainOther) && math.Abs(plainOther[0]/other[0]/(plainOther[len(other)-1]/other[len(other)-1])-1) < 1e-3 {
		return nil, false // one factor for all is a scaling
	}
	var g []float64
	for i, v := range f {
		switch {
		case i >= len(plainOther):
			g = append(g, v)
		case i < len(other):
			factor := plainOther[i] / other[i]
			if math.Abs(factor-1) < 1e-3 {
				factor = 1
			}
			g = append(g, float64(float32(v/factor)))
		}
	}
	return g, !slices.Equal(f, g)
}

// ropePartial turns whole heads where a part of their features turns, and else is otherPart.
func ropePartial(p *plan, n *graph.Node, value string) (string, error) {
	a, d := n.Attr.(graph.RoPEAttr), n.Shape.Last()
	if a.Turning(d) == d || value != "" {
		return freqs(otherPart)(p, n, value)
	}
	b, err := base(a.Freqs, a.Dim)
	if err != nil {
		return "", err
	}
	detail := fmt.Sprintf("%d features for %d", d, a.Dim)
	a.Freqs, a.Dim = rope.New(b, d), 0
	n.Attr = a
	return detail, nil
}

// otherPart turns a quarter of the pairs where all turn, and all where a part does.
func otherPart(f []float64, dim int, value string) ([]float64, string, error) {
	usual := 0.25
	if len(f) < dim/2 {
		usual = 1
	}
	part, err := number(value, usual)
	if err != nil || !(part > 0 && part <= 1) {
		return nil, "", fmt.Errorf("part %q: want a number from 0 to 1", value)
	}
	pairs := int(part * float64(dim/2))
	if pairs <= len(f) {
		return f[:pairs], fmt.Sprintf("%d pairs for %d", pairs, len(f)), nil
	}
	b, err := base(f, dim)
	if err != nil {
		return nil, "", err
	}
	return append(slices.Clone(f), rope.New(b, dim)[len(f):pairs]...), fmt.Sprintf("%d pairs for %d", pairs, len(f)), nil
}

// ropeSections leaves height and width at 0, or gives them pairs in another order, or does not know them. All but
// the first show only where the parts of a position differ: in images.
func ropeSections(p *plan, n *graph.Node, value string) (string, error) {
	a := n.Attr.(graph.RoPEAttr)
	other := func(part func(p [3]int32) [3]int32, detail string) (string, error) {
		if a.Sections[1]+a.Sections[2] == 0 {
			return "", same("all pairs turn by the time")
		}
		p.turn(n).parts = part
		return detail, nil
	}
	switch value {
	case "":
		return other(func(p [3]int32) [3]int32 { return [3]int32{p[0], 0, 0} }, "height and width are 0")
	case "swapped":
		return other(func(p [3]int32) [3]int32 { return [3]int32{p[0], p[2], p[1]} }, "width for height")
	case "text":
		p.turn(n).text = true
		return "positions of one part", nil
	case "order":
		b := a
		b.Woven = !a.Woven
		for i := range a.Freqs {
			if a.Part(i) != b.Part(i) {
				n.Attr = b
				return map[bool]string{true: "sections by turns", false: "sections one after another"}[b.Woven], nil
			}
		}
		return "", same("the sections have the same pairs")
	}
	return "", odd(value, "order", "swapped", "text")
}

// slot is the value of rope_position that turns by the place in a ring of the window's size.
const slot = "slot"

func ropePosition(p *plan, n *graph.Node, value string) (string, error) {
	switch value {
	case slot:
		w := 0
		if a := p.layers[n.Layer+1].attention(); a != nil {
			w = p.windows[a]
		}
		if w == 0 {
			return "", same("there is no window, and so no ring")
		}
		p.turn(n).wrap = w
		return fmt.Sprintf("position modulo %d", w), nil
	case "bos":
		p.turn(n).uncounted = true
		return "the first token is not counted", nil
	}
	by, err := number(value, 1)
	if err != nil || by == 0 || by != math.Trunc(by) || math.Abs(by) > 1<<20 {
		return "", fmt.Errorf("value %q: want how many positions it is off", value)
	}
	p.turn(n).shift += int(by)
	return fmt.Sprintf("position off by %+g", by), nil
}

// checkTurns finds queries and keys that are off by as many positions, which
// attention does not see, where that was not asked for, and the reverse.
func (p *plan) checkTurns(faults []Fault) error {
	keys := map[int]int{} // by how much a store's keys are off
	for _, n := range p.nodes {
		if n.Op == graph.StoreKV {
			keys[n.Layer] = p.shift(n.In[0])
		}
	}
	alike, used := true, false
	for _, n := range p.nodes {
		if n.Op == graph.Attention {
			by := p.shift(n.In[0])
			used = used || by != 0
			alike = alike && by == keys[n.Attr.(graph.AttentionAttr).KV.Layer]
		}
	}
	has := func(id string) bool { return slices.ContainsFunc(faults, func(f Fault) bool { return f.ID == id }) }
	switch {
	case has("rope_position") && used && alike:
		return fmt.Errorf("rope_position: %w", same("queries and keys are off alike"))
	case has("same_rope_offset") && !has("rope_position") && !alike:
		return errors.New("same_rope_offset: queries and keys are not off alike in all layers, which is rope_position")
	}
	return nil
}

// shift is by how many positions the rope that n is, or is made of, is off.
func (p *plan) shift(n *graph.Node) int {
	for ; n.Op != graph.RoPE && len(n.In) == 1; n = n.In[0] { // a norm may come behind
		continue
	}
	if n.Op == graph.Concat { // what does not turn lies beside
		return p.shift(n.In[0]) + p.shift(n.In[1])
	}
	if t := p.turns[n]; t != nil {
		return t.shift
	}
	return 0
}
