package diagnose

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// free holds the results of passes of the reference alone over a prompt.
type free struct {
	p             *prompt
	before, after float64 // mean KL of the engine's logits from the reference's, without and with the findings
	floor         float64 // mean KL of passes that differ in rounding
	err, noise    map[*graph.Node]float64
}

// closing says whether the findings that are built into a measurement's engine explain the logits.
type closing struct {
	m        *measurement
	frees    []*free
	shown    []Logits
	closure  Closure
	disputed bool // the golden record and the reference disagree
	inferred notes
}

// closeOn runs the reference without any of the engine's values: as the model says, and with the edits of m's
// engine built in. The rest of the logits' distance is unexplained.
func closeOn(m *measurement) (*closing, error) {
	r := &closing{m: m}
	order := slices.Clone(r.m.dump.prompts)
	sort.SliceStable(order, func(i, j int) bool { return order[i].tapped && !order[j].tapped })
	tokens := 0
	for i, p := range order {
		if err := r.m.dump.ctx.Err(); err != nil {
			return nil, err
		}
		if tokens += len(p.IDs); i > 0 && tokens > maxTokens {
			r.inferred.add("prompt %d was not run through the reference: %d tokens are enough", p.Index, maxTokens)
			continue
		}
		r.m.dump.progress("running the reference", i, len(order))
		f, err := r.free(p)
		if err != nil {
			return nil, err
		}
		r.frees = append(r.frees, f)
	}
	c := Closure{}
	n := 0.0
	for _, f := range r.frees {
		if f.p.known[r.m.dump.graph.Result()] == nil {
			continue
		}
		n++
		c.Before += lab.Number(f.before)
		c.After += lab.Number(f.after)
		c.Floor = max(c.Floor, lab.Number(f.floor))
	}
	if n > 0 {
		c.Before, c.After, c.Prompts = c.Before/lab.Number(n), c.After/lab.Number(n), int(n)
	}
	switch {
	case infinite(float64(c.Before + c.After)): // NaN explains nothing
		c.Unexplained = 1
	case c.Before > 0:
		c.Unexplained = min(1, max(0, (c.After-spread*c.Floor)/c.Before))
	}
	r.closure = c
	return r, nil
}

// isUnexplained reports whether a prompt's logits are not what the findings give.
func (r *closing) isUnexplained() bool {
	floor := leastKL
	for _, f := range r.frees {
		floor = max(floor, f.floor)
	}
	return slices.ContainsFunc(r.frees, func(f *free) bool { return !(f.after <= spread*floor) })
}

// free runs the reference over a prompt.
func (r *closing) free(p *prompt) (*free, error) {
	f := &free{p: p, err: map[*graph.Node]float64{}, noise: map[*graph.Node]float64{}}
	plain := p.eval(r.m.dump.model, nil, nil)
	result, rows := r.m.dump.graph.Result(), []int{len(p.IDs) - 1}
	if p.known[result] != nil {
		rows = p.rows(result)
	}
	edits := r.m.engine.edits.And(r.m.engine.choices[p])
	full := plain.With(edits) // of a class that rounds nothing
	if r.m.engine.class.isRounding() {
		full = p.eval(r.m.dump.model, nil, r.m.engine.class.center()).With(edits)
	}
	all := passes{plain, full, nil}
	for _, n := range r.ensemble() {
		all.arms = append(all.arms, p.eval(r.m.dump.model, nil, n).With(edits))
	}
	if p.tapped {
		if err := f.trajectory(r, all); err != nil {
			return nil, err
		}
	}
	want, closed, others, err := all.compute(result, rows)
	if err != nil {
		return nil, err
	}
	r.compareGolden(p, want, rows)
	for _, got := range others {
		f.floor = max(f.floor, meanKL(closed, got, result.Shape.Size()))
	}
	if p.known[result] != nil {
		got := p.read(result, rows)
		w := result.Shape.Size()
		f.before, f.after = meanKL(want, got, w), meanKL(closed, got, w)
		logits := p.placed[result]
		stored := &reference.Numerics{Jitter: logits.Step(), Random: rand.NewPCG(0, 12)}
		f.floor = max(f.floor, meanKL(closed, stored.Stored(closed), w))
		// As in noise, a few arms may miss the rounding of a prompt. A divergence is a distance's square.
		if far := f.after / f.least(); far > spread && far < borderline*borderline {
			for _, n := range r.m.engine.class.extraArms() {
				got, err := p.eval(r.m.dump.model, nil, n).With(edits).Compute(result, rows)
				if err != nil {
					return nil, err
				}
				f.floor = max(f.floor, meanKL(closed, got, w))
			}
		}
		if f.after > spread*f.least() && len(r.m.engine.edits) == 0 {
			noise := make([]float64, len(rows))
			for k := range rows {
				for _, other := range others {
					noise[k] = max(noise[k], r.m.distance(result, other[k*w:(k+1)*w], closed[k*w:(k+1)*w]), float32Step)
				}
			}
			_, best := r.m.exchange(p, result, full, all.arms, rows, upTo(0, len(rows)), got, noise)
			for _, e := range best {
				if y, err := e.Compute(result, rows); err == nil {
					f.after = min(f.after, meanKL(y, got, w))
				}
			}
		}
		r.shown = append(r.shown, r.logits(p, rows, want, got, f))
	}
	return f, nil
}

// passes are runs of the reference over a prompt: as the model says, with the findings, and with other roundings.
type passes struct {
	plain, full *reference.Eval
	arms        []*reference.Eval
}

// compute returns rows of n in each pass.
func (x passes) compute(n *graph.Node, rows []int) (want, closed []float64, others [][]float64, err error) {
	if want, err = x.plain.Compute(n, rows); err != nil {
		return nil, nil, nil, err
	}
	if closed, err = x.full.Compute(n, rows); err != nil {
		return nil, nil, nil, err
	}
	for _, arm := range x.arms {
		got, err := arm.Compute(n, rows)
		if err != nil {
			return nil, nil, nil, err
		}
		others = append(others, got)
	}
	return want, closed, others, nil
}

// compareGolden notes a golden record from which the reference's own logits lie farther away than the float32 pass
// of the engine that made the record: the record or the reference is wrong.
func (r *closing) compareGolden(p *prompt, want []float64, rows []int) {
	if r.m.dump.options.Golden == nil || slices.ContainsFunc(r.m.dump.graph.Nodes,
		func(n *graph.Node) bool { return len(n.W) > 0 && n.W[0].DType.Quantized() }) {
		return // a golden record has the unquantized weights
	}
	g := r.m.dump.options.Golden.Prompt(p.Index)
	if g == nil || g.Logits == nil || !slices.Equal(g.IDs, p.IDs) || g.Float32 == nil || !(g.Float32.MaxAbsDiff > 0) {
		return
	}
	placed, err := lab.Place(r.m.dump.graph, lab.NamesHF, &lab.Prompt{Index: g.Index, IDs: g.IDs, Logits: g.Logits})
	if err != nil || len(placed.Taps) != 1 {
		return
	}
	t := lab.Tap{Placed: placed.Taps[0]}
	first, n := t.Rows()
	w := t.Width
	got, largest := make([]float64, w), 0.0
	for i, row := range rows {
		if row >= first && row < first+n {
			t.Read(got, row)
			d, _ := lab.AbsDiff(want[i*w:(i+1)*w], got)
			largest = max(largest, d)
		}
	}
	if limit := goldenFloors * float64(g.Float32.MaxAbsDiff); largest > limit {
		r.disputed = true
		r.inferred.add("prompt %d: the reference's logits lie %.2g from the golden record's, whose own float32 pass "+
			"lies %.2g from it: one of the two is wrong", p.Index, largest, float64(g.Float32.MaxAbsDiff))
	}
}

// ensemble returns passes an engine of the class might make, with other orders of sums and other roundings.
// Where the class rounds more than float32, a pass without rounding joins: engines differ in where they round,
// and a float32 error may round a value to its other neighbour.
func (r *closing) ensemble() []*reference.Numerics {
	var all []*reference.Numerics
	for i, order := range []reference.Order{reference.Lanes, reference.Exact, reference.Forward} {
		n := r.m.engine.class.center()
		n.Order, n.Jitter, n.Random = order, 0x1p-23, rand.NewPCG(uint64(i), 11)
		all = append(all, n)
	}
	if r.m.engine.class.isRounding() {
		all = append(all, class{activations: "f64"}.center())
	}
	return all
}

// trajectory computes how far all taps lie from the reference's own run, and how far rounding alone takes them. All
// passes go layer by layer, so that no pass holds more than three layers.
func (f *free) trajectory(r *closing, all passes) error {
	for _, eq := range r.m.eqs {
		if err := r.m.dump.ctx.Err(); err != nil {
			return err
		}
		for _, e := range append([]*reference.Eval{all.plain, all.full}, all.arms...) {
			e.Forget(eq.target.Layer - 1) // rows outside the taps may yet read the sum before
		}
		k := f.p.known[eq.target]
		if k == nil {
			continue
		}
		first, n := k.Rows()
		rows := sample(first, n, maxRows)
		w := eq.target.Shape.Size()
		want, closed, others, err := all.compute(eq.target, rows)
		if err != nil {
			return err
		}
		f.err[eq.target] = worstRow(f.p.read(eq.target, rows), want, w)
		for _, got := range others {
			f.noise[eq.target] = max(f.noise[eq.target], worstRow(got, closed, w))
		}
	}
	return nil
}

func worstRow(got, want []float64, w int) float64 {
	worst := 0.0
	for i := 0; i < len(want); i += w {
		worst = max(worst, lab.RelativeL2(want[i:i+w], got[i:i+w]))
	}
	return worst
}

func meanKL(want, got []float64, w int) float64 {
	var sum float64
	for i := 0; i < len(want); i += w {
		sum += lab.KL(want[i:i+w], got[i:i+w])
	}
	return sum / float64(len(want)/w)
}

// logits compares the logits of some rows of a prompt for the report.
func (r *closing) logits(p *prompt, rows []int, want, got []float64, f *free) Logits {
	w := r.m.dump.graph.Result().Shape.Size()
	l := Logits{Prompt: p.Index, Text: p.Text, KLBefore: lab.Number(f.before), KLAfter: lab.Number(f.after),
		Positions: rows}
	n := len(want) / w
	for i := range n {
		a, b := want[i*w:(i+1)*w], got[i*w:(i+1)*w]
		l.ByPosition = append(l.ByPosition, lab.Number(lab.KL(a, b)))
		l.Cosine += lab.Number(lab.Cosine(a, b))
		l.Top1 += lab.Number(lab.Overlap(a, b, 1))
		l.Top10 += lab.Number(lab.Overlap(a, b, 10))
	}
	for _, mean := range []*lab.Number{&l.Cosine, &l.Top1, &l.Top10} {
		*mean /= lab.Number(n) // at the end: six sixths are less than 1
	}
	a, b := want[(n-1)*w:], got[(n-1)*w:]
	l.Reference, l.Engine = r.likeliest(a), r.likeliest(b)
	step := max(1, w/400)
	for i := 0; i < w; i += step {
		l.Scatter = append(l.Scatter, [2]lab.Number{lab.Number(a[i]), lab.Number(b[i])})
	}
	return l
}

func (r *closing) likeliest(logits []float64) []Token {
	tokens := []Token{}
	if slices.ContainsFunc(logits, func(v float64) bool { return v != v }) {
		return tokens
	}
	norm := lab.LogSumExp(logits)
	for _, id := range lab.TopIDs(logits, 10) {
		t := Token{ID: id, Probability: lab.Number(math.Exp(logits[id] - norm))}
		if r.m.dump.options.Asked != nil {
			t.Text = r.m.dump.options.Asked.Tokenizer.Decode([]int{id}, false)
		}
		tokens = append(tokens, t)
	}
	return tokens
}
