package mistake

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// turning is the ropes that a hypothesis is about: of queries and keys alike, or of a single side.
type turning struct {
	at    *graph.Node
	nodes []*graph.Node
	cost  float64
	side  string // queries or keys, for a single side
}

// turnings returns the ropes that hypotheses at n are about: those of queries and keys alike, and n's own. Of the
// layer whose keys another reads, the keys alone are at stake. Long equations do not ask for each side, unless
// p.Alone is set.
func (p *Proposer) turnings(n *graph.Node) (all []turning) {
	ropes := p.Rotations(n)
	if !p.Alone && isOuterRope(p, n) && (n == ropes[0] || len(p.Span) > small && !slices.Contains(p.Span, ropes[0])) {
		all = append(all, turning{at: n, nodes: ropes})
	}
	if len(ropes) > 1 && (p.Alone || isOuterRope(p, n) && len(p.Span) <= small) {
		all = append(all, turning{at: n, nodes: []*graph.Node{n}, cost: 0.3, side: side(n)})
	}
	return all
}

// isOuterRope reports whether n is the first or the last rope of its layer.
func isOuterRope(p *Proposer, n *graph.Node) bool {
	ropes := p.Rotations(n)
	return n == ropes[0] || n == ropes[len(ropes)-1]
}

// turns reports whether n is a rope that turns anything.
func turns(_ *site, n *graph.Node) bool {
	a, ok := n.Attr.(graph.RoPEAttr)
	return ok && slices.ContainsFunc(a.Freqs, func(f float64) bool { return f != 0 })
}

// turned returns the forms of a mistake of ropes that f lists for each turning.
func turned(f func(p *Proposer, t turning) []*Hypothesis) forms {
	return func(p *Proposer, n *graph.Node) (all []*Hypothesis) {
		for _, t := range p.turnings(n) {
			all = append(all, f(p, t)...)
		}
		return all
	}
}

// turnedBy returns the form of a mistake by which all ropes of a turning are edited.
func turnedBy(computed string, e reference.Edit) forms {
	return turned(func(_ *Proposer, t turning) []*Hypothesis { return []*Hypothesis{t.wrong(computed, detail{}, e)} })
}

// wrong makes the hypothesis that all ropes of t turn otherwise.
func (t turning) wrong(computed string, d detail, change reference.Edit) *Hypothesis {
	if t.side != "" {
		computed += ", " + t.side + " alone"
		d = maps.Clone(d)
		d["side"] = t.side
	}
	h := unlikely(t.cost, edited(t.at, computed, d, reference.Edits{}))
	for _, x := range t.nodes {
		h.Edits[x] = []reference.Edit{change}
	}
	return h
}

// frequencies returns the speeds of t's pairs, how many features turn, and the features of a head.
func (t turning) frequencies() (freqs []float64, dim, whole int) {
	attr, whole := t.at.Attr.(graph.RoPEAttr), t.at.Shape.Last()
	return attr.Freqs, attr.Turning(whole), whole
}

// speed makes the pairs of a rope turn by other speeds.
func speed(f []float64) reference.Edit { return func(s *reference.Spec) { s.Rope.Freqs = f } }

// positioned makes a rope turn by other positions, of three parts.
func positioned(at func(e *reference.Eval, row int, own [3]int32) [3]int32) reference.Edit {
	return func(s *reference.Spec) { s.Rope.Pos = at }
}

// turnsAt makes a rope turn by other positions, of one part.
func turnsAt(at func(e *reference.Eval, row int) int) reference.Edit {
	return positioned(func(e *reference.Eval, row int, _ [3]int32) [3]int32 {
		p := int32(at(e, row))
		return [3]int32{p, p, p}
	})
}

// otherStyles lists the other way to make pairs.
func otherStyles(_ *Proposer, t turning) []*Hypothesis {
	name, computed := "interleaved", "turns pairs (2i, 2i+1), not (i, i+d/2)"
	interleaved := t.at.Attr.(graph.RoPEAttr).Interleaved
	if interleaved {
		name, computed = "half", "turns pairs (i, i+d/2), not (2i, 2i+1)"
	}
	return []*Hypothesis{t.wrong(computed, detail{"style": name},
		func(s *reference.Spec) { s.Rope.Interleaved = !interleaved })}
}

// backwards lists ropes with the sign of the sine turned.
func backwards(_ *Proposer, t turning) []*Hypothesis {
	freqs, _, _ := t.frequencies()
	return []*Hypothesis{t.wrong("turns the other way: the sine has the other sign", detail{},
		speed(Times(freqs, -1)))}
}

// otherMagnitudes lists ropes with another factor of their cosines and sines. Where they have none, the factor of the
// model's scaling may lie in the scale of scores, as in latent attention: then an engine may multiply by both. Any
// other factor is asked for where no attention lies between rope and its tap.
func otherMagnitudes(p *Proposer, t turning) []*Hypothesis {
	right := cmp.Or(t.at.Attr.(graph.RoPEAttr).Magnitude, 1)
	f := Fit{Right: right, Least: 0.1, Most: 10, Make: func(v float64) *Hypothesis {
		computed := fmt.Sprintf("turns with a magnitude of %.6g, not %.6g", v, right)
		if v == 1 {
			computed = fmt.Sprintf("turns without the magnitude of %.6g", right)
		}
		if v <= 0 {
			return nil
		}
		return t.wrong(computed, detail{"magnitude": v, "right": right},
			func(s *reference.Spec) { s.Rope.Magnitude = v })
	}}
	freqs, dim, _ := t.frequencies()
	plain, scaled := t.isScaled()
	switch _, isUniform := t.inverted(); {
	case right != 1:
		f.Guesses = []float64{1}
	case scaled && !isUniform: // a scaling of all pairs has no magnitude
		if _, ok := rope.Banded(freqs, Theta(freqs, dim), dim); !ok {
			times := 0.1 * math.Log(plain[len(plain)-1]/freqs[len(freqs)-1])
			f.Guesses = []float64{1 + times, 1 + 0.707*times}
		}
	}
	// Where unturned features lie beside, a magnitude is no scale of scores.
	isBeside := slices.ContainsFunc(p.Readers(t.at), func(x *graph.Node) bool { return x.Op == graph.Concat })
	if !isBeside && slices.ContainsFunc(p.Span, func(x *graph.Node) bool { return x.Op == graph.Attention }) {
		var all []*Hypothesis
		for _, v := range f.Guesses {
			all = append(all, f.Make(v))
		}
		return all
	}
	return []*Hypothesis{unlikely(0.3, fitting(t.at, f))}
}

// otherSections lists other parts of a position than each pair's own.
func otherSections(p *Proposer, t turning) (all []*Hypothesis) {
	if !Sectioned(t.at) {
		return nil
	}
	woven, order := t.at.Attr.(graph.RoPEAttr).Woven, "by turns"
	if woven {
		order = "one run after another"
	}
	parts := func(computed string, d detail, change func(p [3]int32) [3]int32) {
		all = append(all, t.wrong(computed, d,
			positioned(func(_ *reference.Eval, _ int, p [3]int32) [3]int32 { return change(p) })))
	}
	if !p.isTower() { // whose patches have no time
		parts("turns only the pairs of time: height and width stay 0", detail{"parts": "time alone"},
			func(p [3]int32) [3]int32 { return [3]int32{p[0], 0, 0} })
		parts("turns all pairs by the time", detail{"parts": "time for all"},
			func(p [3]int32) [3]int32 { return [3]int32{p[0], p[0], p[0]} })
	}
	all = append(all, t.wrong("gives the sections their pairs "+order, detail{"order": order},
		func(s *reference.Spec) { s.Rope.Woven = !woven }))
	parts("gives height the pairs of width, and width those of height", detail{"order": "width before height"},
		func(p [3]int32) [3]int32 { return [3]int32{p[0], p[2], p[1]} })
	all = append(all, t.wrong("turns all pairs by where a row stands, as those of text", detail{"parts": "of text"},
		func(s *reference.Spec) { s.Rope.Sections = [3]int{} }))
	return all
}

// Sectioned reports whether n turns by positions of three parts.
func Sectioned(n *graph.Node) bool {
	a, ok := n.Attr.(graph.RoPEAttr)
	return ok && a.Sections != [3]int{}
}

// otherParts lists ropes that turn more or fewer features or pairs of a head.
func otherParts(_ *Proposer, t turning) (all []*Hypothesis) {
	freqs, dim, whole := t.frequencies()
	if len(freqs) == 0 {
		return nil
	}
	base := Theta(freqs, dim)
	plain := rope.New(base, dim)
	features := func(count int) reference.Edit {
		return func(s *reference.Spec) { s.Rope.Freqs, s.Rope.Part = rope.New(base, count), count%whole }
	}
	if dim < whole {
		all = append(all, t.wrong(fmt.Sprintf("turns all %d features of a head, not %d", whole, dim),
			detail{"part": 1.0}, features(whole)),
			t.wrong(fmt.Sprintf("turns %d features of a head at the speeds of all %d", dim, whole),
				detail{"speeds": "of the whole head"}, speed(rope.New(base, whole)[:len(freqs)])))
	}
	if len(freqs) < dim/2 {
		all = append(all, t.wrong("turns all pairs, though some are left out", detail{"pairs": "all"}, speed(plain)))
	}
	for _, part := range []float64{0.25, 0.5, 0.75} {
		if count := int(part*float64(whole)) / 2 * 2; count != dim {
			all = append(all, unlikely(0.3, t.wrong(fmt.Sprintf("turns the first %d of %d features", count, whole),
				detail{"part": part}, features(count))))
		}
		if count := int(part * float64(dim/2)); count != len(freqs) {
			some := plain
			if count < len(freqs) {
				some = freqs
			}
			all = append(all, unlikely(0.4, t.wrong(fmt.Sprintf("turns the first %d of %d pairs", count, dim/2),
				detail{"pairs": part}, speed(some[:count]))))
		}
	}
	return all
}

// isScaled reports whether the speeds are not the powers of their base, and returns those.
func (t turning) isScaled() (plain []float64, scaled bool) {
	freqs, dim, _ := t.frequencies()
	if len(freqs) == 0 || len(freqs) != dim/2 {
		return nil, false
	}
	plain = rope.New(Theta(freqs, dim), dim)
	return plain, !alike(plain, freqs)
}

// still is the factor in GGUF files of pairs that do not turn, as llama.cpp's converter writes it.
const still = float64(float32(1e30))

// otherFactors lists ropes whose factors by pair multiply where they should divide, and ropes with the factors of
// another kind of layers. Inverted factors that are equal in all pairs are a scaling.
func otherFactors(p *Proposer, t turning) (all []*Hypothesis) {
	freqs, dim, _ := t.frequencies()
	if h, isScaling := t.inverted(); h != nil && !isScaling {
		all = append(all, h)
	}
	if len(freqs) < 2 {
		return all
	}
	if len(freqs) < dim/2 {
		all = append(all, t.wild(freqs)...)
	}
	for _, x := range p.otherKinds(freqs) {
		a := x.Attr.(graph.RoPEAttr)
		plain := rope.New(Theta(a.Freqs, a.Turning(x.Shape.Last())), a.Turning(x.Shape.Last()))
		divided, multiplied := slices.Clone(freqs), slices.Clone(freqs)
		for i, f := range a.Freqs[:min(len(a.Freqs), len(freqs))] {
			if by := plain[i] / f; math.Abs(by-1) > 1e-3 {
				divided[i], multiplied[i] = float64(float32(freqs[i]/by)), float64(float32(freqs[i]*by))
			}
		}
		computed := "turns with the factors of another kind of layers"
		switch moving := len(a.Freqs); {
		case moving < min(len(freqs), len(plain)):
			all = append(all, t.wrong(fmt.Sprintf("turns %d pairs of %d, as the factors of another kind of layers say",
				moving, dim/2), detail{"factors": AnotherKind}, speed(divided[:moving])))
			if len(freqs) == dim/2 {
				all = append(all, t.wild(multiplied[:moving])...)
			}
		case moving == len(plain) && !isUniform(a.Freqs, plain):
			all = append(all, t.wrong(computed, detail{"factors": AnotherKind}, speed(divided)),
				t.wrong(computed+", multiplied", detail{"factors": "inverse of another kind"}, speed(multiplied)))
		}
	}
	return all
}

// wild returns forms of t that multiply the pairs past freqs by a factor of still. Only the rounding is left of such
// angles, so each way to round a speed or an angle is another form. An engine's sine may fail there.
func (t turning) wild(freqs []float64) (all []*Hypothesis) {
	right, dim, _ := t.frequencies()
	base, from := Theta(right, dim), len(freqs)
	narrow := func(v float64) float64 { return float64(float32(v)) }
	magnitude := cmp.Or(t.at.Attr.(graph.RoPEAttr).Magnitude, 1)
	form := func(rounding string, angle func(pos, i int) float64) {
		rest := func(pos, i int) (cos, sin float64) {
			sin, cos = math.Sincos(angle(pos, i)) // of infinity NaN
			if rounding == failed && pos > 0 {
				sin, cos = 0, 0
			}
			return narrow(narrow(cos) * magnitude), narrow(narrow(sin) * magnitude)
		}
		all = append(all, t.wrong(fmt.Sprintf("multiplies by the factors that divide frequencies: pairs from %d on "+
			"turn %.0e times as fast", from, still), detail{"factors": "multiplied", "rounding": rounding},
			func(s *reference.Spec) { s.Rope.Freqs, s.Rope.Rest = freqs, rest }))
	}
	power := func(exponent float64) float64 { return narrow(math.Pow(base, exponent)) }
	nearest, short := make([]float64, dim/2), make([]float64, dim/2)
	for i := range nearest {
		exponent := -float64(2*i) / float64(dim)
		nearest[i], short[i] = power(exponent), power(narrow(exponent))
	}
	for i, f := range [][]float64{rope.New(base, dim), nearest, short} {
		name := []string{"divided", "nearest", "float32"}[i]
		form(name, func(pos, i int) float64 { return narrow(float64(pos) * narrow(f[i]*still)) })
		form(name+", angles", func(pos, i int) float64 { return narrow(narrow(float64(pos)*f[i]) * still) })
	}
	form("chained", func(pos, i int) float64 { // as ggml: from pair to pair
		angle := float64(pos)
		for range i {
			angle = narrow(angle * power(narrow(-2/float64(dim))))
		}
		return narrow(angle * still)
	})
	form(failed, func(int, int) float64 { return 0 })
	form("overflow", func(int, int) float64 { return math.Inf(1) })
	return all
}

// failed is the rounding of a sine and a cosine giving 0 for large angles.
const failed = "no sine"

// inverted returns t with frequencies multiplied by the factors that divide them, nil if there are none. isScaling
// reports whether a single factor is for all pairs.
func (t turning) inverted() (h *Hypothesis, isScaling bool) {
	plain, scaled := t.isScaled()
	if !scaled {
		return nil, false
	}
	freqs := t.at.Attr.(graph.RoPEAttr).Freqs
	inverse := slices.Clone(freqs)
	for i, f := range plain {
		inverse[i] = float64(float32(f * f / freqs[i]))
	}
	return t.wrong("multiplies the frequencies by the factors that divide them", detail{"factors": "inverse"},
		speed(inverse)), isUniform(freqs, plain)
}

// isUniform reports whether a single factor divides all of plain.
func isUniform(freqs, plain []float64) bool {
	return Alike(Times(freqs, plain[0]/freqs[0]), plain, 1e-3)
}

// otherScalings lists ropes without their scaling, with another, and with another kind of layers' scaling.
func otherScalings(p *Proposer, t turning) (all []*Hypothesis) {
	freqs, _, _ := t.frequencies()
	if len(freqs) == 0 {
		return nil
	}
	if plain, scaled := t.isScaled(); scaled {
		all = append(all,
			t.wrong("turns without the scaling of the frequencies", detail{"scaling": "none"}, speed(plain)),
			t.otherFactor(plain, freqs))
		if h, isScaling := t.inverted(); isScaling {
			all = append(all, h)
		}
	}
	for _, factor := range []float64{2, 4, 8, 16, 32} {
		all = append(all, t.wrong(fmt.Sprintf("turns %g times as fast", factor), detail{"speed": factor},
			speed(Times(freqs, factor))),
			t.wrong(fmt.Sprintf("turns at 1/%g of the speed", factor), detail{"speed": 1 / factor},
				speed(Times(freqs, 1/factor))))
	}
	return append(all, otherSpeeds(p, t, true)...)
}

// otherFactor returns a scaling by another factor than the model's: the slowest pair has all of
// it, and the others as large a part of it as they have in the model.
func (t turning) otherFactor(plain, freqs []float64) *Hypothesis {
	last := len(freqs) - 1
	right := plain[last] / freqs[last]
	return unlikely(0.2, fitting(t.at, Fit{Right: right, Least: 1.01, Most: 256,
		Guesses: []float64{2, 3, 4, 8, 16, 32, 64}, Make: func(v float64) *Hypothesis {
			f := slices.Clone(freqs)
			for i := range f {
				part := (1 - freqs[i]/plain[i]) / (1 - 1/right)
				f[i] = plain[i] * (1 - part + part/v)
			}
			return t.wrong(fmt.Sprintf("scales the frequencies by a factor of %.4g, not %.4g", v, right),
				detail{"factor": v, "right": right}, speed(f))
		}}))
}

// otherBases lists powers of another base. A scaling divides the same pairs as in the model, or, if it is one by
// wavelengths, the pairs of these wavelengths.
func otherBases(p *Proposer, t turning) []*Hypothesis {
	freqs, dim, _ := t.frequencies()
	if len(freqs) == 0 {
		return nil
	}
	base := Theta(freqs, dim)
	wrong := func(d detail, f func(v float64) []float64) *Hypothesis {
		return unlikely(0.3, fitting(t.at, Fit{Right: base, Least: 50, Most: 1e9,
			Guesses: []float64{1e4, 1e5, 5e5, 1e6, 1e7, 500, 1.6e5, 8e6, math.Sqrt(base), base * base},
			Make: func(v float64) *Hypothesis {
				d := maps.Clone(d)
				d["theta"], d["right"] = v, base
				h := t.wrong(fmt.Sprintf("turns by powers of %.6g, not of %.6g", v, base), d, speed(f(v)))
				h.Fix = exponent(v, base)
				return h
			}}))
	}
	all := append(otherSpeeds(p, t, false),
		wrong(detail{}, func(v float64) []float64 { return rescaled(freqs, base, v, dim) }))
	if p, ok := rope.Banded(freqs, base, dim); ok {
		all = append(all, unlikely(0.1, wrong(detail{"scaling": "by wavelength"}, func(v float64) []float64 {
			p := p
			p.Theta = v
			r, _ := rope.Resolve(dim, p) // Banded has seen that it can be
			return r.Freqs
		})))
	}
	return all
}

// otherKinds returns the frequencies of the model's other kinds of layers, each with a rope that has them.
func (p *Proposer) otherKinds(freqs []float64) func(yield func([]float64, *graph.Node) bool) {
	return func(yield func([]float64, *graph.Node) bool) {
		seen := [][]float64{freqs}
		for _, x := range p.g.Nodes {
			if x.Op != graph.RoPE || len(freqs) == 0 {
				continue
			}
			f := x.Attr.(graph.RoPEAttr).Freqs
			if slices.ContainsFunc(seen, func(y []float64) bool { return slices.Equal(y, f) }) {
				continue
			}
			if seen = append(seen, f); !yield(f, x) {
				return
			}
		}
	}
}

// otherSpeeds lists the speeds of other kinds of layers: of the same base, or of another.
func otherSpeeds(p *Proposer, t turning, isBase bool) (all []*Hypothesis) {
	freqs, dim, _ := t.frequencies()
	for f, x := range p.otherKinds(freqs) {
		theirs := x.Attr.(graph.RoPEAttr).Turning(x.Shape.Last())
		if len(f) <= dim/2 && (math.Abs(Theta(f, theirs)/Theta(freqs, dim)-1) < 1e-6) == isBase {
			how := fmt.Sprintf("turns by %s, as %s, not by %s", Speeds(f, theirs), p.TurnedSo(f), Speeds(freqs, dim))
			all = append(all, t.wrong(how, detail{"speeds": AnotherKind}, speed(f)))
		}
	}
	return all
}

// shiftedRopes lists positions of a rope that are all off by a number. Where attention lies between the node and its
// tap only small numbers are tried: each costs a run of attention.
func shiftedRopes(p *Proposer, n *graph.Node) []*Hypothesis {
	if p.Alone || !isOuterRope(p, n) {
		return nil
	}
	f := Fit{Least: -64, Most: 64, Integer: true, Guesses: []float64{-3, -2, -1, 1, 2, 3, 4},
		Make: func(v float64) *Hypothesis {
			if v == 0 {
				return nil
			}
			return edit(n, fmt.Sprintf("turns %s by positions that are off by %+g", side(n), v),
				detail{"shift": v, "side": side(n)}, func(s *reference.Spec) { s.Shift = int(v) })
		}}
	if !slices.ContainsFunc(p.Span, func(x *graph.Node) bool { return x.Op == graph.Attention }) {
		return []*Hypothesis{unlikely(0.2, fitting(n, f))}
	}
	var all []*Hypothesis
	for _, v := range f.Guesses {
		all = append(all, unlikely(0.2, f.Make(v)))
	}
	return all
}

// otherPositions lists wrong positions, by no constant: of a slot in a ring, without a first token, and decoded
// tokens that are counted otherwise; then positions that are off by a number.
func otherPositions(p *Proposer, n *graph.Node) []*Hypothesis {
	return append(turned(uncountedPositions)(p, n), shiftedRopes(p, n)...)
}

func uncountedPositions(p *Proposer, t turning) (all []*Hypothesis) {
	if Sectioned(t.at) {
		return nil
	}
	wrong := func(name, computed string, at func(e *reference.Eval, row int) int) {
		all = append(all, unlikely(0.1, t.wrong(computed, detail{"position": name}, turnsAt(at))))
	}
	var windows []int // that a tapped prompt is longer than
	for _, n := range p.g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && a.KV.Window > 0 && p.Longest > a.KV.Window {
			windows = Union(windows, []int{a.KV.Window})
		}
	}
	for _, w := range windows {
		wrong(fmt.Sprintf("modulo %d", w), fmt.Sprintf("turns by the slot in a ring of %d, not by the position", w),
			func(_ *reference.Eval, row int) int { return row % w })
	}
	wrong("without the first", "does not count the first token: the second has its position",
		func(_ *reference.Eval, row int) int { return max(row-1, 0) })
	if !p.Decodes {
		return all
	}
	for _, c := range []struct {
		name, computed string
		at             func(row, start int) int
	}{
		{"decoded from 0", "counts the decoded tokens from 0", func(row, start int) int { return row - start }},
		{"decoded one more", "turns decoded tokens by the position after their own",
			func(row, _ int) int { return row + 1 }},
		{"decoded one less", "turns decoded tokens by the position before their own",
			func(row, _ int) int { return max(row-1, 0) }},
	} {
		wrong(c.name, c.computed, func(e *reference.Eval, row int) int {
			if start := p.Prefilled(e); row >= start {
				return c.at(row, start)
			}
			return row
		})
	}
	return all
}

// rootOfBase returns the root of the base: the exponent is i/dim instead of 2i/dim.
func rootOfBase(_ *Proposer, t turning) []*Hypothesis {
	freqs, dim, whole := t.frequencies()
	if 2*dim == whole || len(freqs) < 2 {
		return nil // these are the speeds of the whole head, which is rope_partial
	}
	base := Theta(freqs, dim)
	return []*Hypothesis{t.wrong(fmt.Sprintf("turns by powers of the root of %.6g", base), detail{"built": "root"},
		speed(rescaled(freqs, base, math.Sqrt(base), dim)))}
}

// slowed returns speeds that are divided by a number, a linear scaling that the model does not have.
func slowed(_ *Proposer, t turning) (all []*Hypothesis) {
	freqs, _, _ := t.frequencies()
	for _, by := range []float64{2, 3, 4, 8, 16, 32} {
		all = append(all, t.wrong(fmt.Sprintf("turns at 1/%g of the speed", by), detail{"slowed": by},
			speed(Times(freqs, 1/by))))
	}
	return all
}

// slot is the value of rope_position that turns by the place in a ring of the window's size.
const slot = "slot"

// ringSlot turns queries or keys by the slot in a ring of the layer's window.
func ringSlot(p *Proposer, n *graph.Node) []*Hypothesis {
	for _, a := range p.g.Nodes {
		if a.Op == graph.Attention && a.Layer == n.Layer {
			w := window(a)
			if w == 0 || Sectioned(n) {
				break
			}
			return []*Hypothesis{built(n, "slot", fmt.Sprintf("turns by the position modulo %d", w),
				turnsAt(func(_ *reference.Eval, row int) int { return row % w }))}
		}
	}
	return nil
}

// exponent says that theta is right, and is raised to the half or the double power, if v is its root or its square.
func exponent(v, right float64) string {
	short := func(v float64) string {
		return strings.NewReplacer("e+0", "e", "e+", "e").Replace(fmt.Sprintf("%.6g", v))
	}
	switch ratio := math.Log(v) / math.Log(right); {
	case math.Abs(ratio-0.5) < 1e-3:
		return fmt.Sprintf("theta %s is the root of %s: the exponent is probably i/dim instead of 2i/dim.", short(v),
			short(right))
	case math.Abs(ratio-2) < 4e-3:
		return fmt.Sprintf("theta %s is the square of %s: the exponent is probably 4i/dim instead of 2i/dim.", short(v),
			short(right))
	}
	return ""
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

// side returns what a rope node turns: queries or keys.
func side(n *graph.Node) string {
	if strings.HasSuffix(Role(n), "k_rope") {
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
