package mistake

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

// attributes are the faults of each attribute of an operation.
var attributes = map[string]string{
	"EmbedAttr.Scale": "embed_scale", "NormAttr.Eps": "norm_eps", "NormAttr.Offset": "norm_offset", "ScaleAttr.By": "scale_factor", "ViewAttr.Offset": "slice_part",
	"RoPEAttr.Freqs": "rope_theta", "RoPEAttr.Dim": "rope_partial", "RoPEAttr.Interleaved": "rope_style", "RoPEAttr.Magnitude": "rope_magnitude", "RoPEAttr.Sections": "rope_sections", "RoPEAttr.Woven": "rope_sections",
	"AttentionAttr.KV": "kv_share_source", "AttentionAttr.Scale": "attention_scale", "AttentionAttr.Cap": "attention_cap", "AttentionAttr.Grouped": "mask", "AttentionAttr.Bidirectional": "mask",
	"KV.Layer": "kv_share_source", "KV.Skip": "mask", "KV.Index": "index_topk", "KV.Sparse": "index_missing", "KV.Heads": "gqa_map", "KV.Dim": "attention_scale", "KV.Window": "window_size", "KV.Chunked": "chunk_missing", "KV.ValueDim": "latent_part", "KV.Latent": "latent_part",
	"ActAttr.Act": "activation", "ActAttr.Limit": "activation_limit", "ActAttr.Alpha": "activation_limit", "ActAttr.Plus": "activation_limit",
	"RouteAttr.Weigh": "router_softmax", "RouteAttr.Normalize": "router_norm", "RouteAttr.Eps": "router_eps", "RouteAttr.Near": "router_softmax", "RouteAttr.Factor": "router_factor", "RouteAttr.Biased": "router_bias",
	"RouteAttr.Groups": "router_groups", "RouteAttr.Kept": "router_groups", "RouteAttr.Best": "router_groups",
	"ExpertsAttr.ActAttr": "activation", "ExpertsAttr.Form": "gate_up_layout", "ExpertsAttr.Biased": "bias_missing", "ExpertsAttr.OnInput": "expert_input",
	"PoolAttr.Pooling": "pooling", "PoolAttr.Count": "pooling", "SliceAttr.Offset": "slice_part", "ScalePosAttr.Beta": "position_scale", "ScalePosAttr.Every": "position_scale", "ScalePosAttr.Shift": "position_scale",
}

// TestAttributes wants a fault, and a cause of its name, for each attribute of the graph's operations.
func TestAttributes(t *testing.T) {
	var fields []string
	for _, a := range []any{graph.EmbedAttr{}, graph.NormAttr{}, graph.ScaleAttr{}, graph.ViewAttr{}, graph.RoPEAttr{}, graph.AttentionAttr{}, graph.KV{}, graph.ActAttr{}, graph.RouteAttr{}, graph.ExpertsAttr{}, graph.PoolAttr{}, graph.SliceAttr{}, graph.ScalePosAttr{}} {
		for f := range reflect.TypeOf(a).Fields() {
			fields = append(fields, reflect.TypeOf(a).Name()+"."+f.Name)
		}
	}
	for _, f := range fields {
		if c, ok := Find(attributes[f]); !ok || entryOf(attributes[f]) == nil || c.Kind != Structural {
			t.Errorf("%s: no fault and cause (%q)", f, attributes[f])
		}
	}
	if len(attributes) != len(fields) {
		t.Errorf("%d attributes are listed, %d there are", len(attributes), len(fields))
	}
}

// idle are operations that compute nothing: what is wrong in them is wrong in what reads them.
var idle = []graph.Op{graph.StoreKV, graph.Rows, graph.View}

// TestOperations wants some fault that has a cause for each operation and each kind of attribute that a family has:
// the families' own graphs must have a fault there.
func TestOperations(t *testing.T) {
	names := slices.Concat(models(t), golden.Families(t), golden.Encoders(t), golden.Rerankers(t))
	if len(names) < 30 {
		t.Errorf("%d families", len(names))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := load(t, name)
			hit := map[graph.Op]bool{}
			for _, f := range Applicable(g) {
				if _, ok := Find(f.ID); !ok || strings.HasPrefix(f.ID, "weight_") || f.Layers != "all" && f.Layers != "" {
					continue
				}
				_, _, in, err := Inject(g, []Fault{f})
				if err != nil {
					t.Error(err)
				}
				for _, x := range in {
					for _, n := range g.Nodes {
						hit[n.Op] = hit[n.Op] || slices.Contains(x.Nodes, n.Name)
					}
				}
			}
			missing := map[string]bool{}
			for _, n := range g.Nodes {
				if n.Op == graph.Concat && !slices.Equal(n.In[0].Shape, n.In[1].Shape) {
					continue // of a latent: the order is Karat's own, and what it decides has the fault latent_part
				}
				if n.Op == graph.Concat && slices.ContainsFunc(g.Nodes, func(m *graph.Node) bool {
					return m.Op == graph.Concat && slices.Contains(m.In, n)
				}) {
					continue // the first two of several streams: parts_swapped stands where a layer joins two values
				}
				if n.Op == graph.Slice && n.In[0].Shape.Last() < 2*n.Shape.Last() {
					continue // no other part has its size
				}
				if n.Op == graph.Mul && len(n.W) > 0 && n.W[0].Shape.Size() > 1 {
					continue // the weight of a gated norm, whose faults are those of weights
				}
				if !hit[n.Op] && !slices.Contains(idle, n.Op) && n.Op != graph.Linear {
					missing[fmt.Sprint(n.Op)] = true
				}
			}
			if len(missing) > 0 {
				t.Errorf("no fault in %v", missing)
			}
		})
	}
}

// TestNoFaults: what changes nothing, or is another fault, is not offered.
func TestNoFaults(t *testing.T) {
	for model, id := range map[string]string{"falconh1": "x_up_plus_one", "gpt2": "same_norm_folded", "nemotronh": "gate_up_swapped"} {
		for _, f := range Applicable(load(t, model)) {
			n := 0
			if f.ID == id {
				_, _, in, _ := Inject(load(t, model), []Fault{f})
				for _, x := range in {
					if x.Op == "Act" || x.Op == "LayerNorm" {
						n++
					}
				}
			}
			if n > 0 {
				t.Errorf("%s: %v", model, f)
			}
		}
	}
	_, edits, in, err := Inject(load(t, "nemotronh"), []Fault{{ID: "x_tail_zero", Layers: "moe"}})
	if err != nil || in[0].Op != "Linear" || edits == nil {
		t.Fatalf("%v, %v", in, err)
	}
	if _, _, in, err := Inject(load(t, "deepseek2"), []Fault{{ID: "gate_up_swapped", Layers: "all"}}); err != nil || len(in) != 2 {
		t.Errorf("GLU and Experts are one entry: %v, %v", in, err)
	}
}

// TestBase: the base of powers is read off where no scaling is, or where it is one factor.
func TestBase(t *testing.T) {
	for model, want := range map[string]float64{"ministral3": 1e6, "deepseek2": 1e4, "gpt-oss": 150000, "phi3": 1e4, "tiny-llama": 5e5} {
		for _, n := range load(t, model).Nodes {
			if a, ok := n.Attr.(graph.RoPEAttr); ok {
				if b := Theta(a.Freqs, a.Turning(n.Shape.Last())); b != want {
					t.Errorf("%s: %v; want %v", model, b, want)
				}
				break
			}
		}
	}
}
