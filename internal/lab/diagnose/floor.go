package diagnose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/round"
)

// Floor is the error that a way of rounding makes in a model's numbers: the distance from
// float64 of a right engine. All values are rounded to float32
// at the end, as a dump holds them.
type Floor struct {
	Class   string     `json:"class"`   // what rounds: bf16, kv=f16 ...
	Meaning string     `json:"meaning"` // in words
	MeanKL  lab.Number `json:"kl_mean"` // of the logits, nats, over all positions
	MaxKL   lab.Number `json:"kl_max"`
	MaxDiff lab.Number `json:"max_abs_diff"` // of a logit
	Top1    lab.Number `json:"top1"`         // share of positions with the same likeliest token
	// by operation: relative error of the worst row, its inputs being float64's
	Ops map[string]lab.Number `json:"ops"`
}

// At most so many positions of a prompt are compared, from its end.
const (
	logitRows = 32
	opRows    = 8
)

// rounding is a class and an order of sums.
type rounding struct {
	name, meaning string
	class         class
	order         reference.Order
	jitter        float64
}

// roundings returns the roundings a model can show.
func roundings(g *graph.Graph) []rounding {
	all := []rounding{
		{"f64", "float64, dumped as float32", class{"f64", "f64", ""}, reference.Exact, 0},
		{"f32", "float32, sums in order", class{"f32", "f32", ""}, reference.Forward, 0},
		{"f32 reversed", "float32, sums from the end", class{"f32", "f32", ""}, reference.Backward, 0},
		{"f32 16 lanes", "float32, sums in 16 parts", class{"f32", "f32", ""}, reference.Lanes, 0},
		{"f32 jitter", "each value off by up to one unit of float32's last place", class{"f64", "f64", ""},
			reference.Exact, 0x1p-23},
		{"f16", "all values in binary16, sums in float32", class{"f16", "f16", ""}, reference.Lanes, 0},
		{"bf16", "all values in bfloat16, sums in float32", class{"bf16", "bf16", ""}, reference.Lanes, 0},
		{"q8", "products read rows as llama.cpp's do, by the weight's type; else float32", class{"q8", "f32", ""},
			reference.Lanes, 0},
	}
	quantized, gelu := false, false
	for _, n := range g.Nodes {
		quantized = quantized || slices.ContainsFunc(n.W, func(w *graph.Weight) bool {
			return n.Op != graph.Embed && w.CodeType().Quantized()
		})
		a, ok := n.Activates()
		gelu = gelu || ok && a.Act == graph.GELUTanh
	}
	if quantized {
		all = append(all, rounding{"i16_32",
			"products with quantized weights read rows as 16-bit integers, a scale for every 32; else float32",
			class{"i16_32", "f32", ""}, reference.Lanes, 0})
	}
	all = append(all,
		rounding{"kv=f16", "keys and values in binary16; else float64", class{"f64", "f16", ""}, reference.Exact, 0},
		rounding{"kv=bf16", "keys and values in bfloat16; else float64", class{"f64", "bf16", ""}, reference.Exact, 0})
	if gelu {
		all = append(all, rounding{"gelu=f16-table", "GELU by llama.cpp's table in binary16; else float64",
			class{"f64", "f64", string(round.F16Table)}, reference.Exact, 0})
	}
	return all
}

// numerics emulates the rounding, without what the diagnosis leaves to chance.
func (x rounding) numerics() *reference.Numerics {
	n := x.class.center()
	n.Order, n.Jitter, n.Random = x.order, x.jitter, rand.NewPCG(3, 7)
	if stored := round.Format(x.class.activations).Stored(); stored == round.F32 {
		n.Store = stored.Round
	}
	return n
}

// MeasureFloors runs prompts, token ids each, through the graph in float64 and in each
// class of rounding it can show. Logits are those of free runs; an operation's error
// is that of the operation alone. progress may be nil. It ends with ctx's error where that
// ends first.
func MeasureFloors(ctx context.Context, g *graph.Graph, prompts [][]int32,
	progress func(stage string, done, total int)) ([]Floor, error) {
	m := &meter{ctx: ctx, g: g, model: reference.Of(g), progress: progress, roundings: roundings(g)}
	m.total = len(prompts) * len(g.Nodes) * (1 + 2*len(m.roundings))
	m.sums = make([]floorSum, len(m.roundings))
	for i := range m.sums {
		m.sums[i].ops = map[string]lab.Number{}
	}
	for i, ids := range prompts {
		if err := checkIDs(g, ids); err != nil {
			return nil, fmt.Errorf("floor: prompt %d: %w", i, err)
		}
	}
	for i, ids := range prompts {
		m.stage = fmt.Sprintf("prompt %d, %d tokens", i, len(ids))
		if err := mmap.Guard(func() error { return m.prompt(ids) }); err != nil {
			return nil, err
		}
	}
	var floors []Floor
	for i, x := range m.roundings {
		s := &m.sums[i]
		n := max(s.positions, 1)
		floors = append(floors, Floor{x.name, x.meaning, lab.Number(s.kl / n), lab.Number(s.maxKL), lab.Number(s.diff),
			lab.Number(s.top1 / n), s.ops})
	}
	return floors, nil
}

// meter measures floors.
type meter struct {
	ctx         context.Context
	g           *graph.Graph
	model       *reference.Model
	progress    func(stage string, done, total int)
	stage       string
	done, total int // nodes
	roundings   []rounding
	sums        []floorSum
}

// floorSum sums the measurements of a class.
type floorSum struct {
	kl, maxKL, diff, top1, positions float64
	ops                              map[string]lab.Number
}

// checkIDs refuses a prompt the graph cannot compute.
func checkIDs(g *graph.Graph, ids []int32) error {
	if len(ids) == 0 {
		return errors.New("no token")
	}
	for _, n := range g.Nodes {
		if n.Op != graph.Embed {
			continue
		}
		for i, id := range ids {
			if rows := n.W[0].Rows(); id < 0 || int(id) >= rows {
				return fmt.Errorf("position %d: token %d, want 0 to %d", i, id, rows-1)
			}
		}
	}
	return nil
}

func (m *meter) prompt(ids []int32) error {
	exact, e := map[*graph.Node]reference.Known{}, m.model.Eval(ids, nil, nil)
	err := m.each(len(ids), func(n *graph.Node, rows []int) error {
		y, err := e.Compute(n, rows)
		exact[n] = rowsOf{n.Shape.Size(), rows[0], y}
		return err
	})
	if err != nil {
		return err
	}
	known := maps.Clone(exact)
	// experts' numbers are not to be rounded
	maps.DeleteFunc(known, func(n *graph.Node, _ reference.Known) bool { return n.Op == graph.Route })
	for i, x := range m.roundings {
		s := &m.sums[i]
		free, pull := m.model.Eval(ids, nil, x.numerics()), m.model.Eval(ids, known, x.numerics())
		err := m.each(len(ids), func(n *graph.Node, rows []int) error {
			y, err := free.Compute(n, rows)
			if err == nil && n == m.g.Result() {
				s.addLogits(exact[n].(rowsOf).data, y, n.Shape.Size(), len(rows))
			}
			return err
		})
		if err != nil {
			return err
		}
		err = m.each(len(ids), func(n *graph.Node, rows []int) error {
			if n.Op == graph.View || n.Op == graph.Rows {
				return nil // without arithmetic
			}
			rows = rows[max(0, len(rows)-opRows):]
			y, err := pull.Compute(n, rows)
			if err == nil {
				s.addOp(exact[n].(rowsOf), y, rows, opName(n))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each calls do for the nodes that have values, in the graph's order, with the positions
// of a prompt of that many that are needed: behind the layers the last ones.
func (m *meter) each(positions int, do func(n *graph.Node, rows []int) error) error {
	behind := 0
	for _, n := range m.g.Nodes {
		if n.Layer >= 0 {
			behind = n.ID + 1
		}
	}
	rows := upTo(0, positions)
	for _, n := range m.g.Nodes {
		if err := m.ctx.Err(); err != nil {
			return err
		}
		if m.progress != nil {
			m.progress(m.stage, m.done, m.total)
		}
		m.done++
		if n.ID == behind {
			rows = rows[max(0, positions-logitRows):]
		}
		if n.Op == graph.StoreKV {
			continue
		}
		if err := do(n, rows); err != nil {
			return err
		}
	}
	return nil
}

// addLogits adds n positions' logits [n, w], rounded as a dump holds them.
func (s *floorSum) addLogits(want, got []float64, w, n int) {
	round.F32.Round(got)
	for i := range n {
		a, b := want[i*w:(i+1)*w], got[i*w:(i+1)*w]
		kl := lab.KL(a, b)
		s.kl, s.maxKL = s.kl+kl, max(s.maxKL, kl)
		s.top1 += lab.Overlap(a, b, 1)
		s.positions++
		for j, v := range a {
			s.diff = max(s.diff, math.Abs(b[j]-v))
		}
	}
}

// addOp adds rows of what an operation gives.
func (s *floorSum) addOp(exact rowsOf, got []float64, rows []int, op string) {
	round.F32.Round(got)
	for i, row := range rows {
		w := exact.width
		at := (row - exact.first) * w
		s.ops[op] = max(s.ops[op], lab.Number(lab.RelativeL2(exact.data[at:at+w], got[i*w:(i+1)*w])))
	}
}
