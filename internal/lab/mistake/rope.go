package mistake

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// turning are rope nodes that a hypothesis is about.
type turning struct {
	at    *graph.Node
	nodes []*graph.Node
	cost  float64
	side  string // queries or keys, if it is about one of them
}

// wrong returns the hypothesis that all of them turn otherwise.
func (t turning) wrong(cause, computed string, d detail, change reference.Edit) *Hypothesis {
	h := &Hypothesis{Cause: cause, Node: t.at, Computed: computed, Detail: d, Edits: reference.Edits{}, Cost: t.cost}
	if t.side != "" {
		h.Computed += ", " + t.side + " alone"
		h.Detail = maps.Clone(d)
		h.Detail["side"] = t.side
	}
	for _, x := range t.nodes {
		h.Edits[x] = []reference.Edit{change}
	}
	return h
}

// ropeHypotheses returns hypotheses about queries and keys alike, and about each of them: of the layer whose keys
// another reads, about the keys.
func (p *Proposer) ropeHypotheses(n *graph.Node) []*Hypothesis {
	ropes := p.Rotations(n)
	if n != ropes[len(ropes)-1] && n != ropes[0] {
		return nil
	}
	var all []*Hypothesis
	if n == ropes[0] || len(p.Span) > small && !slices.Contains(p.Span, ropes[0]) {
		all = p.turns(turning{at: n, nodes: ropes})
	}
	if len(p.Span) <= small {
		all = append(all, p.OneSide(n)...)
	}
	if Behind(n.In[0]).Op != graph.RMSNorm {
		all = append(all, p.extraNorm(n, Side(n), func(e *reference.Eval, s *reference.Spec, rows []int, norm func([]float64) []float64) ([]float64, error) {
			y, err := e.Value(s.In[0], rows)
			return s.Rotate(e, norm(y), rows), err
		}))
	}
	return append(all, p.shifts(n)...)
}

// OneSide returns hypotheses about what rope n does to queries or to keys, if it is not alone.
func (p *Proposer) OneSide(n *graph.Node) []*Hypothesis {
	if len(p.Rotations(n)) < 2 {
		return nil
	}
	return p.turns(turning{at: n, nodes: []*graph.Node{n}, cost: 0.3, side: Side(n)})
}

func (p *Proposer) turns(t turning) []*Hypothesis {
	attr, whole := t.at.Attr.(graph.RoPEAttr), t.at.Shape.Last()
	freqs, dim := attr.Freqs, attr.Turning(whole)
	speeds := func(f []float64) reference.Edit { return func(s *reference.Spec) { s.Freqs = f } }
	all := []*Hypothesis{
		t.wrong("rope_missing", "does not turn queries and keys", detail{}, speeds(nil)),
		t.style(attr),
	}
	if attr.Magnitude != 0 {
		all = append(all, t.wrong("rope_magnitude", fmt.Sprintf("turns without the magnitude of %.6g", attr.Magnitude), detail{"magnitude": 1.0, "right": attr.Magnitude}, func(s *reference.Spec) { s.Magnitude = 0 }))
	}
	all = append(all, t.sections(attr)...)
	all = append(all, p.positions(t)...)
	if len(freqs) == 0 {
		return all
	}
	base := Theta(freqs, dim)
	plain := rope.New(base, dim)
	if dim < whole {
		all = append(all, t.wrong("rope_partial", fmt.Sprintf("turns all %d features of a head, not %d", whole, dim), detail{"part": 1.0}, func(s *reference.Spec) { s.Freqs, s.Part = rope.New(base, whole), 0 }),
			t.wrong("rope_partial", fmt.Sprintf("turns %d features of a head at the speeds of all %d", dim, whole), detail{"speeds": "of the whole head"}, speeds(rope.New(base, whole)[:len(freqs)])))
	}
	if !alike(plain, freqs) && len(freqs) == dim/2 {
		all = append(all, t.wrong("rope_scaling", "turns without the scaling of the frequencies", detail{"scaling": "none"}, speeds(plain)), t.otherFactor(plain, freqs))
		inverse, cause := slices.Clone(freqs), "rope_scaling" // if one factor is for all
		for i, f := range plain {
			inverse[i] = float64(float32(f * f / freqs[i]))
			if math.Abs(f/freqs[i]*freqs[0]/plain[0]-1) > 1e-3 {
				cause = "rope_factors"
			}
		}
		all = append(all, t.wrong(cause, "multiplies the frequencies by the factors that divide them", detail{"factors": "inverse"}, speeds(inverse)))
	}
	if len(freqs) < dim/2 {
		all = append(all, t.wrong("rope_partial", "turns all pairs, though some are left out", detail{"pairs": "all"}, speeds(plain)))
	}
	for _, factor := range []float64{2, 4, 8, 16, 32} {
		all = append(all, t.wrong("rope_scaling", fmt.Sprintf("turns %g times as fast", factor), detail{"speed": factor}, speeds(Times(freqs, factor))),
			t.wrong("rope_scaling", fmt.Sprintf("turns at 1/%g of the speed", factor), detail{"speed": 1 / factor}, speeds(Times(freqs, 1/factor))))
	}
	for _, part := range []float64{0.25, 0.5, 0.75} {
		if turning := int(part*float64(whole)) / 2 * 2; turning != dim {
			all = append(all, unlikely(0.3, t.wrong("rope_partial", fmt.Sprintf("turns the first %d of %d features", turning, whole), detail{"part": part},
				func(s *reference.Spec) { s.Freqs, s.Part = rope.New(base, turning), turning })))
		}
		if count := int(part * float64(dim/2)); count != len(freqs) {
			some := plain
			if count < len(freqs) {
				some = freqs
			}
			all = append(all, unlikely(0.4, t.wrong("rope_partial", fmt.Sprintf("turns the first %d of %d pairs", count, dim/2), detail{"pairs": part}, speeds(some[:count]))))
		}
	}
	all = append(all, p.otherKinds(t, freqs, dim)...)
	return append(all, t.otherBase(freqs, base, dim)...)
}

// otherBase returns powers of another base. A scaling divides the same pairs as in the model, or, if it is one by
// wavelengths, the pairs of these wavelengths.
func (t turning) otherBase(freqs []float64, base float64, dim int) []*Hypothesis {
	wrong := func(d detail, f func(v float64) []float64) *Hypothesis {
		return &Hypothesis{Cause: "rope_theta", Node: t.at, Cost: 0.3, Fit: &Fit{Right: base, Least: 50, Most: 1e9,
			Guesses: []float64{1e4, 1e5, 5e5, 1e6, 1e7, 500, 1.6e5, 8e6, math.Sqrt(base), base * base},
			Make: func(v float64) *Hypothesis {
				f, d := f(v), maps.Clone(d)
				d["theta"], d["right"] = v, base
				h := t.wrong("rope_theta", fmt.Sprintf("turns by powers of %.6g, not of %.6g", v, base), d, func(s *reference.Spec) { s.Freqs = f })
				h.Fix = exponent(v, base)
				return h
			}}}
	}
	all := []*Hypothesis{wrong(detail{}, func(v float64) []float64 { return rescaled(freqs, base, v, dim) })}
	if p, ok := rope.Banded(freqs, base, dim); ok {
		all = append(all, unlikely(0.1, wrong(detail{"scaling": "by wavelength"}, func(v float64) []float64 {
			p := p
			p.Theta = v
			f, _ := rope.From(dim, p) // Banded has seen that it can be
			return f
		})))
	}
	return all
}

// exponent says that theta is right, and is raised to the half or the double power, if v is its root or its square.
func exponent(v, right float64) string {
	short := func(v float64) string {
		return strings.NewReplacer("e+0", "e", "e+", "e").Replace(fmt.Sprintf("%.6g", v))
	}
	switch ratio := math.Log(v) / math.Log(right); {
	case math.Abs(ratio-0.5) < 1e-3:
		return fmt.Sprintf("theta %s is the root of %s: the exponent is probably i/dim instead of 2i/dim.", short(v), short(right))
	case math.Abs(ratio-2) < 4e-3:
		return fmt.Sprintf("theta %s is the square of %s: the exponent is probably 4i/dim instead of 2i/dim.", short(v), short(right))
	}
	return ""
}

// style returns the other way to make pairs.
func (t turning) style(a graph.RoPEAttr) *Hypothesis {
	name, computed := "interleaved", "turns pairs (2i, 2i+1), not (i, i+d/2)"
	if a.Interleaved {
		name, computed = "half", "turns pairs (i, i+d/2), not (2i, 2i+1)"
	}
	return t.wrong("rope_style", computed, detail{"style": name}, func(s *reference.Spec) { s.Interleaved = !a.Interleaved })
}

// Sectioned reports whether n turns by positions of three parts.
func Sectioned(n *graph.Node) bool {
	a, ok := n.Attr.(graph.RoPEAttr)
	return ok && a.Sections != [3]int{}
}

// sections returns other parts of a position than each pair's own.
func (t turning) sections(a graph.RoPEAttr) []*Hypothesis {
	if !Sectioned(t.at) {
		return nil
	}
	order := "by turns"
	if a.Woven {
		order = "one run after another"
	}
	return []*Hypothesis{
		t.wrong("rope_sections", "turns only the pairs of time: height and width stay 0", detail{"parts": "time alone"}, func(s *reference.Spec) {
			s.Parts = func(p [3]int32) [3]int32 { return [3]int32{p[0], 0, 0} }
		}),
		t.wrong("rope_sections", "gives the sections their pairs "+order, detail{"order": order}, func(s *reference.Spec) { s.Woven = !a.Woven }),
		t.wrong("rope_sections", "gives height the pairs of width, and width those of height", detail{"order": "width before height"}, func(s *reference.Spec) {
			s.Parts = func(p [3]int32) [3]int32 { return [3]int32{p[0], p[2], p[1]} }
		}),
		t.wrong("rope_sections", "turns all pairs by where a row stands, as those of text", detail{"parts": "of text"}, func(s *reference.Spec) { s.Sections = [3]int{} }),
		t.wrong("rope_sections", "turns all pairs by the time", detail{"parts": "time for all"}, func(s *reference.Spec) {
			s.Parts = func(p [3]int32) [3]int32 { return [3]int32{p[0], p[0], p[0]} }
		}),
	}
}

// otherFactor returns a scaling by another factor than the model's: the slowest pair has all of
// it, and the others as large a part of it as they have in the model.
func (t turning) otherFactor(plain, freqs []float64) *Hypothesis {
	last := len(freqs) - 1
	right := plain[last] / freqs[last]
	return &Hypothesis{Cause: "rope_scaling", Node: t.at, Cost: 0.2, Fit: &Fit{Right: right, Least: 1.01, Most: 256, Guesses: []float64{2, 3, 4, 8, 16, 32, 64},
		Make: func(v float64) *Hypothesis {
			f := slices.Clone(freqs)
			for i := range f {
				part := (1 - freqs[i]/plain[i]) / (1 - 1/right)
				f[i] = plain[i] * (1 - part + part/v)
			}
			return t.wrong("rope_scaling", fmt.Sprintf("scales the frequencies by a factor of %.4g, not %.4g", v, right), detail{"factor": v, "right": right},
				func(s *reference.Spec) { s.Freqs = f })
		}}}
}

// otherKinds returns the frequencies of the model's other kinds of layers, or as many pairs as turn there.
func (p *Proposer) otherKinds(t turning, freqs []float64, dim int) []*Hypothesis {
	var all []*Hypothesis
	var seen [][]float64
	for _, x := range p.g.Nodes {
		if x.Op != graph.RoPE {
			continue
		}
		f := x.Attr.(graph.RoPEAttr).Freqs
		if slices.Equal(f, freqs) || slices.ContainsFunc(seen, func(y []float64) bool { return slices.Equal(y, f) }) {
			continue
		}
		seen = append(seen, f)
		if len(f) < x.Shape.Last()/2 && len(f) < len(freqs) {
			all = append(all, t.wrong("rope_factors", fmt.Sprintf("turns %d pairs of %d, as the factors of another kind of layers say", len(f), dim/2),
				detail{"factors": AnotherKind}, func(s *reference.Spec) { s.Freqs = freqs[:len(f)] }))
		}
		if len(f) <= dim/2 {
			cause := "rope_theta"
			theirs := x.Attr.(graph.RoPEAttr).Turning(x.Shape.Last())
			if math.Abs(Theta(f, theirs)/Theta(freqs, dim)-1) < 1e-6 {
				cause = "rope_scaling"
			}
			how := fmt.Sprintf("turns by %s, as %s, not by %s", Speeds(f, theirs), p.TurnedSo(f), Speeds(freqs, dim))
			all = append(all, t.wrong(cause, how, detail{"speeds": AnotherKind}, func(s *reference.Spec) { s.Freqs = f }))
		}
	}
	return all
}

// Speeds says in words by what pairs turn.
func Speeds(f []float64, dim int) string {
	if len(f) < 2 {
		return List(f)
	}
	base := Theta(f, dim)
	if how := fmt.Sprintf("theta %.6g", base); alike(f, rope.New(base, dim)[:min(len(f), dim/2)]) {
		return how + " without a scaling"
	} else if base > 1 {
		return how + " and a scaling"
	}
	return List(f)
}

// TurnedSo says which layers turn by such frequencies.
func (w *Wiring) TurnedSo(f []float64) string {
	var in []int
	sliding := true
	for _, x := range w.g.Nodes {
		switch a := x.Attr.(type) {
		case graph.RoPEAttr:
			if slices.Equal(a.Freqs, f) {
				in = Union(in, LayersOf(x))
			}
		case graph.AttentionAttr:
			sliding = sliding && (a.KV.Window > 0 || !slices.Contains(in, x.Layer))
		}
	}
	words := "layers"
	if sliding {
		words = "the sliding layers"
	}
	if len(in) == 1 {
		words = strings.TrimSuffix(words, "s")
	}
	for i, l := range in[:min(len(in), 6)] {
		words += []string{" ", ", "}[min(i, 1)] + fmt.Sprint(l)
	}
	if len(in) > 6 {
		words += ", ..."
	}
	return words + " should"
}

// Side returns what a rope node turns: queries or keys.
func Side(n *graph.Node) string {
	if Role(n) == "attn_k_rope" {
		return "keys"
	}
	return "queries"
}

// Theta returns the base of the powers that frequencies begin as. Most scalings leave the fastest
// pairs as they are, or all of them in proportion. Yarn's may begin at the second pair of a small head;
// then the slowest pairs have one factor. Longrope has a factor for each pair; the models that are
// published with it have the base of 1e4.
func Theta(freqs []float64, dim int) float64 {
	if len(freqs) < 2 {
		return 1e4
	}
	for _, i := range []int{0, len(freqs) - 2} {
		if base, ok := powersAt(freqs, i, dim); ok {
			return base
		}
	}
	return 1e4
}

// powersAt returns the round number whose powers are the frequencies of the i-th pair and the next one, up to a
// factor of both. Frequencies are rounded to float32, and so are the powers that they are compared with.
func powersAt(freqs []float64, i, dim int) (base float64, ok bool) {
	base = math.Pow(freqs[i]/freqs[i+1], float64(dim)/2)
	if !(base > 1 && base < 1e15) || i+1 >= dim/2 {
		return 0, false
	}
	unit := math.Pow(10, math.Floor(math.Log10(base))-2)
	base = math.Round(base/unit) * unit
	f := rope.New(base, dim)
	return base, math.Abs(f[i]/f[i+1]*freqs[i+1]/freqs[i]-1) < 1e-6
}

// rescaled returns the frequencies of another base with the same scaling.
func rescaled(freqs []float64, was, base float64, dim int) []float64 {
	a, b := rope.New(was, dim), rope.New(base, dim)
	f := make([]float64, len(freqs))
	for i := range f {
		if f[i] = b[i]; math.Abs(freqs[i]/a[i]-1) > 1e-5 {
			f[i] = float64(float32(freqs[i] / a[i] * b[i]))
		}
	}
	return f
}

func Times(f []float64, by float64) []float64 {
	y := slices.Clone(f)
	for i := range y {
		y[i] *= by
	}
	return y
}

func alike(a, b []float64) bool { return Alike(a, b, 1e-4) }

func Alike(a, b []float64, share float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > share*math.Abs(b[i]) {
			return false
		}
	}
	return true
}

// List returns the first of some numbers in words.
func List(x []float64) string {
	var words []string
	for _, v := range x[:min(len(x), 4)] {
		words = append(words, fmt.Sprintf("%.4g", v))
	}
	return strings.Join(words, ", ") + " ..."
}
