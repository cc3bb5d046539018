package lab

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
)

// llamaCppFloors is how far llama.cpp's own float32 lies from PyTorch's float64
// for the unquantized weights (goldens/README.md). For other weights of the same
// model it may lie a little further: what of it is its half-precision table of
// GELU is measured below, the rest may be a third more.
var llamaCppFloors = map[string]float64{"tiny-llama": 2.5e-5, "tiny-qwen3": 2.6e-5, "tiny-gemma4": 4.2e-3,
	"tiny-gemma4-moe": 3.5e-3, "demo": 7.1e-3, "tiny-gemma3": 1e-2}

// TestLlamaCppGELU shows where llama.cpp's Gemma 4 parts from ours, on its own
// values: up to the first gated product of an MLP nothing differs by more than
// float32 rounding, and there the table, applied to llama.cpp's own gate and up,
// gives its product bit for bit, but for a few results next to a tie.
func TestLlamaCppGELU(t *testing.T) {
	theirs := open(t, golden.Shared(t, "goldens/llamacpp/tiny-gemma4.bf16.safetensors")).Prompt(2).rows()
	gold := open(t, golden.Record(t, "tiny-gemma4").Tensors(t)).Prompt(2).rows()
	for name, module := range map[string]string{"attn_norm-0#0.MUL": "input_layernorm.out", "Qcur_normed-0#0.MUL": "self_attn.q_norm.out",
		"kqv_out-0#0.CONT": "self_attn.o_proj.in", "ffn_gate-0#0.MUL_MAT": "mlp.gate_proj.out", "ffn_up-0#0.MUL_MAT": "mlp.up_proj.out"} {
		if c := compareTap(name, gold["model.layers.0."+module], theirs[name]); c.Broken() || !(c.Whole <= 1e-6) {
			t.Errorf("%s: relative error %.3g %s", name, float64(c.Whole), c.Problem)
		}
	}
	for layer := range 8 {
		gate, up, product := values(theirs[fmt.Sprintf("ffn_gate-%d#0.MUL_MAT", layer)]),
			values(theirs[fmt.Sprintf("ffn_up-%d#0.MUL_MAT", layer)]), values(theirs[fmt.Sprintf("ffn_geglu-%d#0.GLU", layer)])
		other, exact := 0, 0
		for i, x := range gate {
			if float32(round.F16Table.At(x)*up[i]) != float32(product[i]) {
				other++
			}
			if math.Abs(round.Exact.At(x)*up[i]-product[i]) <= 1e-6*math.Abs(product[i]) {
				exact++
			}
		}
		if len(gate) < 2000 || other*100 > len(gate) || exact*2 > len(gate) {
			t.Errorf("layer %d: of %d products %d are not the table's, %d are exact ones", layer, len(gate), other, exact)
		}
	}
}

// values reads all rows of a tap.
func values(r rows) []float64 {
	all := make([]float64, r.n*r.width)
	for i := range r.n {
		r.read(all[i*r.width:(i+1)*r.width], i)
	}
	return all
}

// quantizedFiles are the goldens' quantized files, by NAME.TYPE.
func quantizedFiles(t *testing.T) map[string]string {
	files := map[string]string{"demo.Q4_K_M": filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")}
	for _, f := range golden.Files(t) {
		if name := strings.TrimSuffix(filepath.Base(f), ".gguf"); !strings.HasSuffix(name, ".bf16") {
			files[name] = f
		}
	}
	if golden.Dir(t) != golden.Repo(t) && len(files) != 19 {
		t.Fatalf("%d quantized files, expected 19", len(files))
	}
	return files
}

// graphOf loads a file's graph for prompts of up to 1024 tokens. With llamaCpp, tiny-gemma3 has the attention
// scale that llama.cpp gives it, since that reads no key for it.
func graphOf(t *testing.T, path string, llamaCpp bool) *graph.Graph {
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	g, _, err := arch.LoadFor(c, 1024)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok && llamaCpp && c.Arch == "gemma3" {
			a.Scale = 1. / 8
			n.Attr = a
		}
	}
	return g
}

// TestQuantized runs every quantized file in float64, float32 and fast
// precision over all prompts: float32 lies within the floor of float64, and
// fast within a KL of 1e-6, with the same first choice wherever its margin
// exceeds the difference.
func TestQuantized(t *testing.T) {
	for name, path := range quantizedFiles(t) {
		if !golden.Slow() && strings.HasPrefix(name, "tiny-gemma") {
			continue // the largest
		}
		t.Run(name, func(t *testing.T) {
			model, _, _ := strings.Cut(name, ".")
			gold := open(t, golden.Record(t, model).Tensors(t))
			g := graphOf(t, path, false)
			f64 := exactly(t, path, g, gold)
			f32 := compareAs(t, f64, recordAs(t, g, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), gold), Options{})
			quick := recordAs(t, g, cpu.New(cpu.Options{}), gold)
			fast := compareAs(t, f64, quick, Options{MaxKL: new(1e-6)})
			if !f32.Inside() {
				t.Errorf("float32: max |Δlogit| %.3g", float64(f32.All.MaxAbsDiff))
			}
			if !(fast.All.KLMean <= 1e-6) {
				t.Errorf("fast: mean KL %.3g", float64(fast.All.KLMean))
			}
			for i, p := range f64.Prompts {
				sameChoice(t, p, quick.Prompts[i])
			}
			t.Logf("f32: max |Δlogit| %.2g, KL %.2g; fast: max |Δlogit| %.2g, KL %.2g, top-1 %.4f", float64(f32.All.MaxAbsDiff),
				float64(f32.All.KLMean), float64(fast.All.MaxAbsDiff), float64(fast.All.KLMean), float64(fast.All.Top1))
		})
	}
}

// sameChoice wants the likeliest token of every position to be the same where
// its lead in exact exceeds what the logits differ by.
func sameChoice(t *testing.T, exact, got *Prompt) {
	t.Helper()
	a, b := rowsOf(exact.Logits), rowsOf(got.Logits)
	x, y := make([]float64, a.width), make([]float64, a.width)
	for i := range a.n {
		a.read(x, i)
		b.read(y, i)
		top := TopIDs(x, 2)
		diff, _ := AbsDiff(x, y)
		if TopIDs(y, 1)[0] != top[0] && x[top[0]]-x[top[1]] > 2*diff {
			t.Errorf("prompt %d, row %d: token %d instead of %d, which leads by %.3g", exact.Index, i, TopIDs(y, 1)[0], top[0], x[top[0]]-x[top[1]])
		}
	}
}

// TestLlamaCppDequantized compares our float64 with llama.cpp's float32 over
// the same dequantized weights.
func TestLlamaCppDequantized(t *testing.T) {
	for name, path := range quantizedFiles(t) {
		dir := golden.Dir(t)
		if name == "demo.Q4_K_M" {
			dir = golden.Repo(t)
		}
		record := golden.Tensors(t, filepath.Join(dir, "llamacpp", name+".dequantized.safetensors"))
		if _, err := os.Stat(record); err != nil && dir == golden.Repo(t) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			model, _, _ := strings.Cut(name, ".")
			gold := open(t, golden.Record(t, model).Tensors(t))
			g := graphOf(t, path, true)
			got := exactly(t, path, g, gold)
			bound := 4. / 3 * llamaCppFloors[model]
			if strings.Contains(model, "gemma4") {
				table := compareAs(t, got, recordAs(t, g, reference.Backend{Class: round.Class{GELU: round.F16Table}}, gold), Options{MaxDiff: new(1.)})
				t.Logf("the table of GELU alone: max |Δlogit| %.2g, KL %.2g", float64(table.All.MaxAbsDiff), float64(table.All.KLMean))
				bound = max(bound, 3*float64(table.All.MaxAbsDiff))
			}
			c := compareAs(t, open(t, record), got, Options{MaxDiff: &bound})
			if !c.Inside() || len(c.Prompts) != len(gold.Prompts) {
				t.Errorf("max |Δlogit| %.3g over %d prompts, at most %.3g", float64(c.All.MaxAbsDiff), len(c.Prompts), bound)
			}
			t.Logf("max |Δlogit| %.2g, KL %.2g", float64(c.All.MaxAbsDiff), float64(c.All.KLMean))
		})
	}
}

// exact are float64's records of files, of whose scale of attention there may be two. Several
// tests compare with them, and they take longer than all else.
var exact = map[string]*Record{}

// exactly records gold's prompts in float64, or did so before. g is path's graph.
func exactly(t *testing.T, path string, g *graph.Graph, gold *Record) *Record {
	t.Helper()
	key := path
	for _, n := range g.Nodes {
		if a, ok := n.Attr.(graph.AttentionAttr); ok {
			key += fmt.Sprint(" ", a.Scale)
		}
	}
	if exact[key] == nil {
		exact[key] = recordAs(t, g, reference.Backend{}, gold)
	}
	return exact[key]
}

// recordAs records gold's prompts, and takes over its noise floors.
func recordAs(t *testing.T, g *graph.Graph, b backend.Backend, gold *Record) *Record {
	t.Helper()
	defer b.Close()
	r, err := NewRecorder(t.Context(), g, b, 4096, 8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := &Record{}
	for _, p := range gold.Prompts {
		q := &Prompt{Index: p.Index, Input: p.Input, Text: p.Text, IDs: p.IDs, Float32: p.Float32, BFloat16: p.BFloat16}
		if err := r.Record(t.Context(), q, false); err != nil {
			t.Fatal(err)
		}
		q.Hidden = nil
		out.Prompts = append(out.Prompts, q)
	}
	return out
}

func compareAs(t *testing.T, gold, got *Record, o Options) *Comparison {
	t.Helper()
	c, err := Compare(gold, got, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
