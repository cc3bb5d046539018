//go:build js

package main

import (
	"fmt"
	"math"
	"syscall/js"

	"github.com/karat-run/karat"
)

// nodeInfo is a karat.Node.
type nodeInfo struct {
	Name  string `json:"name"`
	HF    string `json:"hf"`
	Op    string `json:"op"`
	Layer int    `json:"layer"`
	Shape []int  `json:"shape"`
}

func (m *model) nodes([]js.Value) (any, error) {
	var list []nodeInfo
	for _, n := range m.m.Nodes() {
		list = append(list, nodeInfo(n))
	}
	return plain(list)
}

// statistics are those of some values. Of NaNs and infinities there are only counts.
type statistics struct {
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

func statisticsOf(x []float32) statistics {
	s := statistics{N: len(x)}
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

// histogram counts finite values between the least and the largest, in steps of the
// same width.
type histogram struct {
	From   float64 `json:"from"`
	To     float64 `json:"to"`
	Counts []int   `json:"counts"`
}

func histogramOf(x []float32, s statistics) histogram {
	h := histogram{s.Min, s.Max, make([]int, 64)}
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

// probe computes a prompt and describes the whole value of one node.
func (m *model) probe(args []js.Value) (any, error) {
	name := argument(args, 0).String()
	p, err := readPrompt(argument(args, 1))
	if err != nil {
		return nil, err
	}
	var node *nodeInfo
	for _, n := range m.m.Nodes() {
		if n.Name == name {
			node = new(nodeInfo(n))
		}
	}
	if node == nil {
		return nil, fmt.Errorf("karat: probe: the model has no node %q", name)
	}
	ctx, end := until(argument(args, 2))
	defer end()
	ids, err := m.ids(ctx, p, karat.GenerateOptions{})
	if err != nil {
		return nil, err
	}
	var values []float32
	err = m.m.Taps(ctx, ids, func(n karat.Node, rows []float32) {
		if n.Name == name {
			values = append(values, rows...)
		}
	})
	if err != nil {
		return nil, err
	}
	width, all := 1, statisticsOf(values)
	for _, d := range node.Shape {
		width *= d
	}
	var rows []statistics
	for i := 0; i < len(values); i += width {
		rows = append(rows, statisticsOf(values[i:i+width]))
	}
	return plain(map[string]any{"name": name, "hf": node.HF, "op": node.Op, "layer": node.Layer, "dtype": "f32", "shape": append([]int{len(rows)}, node.Shape...),
		"tokens": m.tokens(ids), "all": all, "rows": rows, "histogram": histogramOf(values, all)})
}
