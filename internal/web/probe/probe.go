// Package probe describes all values of a node of a model's graph for a text. It belongs to the page's program, and
// stands apart for tests on any system.
package probe

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/experiment"
)

// Result describes a node's values for some tokens.
type Result struct {
	Name      string       `json:"name"`
	HF        string       `json:"hf"`
	Op        string       `json:"op"`
	Layer     int          `json:"layer"`
	DType     string       `json:"dtype"`
	Shape     []int        `json:"shape"` // tokens, then the node's
	All       Statistics   `json:"all"`
	Rows      []Statistics `json:"rows"` // by token
	Histogram Histogram    `json:"histogram"`
}

// Describe computes ids, as one sequence from position 0, and describes all values of the named node.
func Describe(ctx context.Context, m *karat.Model, ids []int, name string) (*Result, error) {
	nodes := m.Nodes()
	i := slices.IndexFunc(nodes, func(n karat.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("the model has no node %q", name)
	}
	node, width := nodes[i], 1
	for _, d := range node.Shape {
		width *= d
	}
	var values []float32
	err := m.Taps(ctx, ids, func(n karat.Node, rows []float32) {
		if n.Name == name {
			values = append(values, rows...)
		}
	})
	if err != nil {
		return nil, err
	}
	if len(values) != len(ids)*width {
		return nil, fmt.Errorf("%s has %d values for %d tokens of %d", name, len(values), len(ids), width)
	}
	r := &Result{Name: name, HF: node.HF, Op: node.Op, Layer: node.Layer, DType: "f32",
		Shape: append([]int{len(ids)}, node.Shape...), All: statisticsOf(values)}
	for row := range slices.Chunk(values, width) {
		r.Rows = append(r.Rows, statisticsOf(row))
	}
	r.Histogram = histogramOf(values, r.All)
	return r, nil
}

// Statistics describe some values. Of NaNs and infinities there are only counts.
type Statistics struct {
	N    int     `json:"n"`
	NaN  int     `json:"nan"`
	Inf  int     `json:"inf"`
	Zero int     `json:"zero"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
	RMS  float64 `json:"rms"`
}

func statisticsOf(x []float32) Statistics {
	s := Statistics{N: len(x)}
	var sum, squares, finite float64
	for _, f := range x {
		v := float64(f)
		switch {
		case math.IsNaN(v):
			s.NaN++
			continue
		case math.IsInf(v, 0):
			s.Inf++
			continue
		case v == 0:
			s.Zero++
		}
		if finite == 0 {
			s.Min, s.Max = v, v
		}
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
		sum, squares, finite = sum+v, squares+v*v, finite+1
	}
	if finite > 0 {
		s.Mean, s.RMS = sum/finite, math.Sqrt(squares/finite)
		s.Std = math.Sqrt(max(0, squares/finite-s.Mean*s.Mean))
	}
	return s
}

// Histogram counts finite values between the least and the largest, in steps of the same width.
type Histogram struct {
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Counts []int   `json:"counts"`
}

func histogramOf(x []float32, s Statistics) Histogram {
	h := Histogram{s.Min, s.Max, make([]int, 64)}
	for _, f := range x {
		if v := float64(f); !math.IsNaN(v) && !math.IsInf(v, 0) {
			i := 0
			if s.Max > s.Min {
				i = min(int((v-s.Min)/(s.Max-s.Min)*float64(len(h.Counts))), len(h.Counts)-1)
			}
			h.Counts[i]++
		}
	}
	return h
}

// Text returns a token's bytes as text, with bytes outside UTF-8 in the form <0xE2>.
func Text(b []byte) string {
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&s, "<0x%02X>", b[0])
		} else {
			s.Write(b[:n])
		}
		b = b[n:]
	}
	return s.String()
}

// Change multiplies a node's values by a number.
type Change struct {
	Node  string `json:"node"`
	Heads string `json:"heads"` // in the form of experiment.ParseSet; "" is all
	// in the form of experiment.ParsePositions; "" is all, also generated
	Positions string  `json:"positions"`
	By        float64 `json:"by"`
}

// Numbers shown by the page of a change: likeliest tokens of each run, and tokens after the prompt.
const (
	likeliest = 6
	following = 6
)

// Effect runs ids without and with c, and compares the next token and the text after the prompt.
func (c Change) Effect(ctx context.Context, m *karat.Model, ids []int) (*experiment.Effect, error) {
	e := experiment.Edit{Kind: experiment.Scale, Place: experiment.Place{Node: c.Node}, By: c.By}
	var err error
	if e.Place.Heads, err = experiment.ParseSet(c.Heads); err != nil {
		return nil, err
	}
	if e.At, err = experiment.ParsePositions(c.Positions); err != nil {
		return nil, err
	}
	x, err := experiment.Measure(ctx, m, experiment.NewPrompt(m, "", ids), []experiment.Edit{e}, likeliest, nil,
		following)
	if err != nil {
		return nil, err
	}
	for i, t := range x.Tokens {
		if b := m.TokenBytes(t.ID); len(b) > 0 {
			x.Tokens[i].Text = Text(b)
		}
	}
	return x, nil
}
