package lab

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// Stats describes some values. Min to MaxAbs are of the finite ones, NaN if there are none.
type Stats struct {
	Values int64  `json:"values"`
	Min    Number `json:"min"`
	Max    Number `json:"max"`
	Mean   Number `json:"mean"`
	RMS    Number `json:"rms"` // root of the mean square
	MaxAbs Number `json:"max_abs"`
	Zeros  int64  `json:"zeros"`
	NaN    int64  `json:"nan"`
	Inf    int64  `json:"inf"`
}

// tally gathers Stats.
type tally struct {
	values, zeros, nan, inf int64
	min, max, sum, squares  float64
}

func (t *tally) add(x float64) {
	t.values++
	switch {
	case x != x:
		t.nan++
		return
	case math.IsInf(x, 0):
		t.inf++
		return
	case x == 0:
		t.zeros++
	}
	if t.finite() == 1 {
		t.min, t.max = x, x
	}
	t.min, t.max = min(t.min, x), max(t.max, x)
	t.sum += x
	t.squares += float64(x * x)
}

func (t *tally) finite() int64 { return t.values - t.nan - t.inf }

func (t *tally) stats() Stats {
	s := Stats{Values: t.values, Zeros: t.zeros, NaN: t.nan, Inf: t.inf}
	n := float64(t.finite())
	if n == 0 {
		none := Number(math.NaN())
		s.Min, s.Max, s.Mean, s.RMS, s.MaxAbs = none, none, none, none, none
		return s
	}
	s.Min, s.Max, s.MaxAbs = Number(t.min), Number(t.max), Number(max(-t.min, t.max))
	s.Mean, s.RMS = Number(t.sum/n), Number(math.Sqrt(t.squares/n))
	return s
}

// NodeStats describes what a node of the graph has computed, over all prompts.
type NodeStats struct {
	Name  string `json:"name"`
	HF    string `json:"hf,omitempty"` // PyTorch's name of the value
	Op    string `json:"op"`
	Layer int    `json:"layer"` // -1 outside the layers
	Shape []int  `json:"shape"` // of a row
	Rows  int    `json:"rows"`
	Stats
}

// ErrNoNode reports that no node has the name.
var ErrNoNode = errors.New("no node of the graph matches")

// statsBytes bounds the logits a run for statistics has at a time.
const statsBytes = 16 << 20

// MeasureNodes computes prompts of ids, of at most context tokens, and describes the values of the
// nodes that match. No matching node is an error.
func MeasureNodes(ctx context.Context, g *graph.Graph, b backend.Backend, context int, prompts [][]int32,
	match func(n *graph.Node) bool) ([]NodeStats, error) {
	want := func(n *graph.Node) bool { return n.Op != graph.StoreKV && match(n) }
	if !slices.ContainsFunc(g.Nodes, want) {
		return nil, ErrNoNode
	}
	seen, rows := map[*graph.Node]*tally{}, map[*graph.Node]int{}
	e, err := model.Compile(ctx, g, b, engine.Options{Context: context, Private: true, Want: want,
		Tap: func(n *graph.Node, out []float32) {
			t := seen[n]
			if t == nil {
				t = &tally{}
				seen[n] = t
			}
			rows[n] += len(out) / n.Shape.Size()
			for _, x := range out {
				t.add(float64(x))
			}
		}})
	if err != nil {
		return nil, fmt.Errorf("stats: %w", err)
	}
	defer e.Close()
	piece := max(1, statsBytes/(4*e.VocabSize()))
	pooled := slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Op == graph.Pool })
	for i, ids := range prompts {
		if err := feedAll(ctx, e, ids, piece, pooled); err != nil {
			return nil, fmt.Errorf("stats: prompt %d: %w", i, err)
		}
	}
	var all []NodeStats
	for _, n := range g.Nodes {
		if t := seen[n]; t != nil {
			all = append(all, NodeStats{n.Name, n.HF, n.Op.String(), n.Layer, slices.Clone(n.Shape),
				rows[n], t.stats()})
		}
	}
	return all, nil
}

// feedAll computes a prompt with the logits of every position, in pieces, or of the last one where rows are pooled.
func feedAll(ctx context.Context, e *engine.Engine, ids []int32, piece int, pooled bool) error {
	s := e.NewSequence()
	defer s.Close()
	if pooled {
		_, err := s.Feed(ctx, ids, 1)
		return err
	}
	for part := range slices.Chunk(ids, piece) {
		if _, err := s.Feed(ctx, part, len(part)); err != nil {
			return err
		}
	}
	return nil
}

// WeightStats describes a weight.
type WeightStats struct {
	Name  string `json:"name"` // GGUF's, without ".weight"
	Type  string `json:"type"`
	Layer int    `json:"layer"`
	Shape []int  `json:"shape"`
	Stats
	Gain *Gain `json:"gain,omitempty"` // of a norm
}

// Gain holds a norm's factors: its weight, and the offset (1 or 0) that the graph adds.
type Gain struct {
	Offset float64 `json:"offset"`
	Mean   Number  `json:"mean"`
	RMS    Number  `json:"rms"`
	MaxAbs Number  `json:"max_abs"`
}

// MeasureWeights describes the weights of the nodes that match, each once, in the graph's order. It ends with ctx
// between two weights.
func MeasureWeights(ctx context.Context, g *graph.Graph, match func(n *graph.Node) bool) ([]WeightStats, error) {
	var all []WeightStats
	seen := map[*graph.Weight]bool{}
	for _, n := range g.Nodes {
		for i, w := range n.W {
			if w == nil || seen[w] || len(w.Data) == 0 || !match(n) {
				continue
			}
			seen[w] = true
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s := WeightStats{Name: w.GGUF, Type: w.DType.String(), Layer: n.Layer, Shape: slices.Clone(w.Shape)}
			attr, norm := n.Attr.(graph.NormAttr)
			norm = norm && i == 0
			if !norm {
				attr.Offset = 0
			}
			plain, gain, err := tallyWeight(w.Tensor, float64(attr.Offset))
			if err != nil {
				return nil, fmt.Errorf("stats: %s: %w", w.GGUF, err)
			}
			s.Stats = plain.stats()
			if norm {
				x := gain.stats()
				s.Gain = &Gain{float64(attr.Offset), x.Mean, x.RMS, x.MaxAbs}
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// tallyWeight reads a weight row by row, and the same with an offset added.
func tallyWeight(t tensor.Tensor, offset float64) (plain, moved tally, err error) {
	row := make([]float32, t.Shape.Last())
	size := t.DType.RowBytes(len(row))
	err = mmap.Guard(func() error {
		for at := 0; at+size <= len(t.Data) && size > 0; at += size {
			if err := quant.Dequantize(t.DType, row, t.Data[at:at+size]); err != nil {
				return err
			}
			for _, x := range row {
				plain.add(float64(x))
				moved.add(float64(x) + offset)
			}
		}
		return nil
	})
	return plain, moved, err
}

var statsHead = []string{"values", "min", "max", "mean", "rms", "max_abs", "zeros", "nan", "inf"}

func (s *Stats) cells(number func(Number) string) []string {
	return []string{fmt.Sprint(s.Values), number(s.Min), number(s.Max), number(s.Mean), number(s.RMS), number(s.MaxAbs),
		fmt.Sprint(s.Zeros), fmt.Sprint(s.NaN), fmt.Sprint(s.Inf)}
}

func allDigits(n Number) string { return strconv.FormatFloat(float64(n), 'g', -1, 64) }
func digits4(n Number) string   { return strconv.FormatFloat(float64(n), 'g', 4, 64) }

// RunStats holds the results of MeasureNodes and MeasureWeights.
type RunStats struct {
	Model   string        `json:"model"`
	Prompts int           `json:"prompts,omitempty"`
	IDs     int           `json:"ids,omitempty"` // of all prompts
	Nodes   []NodeStats   `json:"nodes,omitempty"`
	Weights []WeightStats `json:"weights,omitempty"`
}

// WriteCSV writes a line for each node and weight.
func (r *RunStats) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	lines := [][]string{append([]string{"kind", "name", "op_or_type", "layer", "rows"},
		append(slices.Clone(statsHead), "gain_rms")...)}
	for _, n := range r.Nodes {
		lines = append(lines, append([]string{"node", n.Name, n.Op, fmt.Sprint(n.Layer), fmt.Sprint(n.Rows)},
			append(n.cells(allDigits), "")...))
	}
	for _, x := range r.Weights {
		gain := ""
		if x.Gain != nil {
			gain = allDigits(x.Gain.RMS)
		}
		lines = append(lines, append([]string{"weight", x.Name, x.Type, fmt.Sprint(x.Layer), ""},
			append(x.cells(allDigits), gain)...))
	}
	return c.WriteAll(lines)
}

// WriteText writes tables for a person.
func (r *RunStats) WriteText(w io.Writer) error {
	if len(r.Nodes) > 0 {
		t := table(w, append([]string{"node", "op", "rows"}, statsHead...)...)
		for _, n := range r.Nodes {
			row(t, append([]string{Printable(n.Name), n.Op, fmt.Sprint(n.Rows)}, n.cells(digits4)...)...)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(r.Weights) == 0 {
		return nil
	}
	t := table(w, append([]string{"weight", "type", "gain"}, statsHead...)...)
	for _, x := range r.Weights {
		gain := "-"
		if x.Gain != nil {
			gain = digits4(x.Gain.RMS)
		}
		row(t, append([]string{Printable(x.Name), x.Type, gain}, x.cells(digits4)...)...)
	}
	return t.Flush()
}
