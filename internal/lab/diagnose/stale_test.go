package diagnose_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/tensor"
)

// TestStale gives a prompt all of another's taps.
func TestStale(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "attention_scale=0.5@2", m.texts(t, mixed, "The color of the sky is"))
	p, q := dump.Prompts[1], dump.Prompts[0]
	for name, x := range q.Taps {
		y := *x
		y.Shape = append(tensor.Shape{len(p.IDs)}, x.Shape[1:]...)
		y.Data = x.Data[:len(p.IDs)*len(x.Data)/x.Shape[0]]
		p.Taps[name] = &y
	}
	delete(p.Taps, "lm_head.out") // the logits are its own
	d := m.diagnose(t, dump, nil)
	if d.Verdict != Instrument || len(suspicions(d)) != 2 || !has(d, "probe_stale") || !slices.Equal(layers(d, "attention_scale"), []int{2}) {
		t.Error(say(d))
	}
}

// TestSpreading gives an engine whose values are NaN from a norm on: that norm is accused, not what reads it.
func TestSpreading(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "", m.texts(t, mixed))
	p := dump.Prompts[0]
	nan := func(x *tensor.Tensor) *tensor.Tensor {
		y := *x
		y.Data = bytes.Repeat([]byte{0xff}, len(x.Data))
		return &y
	}
	for name, x := range p.Taps {
		for _, prefix := range []string{"model.layers.2.", "model.layers.3.", "model.norm.", "lm_head."} {
			if strings.HasPrefix(name, prefix) {
				p.Taps[name] = nan(x)
			}
		}
	}
	p.Logits, p.Hidden = nan(p.Logits), nil
	d := m.diagnose(t, dump, nil)
	if f := suspicions(d); d.Verdict != Structural || len(f) != 1 || f[0].Tap != "model.layers.2.input_layernorm.out" || !strings.Contains(f[0].Computed, "NaN") || d.Closure.Unexplained != 1 {
		t.Error(say(d))
	}
}

// TestTransposed writes a tap's columns as rows, which is said, and no fault of what it holds.
func TestTransposed(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "", m.texts(t, mixed))
	const name = "model.layers.1.self_attn.q_proj.out"
	x := *dump.Prompts[0].Taps[name]
	x.Shape = tensor.Shape{x.Shape[1], x.Shape[0]}
	dump.Prompts[0].Taps[name] = &x
	d := m.diagnose(t, dump, nil)
	if !good(d.Verdict) || !slices.ContainsFunc(d.Inferred, func(s string) bool { return strings.Contains(s, name) && strings.Contains(s, "columns") }) {
		t.Errorf("%s; inferred %q", say(d), d.Inferred)
	}
}

// TestUnwritten gives values that are all zero.
func TestUnwritten(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "", m.texts(t, mixed))
	p := dump.Prompts[0]
	for x := range maps.Values(p.Taps) {
		x.Data = make([]byte, len(x.Data))
	}
	p.Logits.Data, p.Hidden = make([]byte, len(p.Logits.Data)), nil
	if _, err := Run(t.Context(), Options{Graph: m.graph, Dump: dump}); err == nil || !strings.Contains(err.Error(), "all values are 0") {
		t.Error(err)
	}
}

// TestWindowOfFull is an engine whose layers without a window have one that no other layer has.
func TestWindowOfFull(t *testing.T) {
	m, engine := tiny(t, "tiny-gemma3"), tiny(t, "tiny-gemma3")
	var full []int
	for _, n := range engine.graph.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && a.KV.Window == 0 {
			a.KV.Window = 20
			full = append(full, n.Layer)
		}
	}
	dump, _ := engine.record(t, "activations=f32", "", engine.texts(t, strings.Repeat(mixed, 2)))
	if n := len(dump.Prompts[0].IDs); n < 24 || len(full) == 0 {
		t.Fatal(n, full)
	}
	d := m.diagnose(t, &lab.Record{Names: lab.NamesHF, Prompts: dump.Prompts}, nil)
	named(t, d, map[string][]int{"window_size": full})
	if w := d.Findings[0].Detail["window"]; w != 20.0 || !strings.Contains(d.Findings[0].Computed, "20 positions, not all") {
		t.Error(w, say(d))
	}
	closed(t, d)
}

// TestStaleLayer gives a prompt the taps of one layer that are another's: of the probe, and its prompt's other taps count.
func TestStaleLayer(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "attention_scale=0.5@2", m.texts(t, mixed, "The color of the sky is"))
	p, q := dump.Prompts[1], dump.Prompts[0]
	for name, x := range q.Taps {
		if strings.HasPrefix(name, "model.layers.1.") {
			y := *x
			y.Shape = append(tensor.Shape{len(p.IDs)}, x.Shape[1:]...)
			y.Data = x.Data[:len(p.IDs)*len(x.Data)/x.Shape[0]]
			p.Taps[name] = &y
		}
	}
	d := m.diagnose(t, dump, nil)
	if d.Verdict != Instrument || len(suspicions(d)) != 2 || !slices.Equal(layers(d, "probe_stale"), []int{1}) || !slices.Equal(layers(d, "attention_scale"), []int{2}) {
		t.Error(say(d))
	}
}

// TestConstant: a layer that gives zeros gives the same in all prompts, which is no stale probe.
func TestConstant(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "weight_missing:ffn_norm; residual_missing:add", m.texts(t, mixed, "The color of the sky is"))
	named(t, m.diagnose(t, modules(dump), nil), map[string][]int{"weight_missing": {0, 1, 2, 3}, "residual_missing": {0, 1, 2, 3}})
}

// TestRepeated: an engine whose odd rows repeat the row before gives the same in the second row of all prompts that begin
// alike, which is no stale probe.
func TestRepeated(t *testing.T) {
	m := tiny(t, "smollm3")
	dump, _ := m.record(t, "activations=f32", "residual_missing@all; x_row_repeated@all", m.texts(t, mixed, "The color of the sky is"))
	named(t, m.diagnose(t, modules(dump), nil), map[string][]int{"residual_missing": {0, 1, 2, 3}, "unknown": {0, 1, 2, 3}})
}

// TestRoutes gives a tap of routes numbers that no experts have: the tap is accused, and the diagnosis goes on.
func TestRoutes(t *testing.T) {
	m := tiny(t, "tiny-gemma4-moe")
	dump, _ := m.record(t, "activations=f32", "", m.texts(t, mixed))
	p := dump.Prompts[0]
	taps := map[string]*tensor.Tensor{}
	for _, n := range m.graph.Nodes {
		if x := p.Taps[n.HF]; x != nil {
			taps[n.Name] = x
		}
	}
	x := &tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{len(p.IDs), 4}}
	for i := range x.Shape.Size() {
		x.Data = binary.LittleEndian.AppendUint32(x.Data, math.Float32bits(float32(i)*1e9-4e9))
	}
	taps["blk.1.ffn_route"] = x
	dump.Names, p.Taps = lab.NamesKarat, taps
	d := m.diagnose(t, dump, nil)
	if f := suspicions(d); d.Verdict != Instrument || len(f) != 1 || f[0].Tap != "blk.1.ffn_route" || f[0].Op != "Route" {
		t.Error(say(d))
	}
}
