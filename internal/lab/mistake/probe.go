package mistake

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// probeIDs are the faults of how an engine is looked at.
var probeIDs = []string{"probe_dtype", "probe_prefix", "probe_stale", "probe_duplicate", "probe_rows"}

func isProbe(id string) bool { return slices.Contains(probeIDs, id) }

// tapped is a node with its taps, by prompt.
type tapped struct {
	n    *graph.Node
	taps []*tensor.Tensor // nil where a prompt has none
}

// Probe breaks the probe, not the engine: Probe changes taps of prompts, float32 as in records, and returns the answer
// key. A fault without nodes is at the layers' outputs.
func Probe(g *graph.Graph, prompts []*lab.Prompt, faults []Fault) ([]Injected, error) {
	p := build(g)
	var all []Injected
	for _, f := range faults {
		if f.Where == "" {
			f.Where = "out"
		}
		names := strings.Split(f.Where, "+")
		at := &entry{id: f.ID, more: func(_ *Proposer, n *graph.Node) []*Hypothesis {
			if !slices.Contains(names, Role(n)) {
				return nil
			}
			return []*Hypothesis{edit(n, "", detail{}, func(*reference.Spec) {})}
		}, words: wordings{f.Value: {{}}}}
		nodes, err := p.targets(at, f)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", f, err)
		}
		var list []tapped
		for _, h := range nodes {
			n := h.Node
			t := tapped{n: n}
			for _, pr := range prompts {
				t.taps = append(t.taps, pr.Taps[n.HF])
			}
			if slices.ContainsFunc(t.taps, func(t *tensor.Tensor) bool { return t != nil }) {
				list = append(list, t)
			}
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%v: no prompt has such taps", f)
		}
		in, err := p.probe(prompts, list, f)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", f, err)
		}
		all = append(all, in...)
	}
	return all, nil
}

// probe replaces all taps of a fault at once, so that no change reads another.
func (p *site) probe(prompts []*lab.Prompt, list []tapped, f Fault) ([]Injected, error) {
	type change struct{ was, now *tensor.Tensor }
	changes := make([][]change, len(prompts))
	detail := ""
	var touched []*Hypothesis
	for i, t := range list {
		for k, tap := range t.taps {
			if tap == nil {
				continue
			}
			data, d, err := broken(list, i, k, f)
			if err != nil {
				return nil, err
			}
			if data == nil || slices.Equal(data, tap.Data) {
				continue
			}
			now := *tap
			now.Data, detail = data, d
			changes[k] = append(changes[k], change{tap, &now})
			if !slices.ContainsFunc(touched, func(x *Hypothesis) bool { return x.Node == t.n }) {
				touched = append(touched, edited(t.n, d, nil, reference.Edits{t.n: nil}))
			}
		}
	}
	if detail == "" {
		return nil, same("the taps would be equal")
	}
	for k, pr := range prompts {
		for _, c := range changes[k] {
			for name, tap := range pr.Taps { // a module with a projection at its end has the same tap
				if tap == c.was {
					pr.Taps[name] = c.now
				}
			}
		}
	}
	return p.describe(&entry{id: f.ID}, f, touched), nil
}

// broken returns the bytes of a broken probe for tap k of list[i], nil for the right bytes.
func broken(list []tapped, i, k int, f Fault) ([]byte, string, error) {
	tap := list[i].taps[k]
	width := list[i].n.Shape.Size()
	rows := len(tap.Data) / (4 * width)
	row := func(t *tensor.Tensor, r int) []byte { return t.Data[4*width*r : 4*width*(r+1)] }
	var data []byte
	switch f.ID + "=" + f.Value {
	case "probe_dtype=":
		data = make([]byte, len(tap.Data))
		for j := range rows * width {
			v := math.Float32frombits(binary.LittleEndian.Uint32(tap.Data[4*j:]))
			binary.LittleEndian.PutUint16(data[2*j:], float16.ToF16(v))
		}
		return data, "bytes of float16 are read as float32", nil
	case "probe_rows=":
		for r := range rows {
			data = append(data, row(tap, (r+rows-1)%rows)...)
		}
		return data, "each row shows the one before", nil
	case "probe_rows=reverse":
		for r := range rows {
			data = append(data, row(tap, rows-1-r)...)
		}
		return data, "rows are in the reverse order", nil
	case "probe_duplicate=", "probe_duplicate=last":
		from := max(i-1, 0)
		if f.Value == "last" {
			from = len(list) - 1
		}
		if other := list[from]; other.taps[k] != nil && len(other.taps[k].Data) == len(tap.Data) {
			return other.taps[k].Data, "taps show another layer's values", nil
		}
		return nil, "", nil
	case "probe_stale=":
		for j := 1; j < len(list[i].taps); j++ {
			other := list[i].taps[(k+len(list[i].taps)-j)%len(list[i].taps)]
			if other == nil {
				continue
			}
			for r := range rows {
				data = append(data, row(other, r%(len(other.Data)/(4*width)))...)
			}
			return data, "another prompt's values", nil
		}
		return nil, "", errors.New("it takes two prompts with taps")
	}
	if f.ID != "probe_prefix" {
		return nil, "", fmt.Errorf("value %q is not possible", f.Value)
	}
	return prefix(tap.Data, width, f.Value)
}

// prefix keeps the first values of each row; the rest is zero.
func prefix(tap []byte, width int, value string) ([]byte, string, error) {
	keep := float64(min(64, width/2))
	var err error
	if value != "" {
		keep, err = strconv.ParseFloat(value, 64)
	}
	if err != nil || keep < 1 || keep != math.Trunc(keep) {
		return nil, "", fmt.Errorf("value %q: want how many values are read", value)
	}
	data := slices.Clone(tap)
	for r := 0; r < len(data); r += 4 * width {
		clear(data[r+4*min(int(keep), width) : r+4*width])
	}
	return data, fmt.Sprintf("%g of %d values are read", keep, width), nil
}
