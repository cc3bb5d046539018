package diagnose_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// changed returns an edit of nodes of an operation that changes each row after it is computed.
func changed(op graph.Op, layer int, change func(n *graph.Node, row int, x []float64)) func(n *graph.Node) reference.Edit {
	return func(n *graph.Node) reference.Edit {
		if n.Op != op || n.Layer != layer {
			return nil
		}
		return func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				w := n.Shape.Size()
				for i, row := range rows {
					change(n, row, y[i*w:(i+1)*w])
				}
				return y, err
			}
		}
	}
}

func scale(x []float64, by float64) {
	for i := range x {
		x[i] *= by
	}
}

// TestExpect: a wrong value is wrong where it is made alone, by a relation in words, and a value that the dump lacks is
// computed from the engine's.
func TestExpect(t *testing.T) {
	m := tiny(t, "smollm3")
	for words, change := range map[string]func(n *graph.Node, row int, x []float64){
		"each value is -0.25 times the right one": func(_ *graph.Node, _ int, x []float64) { scale(x, -0.25) },
		"there it gives 0":                        func(_ *graph.Node, _ int, x []float64) { clear(x) },
		"its heads are the right heads [3 2 1 0]": func(n *graph.Node, _ int, x []float64) {
			heads, d := slices.Clone(x), len(x)/4
			for h := range 4 {
				copy(x[h*d:(h+1)*d], heads[(3-h)*d:])
			}
		},
		"each row is the right one times a number of its own": func(_ *graph.Node, row int, x []float64) { scale(x, float64(2+row)) },
		"each element is the right one plus a number of its own, the same in all rows, as of a bias: 1, 2, 3, 4, 5, 6 …": func(_ *graph.Node, _ int, x []float64) {
			for j := range x {
				x[j] += float64(1 + j)
			}
		},
		"each row is the right one plus a number of its own": func(_ *graph.Node, row int, x []float64) {
			for j := range x {
				x[j] += float64(1 + row)
			}
		},
		"at position 0, where attention passes on the value: its heads are the right heads [2 2 0 0]": func(_ *graph.Node, row int, x []float64) {
			for j := range x {
				if half := len(x) / 2; row == 0 && j < half {
					x[j], x[j+half] = x[j+half], x[j]
				} else if row > 0 {
					x[j] = x[j]*x[j] + 1
				}
			}
		},
		"its values are the right ones, rounded to bf16": func(_ *graph.Node, _ int, x []float64) { round.Format("bf16").Round(x) },
		"": func(_ *graph.Node, row int, x []float64) {
			for j := range x {
				x[j] = x[j]*x[j] + 1
			}
		},
	} {
		dump := m.edited(t, "", changed(graph.Attention, 1, change), m.texts(t, mixed))
		o := Options{Graph: m.graph, Dump: dump, Asked: m.asked}
		e, err := Expect(t.Context(), o, "model.layers.1.self_attn.o_proj.in")
		if err != nil {
			t.Fatal(err)
		}
		if w := e.Worst(); e.Relation != words || !e.Tapped || w < 0 || !e.Rows[w].IsOff() || !slices.Equal(e.Span, []string{"Attention"}) {
			t.Errorf("%q, want %q: %v, %v", e.Relation, words, e.Tapped, e.Span)
		}
		if e, err = Expect(t.Context(), o, "blk.2.attention"); err != nil || e.Worst() < 0 || e.Rows[e.Worst()].IsOff() {
			t.Errorf("the layer after: %v, %+v", err, e)
		}
		if words == "there it gives 0" {
			want := e.Rows[len(e.Rows)-1].Expected
			delete(dump.Prompts[0].Taps, "model.layers.2.self_attn.o_proj.in")
			e, err := Expect(t.Context(), o, "model.layers.2.self_attn.o_proj.in")
			if err != nil || e.Tapped || len(e.Rows) != len(dump.Prompts[0].IDs) || !slices.Equal(e.Rows[len(e.Rows)-1].Expected, want) {
				t.Errorf("a value that the dump lacks: %v, %+v", err, e)
			}
			if _, err = Expect(t.Context(), o, "model.layer.0.out"); err == nil || !strings.Contains(err.Error(), "did you mean model.layers.0.out?") {
				t.Error(err)
			}
		}
	}
}

// TestMisspelt: a tap whose name looks like another's is an error at the top and a step; without a place for any tap
// there is nothing to judge.
func TestMisspelt(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	dump, _ := m.record(t, "", "", m.texts(t, mixed))
	taps := dump.Prompts[0].Taps
	taps["model.layer.1.out"] = taps["model.layers.1.out"]
	delete(taps, "model.layers.1.out")
	d := m.diagnose(t, dump, nil)
	want := map[string]string{"model.layer.1.out": "model.layers.1.out"}
	if !good(d.Verdict) || len(d.Errors) != 1 || !maps.Equal(d.Coverage.Misspelt, want) || d.Next[0].Do != DoRename || !maps.Equal(d.Next[0].Rename, want) {
		t.Errorf("%s: %q, %+v", say(d), d.Errors, d.Next)
	}
	dump.Prompts[0].Taps = map[string]*tensor.Tensor{"model.layer.1.out": taps["model.layer.1.out"]}
	if _, err := Run(t.Context(), Options{Graph: m.graph, Dump: dump}); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "did you mean model.layers.1.out?") {
		t.Error(err)
	}
}

// TestForeign: taps of a layer that the model lacks, and of parts that no layer has, are an error at the top. A head's
// layer, values that tools write beside, and parts of pictures' towers are none.
func TestForeign(t *testing.T) {
	m := tiny(t, "smollm3")
	head := 0
	for _, n := range m.graph.Nodes {
		head = max(head, n.Layer+1)
	}
	dump, _ := m.record(t, "", "", m.texts(t, mixed))
	taps := dump.Prompts[0].Taps
	for _, c := range []struct {
		name, want string
	}{
		{"model.layers.33.mlp.out", "no such layer"}, {"ffn_out-33", ""}, {"blk.33.ffn_down", "no such layer"},
		{"layers[33].output", "no such layer"}, {"model.layers.1.attn_self.q_proj.out", "no such part"},
		{"model.layers.1.attn_self.wq.in", "no such part"}, {fmt.Sprintf("model.layers.%d.mlp.down_proj.out", head), ""},
		{"model.layers.0.self_attn.attn.out", ""}, {"model.layers.0.resid_dropout.out", ""}, {"model.rotary_emb.out", ""},
		{"model.visual.blocks.33.attn.qkv.out", ""}, {"model.vision_tower.encoder.layers.33.mlp.fc1.out", ""},
	} {
		taps[c.name] = taps["model.layers.1.out"]
		d := m.diagnose(t, dump, nil)
		delete(taps, c.name)
		if !good(d.Verdict) || len(d.Errors) > 0 != (c.want != "") || c.want != "" && (!strings.Contains(d.Errors[0], c.name+": ") ||
			!strings.Contains(d.Errors[0], c.want) || d.Next[0].Do != DoRename || !slices.Equal(d.Next[0].Taps, []string{c.name})) {
			t.Errorf("%s: %s: %q, %+v", c.name, say(d), d.Errors, d.Next)
		}
	}
}

// TestNext: the first step of each kind of diagnosis.
func TestNext(t *testing.T) {
	m := tiny(t, "smollm3")
	strange := changed(graph.Attention, 1, func(_ *graph.Node, row int, x []float64) {
		for j := range x {
			x[j] = x[j]*x[j] + 1
		}
	})
	named, _ := m.record(t, "", "attention_scale=0.5@1", m.texts(t, mixed))
	probe, _ := m.record(t, "", "probe_rows@1", m.texts(t, mixed))
	right, _ := m.record(t, "", "", m.texts(t, mixed))
	decoded, _ := m.record(t, "", "", m.texts(t, mixed))
	decoded.Prompts[0].Decode = 2
	bare, _ := m.record(t, "", "", m.texts(t, mixed))
	bare.Prompts[0].Taps, bare.Prompts[0].Hidden = nil, nil
	for i, c := range []struct {
		dump *lab.Record
		want []Do
	}{
		{named, []Do{DoMend}}, {probe, []Do{DoMendProbe}}, {right, []Do{DoDecode}}, {decoded, []Do{Done}},
		{m.edited(t, "", strange, m.texts(t, mixed)), []Do{DoExpect}},
		{modules(m.edited(t, "", strange, m.texts(t, mixed))), []Do{DoAddTaps}},
		{bare, []Do{DoAddTaps, DoDecode}},
	} {
		d := m.diagnose(t, c.dump, nil)
		var got []Do
		for _, s := range d.Next {
			got = append(got, s.Do)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d: %v, want %v: %s", i, got, c.want, say(d))
		}
		for _, f := range suspicions(d) {
			if f.Cause == "unknown" && !strings.Contains(f.Fix, "karat lab expect MODEL DUMP --tap "+f.Tap) {
				t.Errorf("the fix is %q", f.Fix)
			}
		}
	}
}

// TestOtherInput: a projection of another value than its own says so.
func TestOtherInput(t *testing.T) {
	m := tiny(t, "tiny-qwen3")
	dump := m.edited(t, "", func(n *graph.Node) reference.Edit {
		if n.Name != "blk.1.ffn_up" {
			return nil
		}
		return func(s *reference.Spec) { s.In = n.In[0].In } // before the norm
	}, m.texts(t, mixed))
	e, err := Expect(t.Context(), Options{Graph: m.graph, Dump: dump, Asked: m.asked}, "blk.1.ffn_up")
	if err != nil || e.Relation != "it is the product of the right weight with another input" {
		t.Errorf("%v: %q", err, e.Relation)
	}
}

// TestExpectNaN: a row of no numbers, or of infinities, is off.
func TestExpectNaN(t *testing.T) {
	m := tiny(t, "smollm3")
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		dump := m.edited(t, "", changed(graph.Attention, 1, func(_ *graph.Node, row int, x []float64) {
			if row == 1 {
				x[0] = v
			}
		}), m.texts(t, mixed))
		e, err := Expect(t.Context(), Options{Graph: m.graph, Dump: dump, Asked: m.asked}, "model.layers.1.self_attn.o_proj.in")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range e.Rows {
			if r.IsOff() != (r.Position == 1) {
				t.Errorf("%v: position %d: %v, floor %v", v, r.Position, r.Residual, r.Floor)
			}
		}
		if want := "1 of 1 wrong rows have NaN or infinities, where the right values are finite"; e.Relation != want {
			t.Errorf("%v: %q", v, e.Relation)
		}
	}
}
