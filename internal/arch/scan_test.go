package arch_test

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// negativeExp makes -exp(x) of bfloat16 numbers, as GGUF has it.
func negativeExp(x *tensor.Tensor) {
	var data []byte
	for i := range x.Shape.Size() {
		v := float16.BF16(binary.LittleEndian.Uint16(x.Data[2*i:]))
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(-math.Exp(float64(v)))))
	}
	x.DType, x.Data = tensor.F32, data
}

// deltaNet is the first layers of Qwen 3.5, as it takes to prove the gated delta rule.
// (transformers, models/qwen3_next/modeling_qwen3_next.py, Qwen3NextGatedDeltaNet)
type deltaNet struct {
	Embed  *graph.Weight   `gguf:"token_embd" hf:"model.embed_tokens"`
	Layers []deltaNetLayer `gguf:"blk" hf:"model.layers"`
}

type deltaNetLayer struct {
	Norm    *graph.Weight `gguf:"attn_norm" hf:"input_layernorm"`
	QKV     *graph.Weight `gguf:"attn_qkv" hf:"linear_attn.in_proj_qkv"`
	Z       *graph.Weight `gguf:"attn_gate" hf:"linear_attn.in_proj_z"`
	Alpha   *graph.Weight `gguf:"ssm_alpha" hf:"linear_attn.in_proj_a"`
	Beta    *graph.Weight `gguf:"ssm_beta" hf:"linear_attn.in_proj_b"`
	Conv    *graph.Weight `gguf:"ssm_conv1d" hf:"linear_attn.conv1d"`
	DTBias  *graph.Weight `gguf:"ssm_dt.bias" hf:"linear_attn.dt_bias"`
	A       *graph.Weight `gguf:"ssm_a" hf:"linear_attn.A_log"` // -exp of Hugging Face's
	MixNorm *graph.Weight `gguf:"ssm_norm" hf:"linear_attn.norm"`
	Out     *graph.Weight `gguf:"ssm_out" hf:"linear_attn.out_proj"`
	MLPNorm *graph.Weight `gguf:"post_attention_norm" hf:"post_attention_layernorm"`
	Gate    *graph.Weight `gguf:"ffn_gate" hf:"mlp.gate_proj"`
	Up      *graph.Weight `gguf:"ffn_up" hf:"mlp.up_proj"`
	Down    *graph.Weight `gguf:"ffn_down" hf:"mlp.down_proj"`
}

func (m *deltaNet) Forward(g graph.Builder) *graph.Node {
	const hidden, groups, n, heads, dim, ff, eps = 128, 2, 16, 4, 24, 192, 1e-6
	h := g.Embed(m.Embed, 512, hidden, 1)
	for i := range m.Layers {
		l, g := &m.Layers[i], g.Layer(i)
		x := g.RMSNorm(l.Norm, h, eps, 1)
		mixed := g.Act(graph.SiLU, g.Conv(l.Conv, nil, g.Linear(l.QKV, x, 2*groups*n+heads*dim), 4))
		part := func(i int) *graph.Node {
			return g.L2Norm(g.Heads(g.Slice(mixed, i*groups*n, groups*n), n), 1e-6)
		}
		y := g.DeltaScan(l.A, l.DTBias, g.Scale(part(0), 0.25), part(1), g.Heads(g.Slice(mixed, 2*groups*n, heads*dim), dim),
			g.Linear(l.Alpha, x, heads), g.Linear(l.Beta, x, heads)) // [T, heads, dim]
		y = g.Name(g.RMSNorm(l.MixNorm, y, eps, 0), "ssm_norm", "linear_attn.norm.ungated")
		y = g.Name(g.GLU(graph.SiLU, g.Heads(g.Linear(l.Z, x, heads*dim), dim), y), "ssm_gated", "linear_attn.norm.out")
		h = g.Add(h, g.Linear(l.Out, y, hidden))
		x = g.RMSNorm(l.MLPNorm, h, eps, 1)
		h = g.Add(h, g.Linear(l.Down, g.GLU(graph.SiLU, g.Linear(l.Gate, x, ff), g.Linear(l.Up, x, ff)), hidden))
		h = g.Name(h, "out", "out")
	}
	return g.Name(g.Linear(m.Embed, g.Outputs(h), 512), "output", "no head of the model's")
}

// TestDeltaNet proves the gated delta rule by the taps of Qwen 3.5's first two layers: in
// float64 to 1e-5, in float32 to 1e-4, and the same bits over threads and chunks.
func TestDeltaNet(t *testing.T) {
	m := openSeeded(t, "qwen35", func(x *tensor.Tensor) {
		if len(x.Shape) == 3 {
			x.Shape = tensor.Shape{x.Shape[0], x.Shape[2]}
		}
		if strings.HasSuffix(x.Name, ".A_log") {
			negativeExp(x)
		}
	})
	maps.DeleteFunc(m.tensors, func(name string, _ tensor.Tensor) bool {
		return !strings.HasPrefix(name, "model.layers.0.") && !strings.HasPrefix(name, "model.layers.1.") && name != "model.embed_tokens"
	})
	g, r := m.graph(t, &deltaNet{Layers: make([]deltaNetLayer, 2)}), m.record(t)
	float := func(threads int) backend.Backend {
		return cpu.New(cpu.Options{Threads: threads, Precision: cpu.F32, KV: cpu.KVF32})
	}
	for _, c := range []struct {
		b     backend.Backend
		bound float64
	}{{reference.Backend{}, 1e-5}, {float(1), 1e-4}} {
		_, _, taps := pass(t, g, c.b, 1024, r.prompts[2].IDs, 0, true)
		seen, worst := 0, 0.0
		for name, out := range taps {
			want, ok := r.tensors["2.tap."+name]
			if !ok {
				continue
			}
			seen++
			d := farther(out, want)
			if worst = max(worst, d); !(d <= c.bound) {
				t.Errorf("%s differs by %g", name, d)
			}
		}
		if seen < 20 {
			t.Errorf("%d taps", seen)
		}
		t.Logf("%d taps within %.2g", seen, worst)
	}
	ids := r.prompts[7].IDs
	first, _, _ := pass(t, g, float(1), 1024, ids, 0, false)
	for i, chunk := range []int{1, 7, 64} {
		if other, _, _ := pass(t, g, float(i+1), chunk, ids, 0, false); !slices.EqualFunc(first, other, slices.Equal[[]float32]) {
			t.Errorf("other bits in chunks of %d", chunk)
		}
	}
}
