package lab

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/logprob"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// perplexityFile is what llama-perplexity writes of logits [chunks·rows][vocabulary].
func perplexityFile(t *testing.T, context int, ids []int32, logits [][]float32) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := logprob.NewWriter(&b, context, len(logits[0]), ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range logits {
		if err := w.Row(row, LogSumExp(row)); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func importAll(t *testing.T, path, form string) (*Import, []*Prompt) {
	t.Helper()
	in, err := OpenImport(path, form)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	var all []*Prompt
	if err := in.Each(func(p *Prompt) error { all = append(all, p); return p.check() }); err != nil {
		t.Fatal(err)
	}
	return in, all
}

func TestImportLogits(t *testing.T) {
	for _, vocab := range []int{5, 6} {
		row := func(i int) []float32 {
			x := []float32{float32(i), 2, -40, 7.5, -3, 1}
			return x[:vocab]
		}
		// Contexts of 6: rows of the positions 3 and 4, of which the last id is not a part.
		path := filepath.Join(t.TempDir(), "base.kld")
		data := perplexityFile(t, 6, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, [][]float32{row(0), row(1), row(2), row(3)})
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		in, all := importAll(t, path, "")
		if in.Form != FormLogits || len(all) != 2 || len(in.Notes) != 1 {
			t.Fatalf("%s: %d prompts, %v", in.Form, len(all), in.Notes)
		}
		for c, p := range all {
			if p.Index != c || !slices.Equal(p.IDs, []int32{1, 2, 3, 4, 5}) && c == 0 || p.IDs[0] != int32(1+6*c) || len(p.IDs) != 5 || !slices.Equal(p.Logits.Shape, []int{2, vocab}) {
				t.Fatalf("%v %v", p.IDs, p.Logits.Shape)
			}
			x := make([]float64, vocab)
			for r := range 2 {
				rowsOf(p.Logits).read(x, r)
				want := row(2*c + r)
				norm := LogSumExp(want)
				for j, v := range want {
					v := math.Max(float64(v), 7.5-16) - norm
					if math.Abs(x[j]-v) > 16./65535 {
						t.Errorf("chunk %d, row %d, token %d: %v, want %v", c, r, j, x[j], v)
					}
				}
			}
		}
		in.Begin(99)
		if err := in.Each(func(p *Prompt) error {
			if p.IDs[0] != 99 || p.IDs[1] == 99 {
				t.Errorf("ids %v", p.IDs)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if err := os.WriteFile(path, data[:len(data)-1], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenImport(path, ""); err == nil {
			t.Error("a file that was cut off is no error")
		}
	}
}

// tree writes the files of a debug tree, each with its tensor.
func tree(t *testing.T, class string, tensors map[string]*tensor.Tensor) string {
	t.Helper()
	files := map[string][]byte{}
	for _, end := range debugTrees {
		files[class+end] = []byte("{}")
	}
	for name, x := range tensors {
		var b bytes.Buffer
		if err := safetensors.Write(&b, []tensor.Tensor{{Name: "data", DType: x.DType, Shape: x.Shape, Data: x.Data}}, nil); err != nil {
			t.Fatal(err)
		}
		files[name+".safetensors"] = b.Bytes()
	}
	return folder(t, files)
}

// TestImportDebugTree makes a tree of what PyTorch computed and finds it placed.
func TestImportDebugTree(t *testing.T) {
	gold := open(t, golden.Record(t, "tiny-llama").Tensors(t)).Prompt(2)
	n := len(gold.IDs)
	ids := &tensor.Tensor{DType: tensor.I64, Shape: tensor.Shape{1, n}}
	for _, id := range gold.IDs {
		ids.Data = binary.LittleEndian.AppendUint64(ids.Data, uint64(id))
	}
	batch := func(x *tensor.Tensor) *tensor.Tensor {
		return &tensor.Tensor{DType: x.DType, Shape: append(tensor.Shape{1}, x.Shape...), Data: x.Data}
	}
	const class = "LlamaForCausalLM"
	tensors := map[string]*tensor.Tensor{
		class + "_inputs_kwargs_input_ids":                              ids,
		class + "_outputs_logits":                                       batch(gold.Logits),
		class + ".model.layers.1_inputs_args_0":                         batch(gold.Taps["model.layers.0.out"]),
		class + ".model.layers.1.mlp_inputs_args_0":                     batch(gold.Taps["model.layers.1.post_attention_layernorm.out"]),
		class + ".model.layers.0.mlp.down_proj_inputs_args_0":           batch(gold.Taps["model.layers.0.mlp.down_proj.in"]),
		class + ".model.layers.0.self_attn.q_proj_outputs":              batch(gold.Taps["model.layers.0.self_attn.q_proj.out"]),
		class + ".model.layers.0.self_attn.o_proj_inputs_args_0":        batch(gold.Taps["model.layers.0.self_attn.o_proj.in"]),
		class + ".model.embed_tokens_inputs_args_0":                     ids,
		class + ".model.norm_outputs":                                   batch(gold.Taps["model.norm.out"]),
		class + ".model.layers.1.self_attn_inputs_kwargs_hidden_states": batch(gold.Taps["model.layers.1.input_layernorm.out"]),
		class + "_outputs_something":                                    ids,
		"Other.model.norm_outputs":                                      batch(gold.Taps["model.norm.out"]),
	}
	in, all := importAll(t, tree(t, class, tensors), "")
	if in.Form != FormHFDebug || len(all) != 1 || !slices.Equal(all[0].IDs, gold.IDs) || len(all[0].Taps) != 7 {
		t.Fatalf("%s: %d prompts, %+v", in.Form, len(all), all[0])
	}
	g := loadGraph(t, golden.Model(t, "tiny-llama"))
	if l := placedWell(t, g, NamesHF, all[0], 1e-5, `^$`); len(l.Taps) != 8 {
		t.Errorf("%d placed", len(l.Taps))
	}

	// Printed tensors are of no use, nor is a batch, nor a link out of the folder.
	for name, c := range map[string]struct {
		dir  string
		want string
	}{
		"printed":     {folder(t, map[string][]byte{class + debugTrees[0]: []byte("{}")}), "use_repr=False"},
		"two classes": {folder(t, map[string][]byte{"A" + debugTrees[0]: nil, "B" + debugTrees[0]: nil}), `"A" and "B"`},
		"batch":       {tree(t, class, map[string]*tensor.Tensor{class + "_outputs_logits": named("", tensor.F32, 2, 1, 3)}), "a batch"},
		"twice": {tree(t, class, map[string]*tensor.Tensor{class + ".a_outputs": named("", tensor.F32, 1, 3), class + ".a_outputs_0": named("", tensor.F32, 1, 3)}),
			class + `.a_outputs_0.safetensors": prompt 0: tap.a.out a second time, "` + class + `.a_outputs.safetensors"`},
		"logits twice": {tree(t, class, map[string]*tensor.Tensor{class + "_outputs_logits": named("", tensor.F32, 1, 3), class + "_outputs_0": named("", tensor.F32, 1, 3)}),
			class + `_outputs_logits.safetensors": prompt 0: logits a second time, "` + class + `_outputs_0.safetensors"`},
		"ids":     {tree(t, class, map[string]*tensor.Tensor{class + "_inputs_args_0": named("", tensor.F32, 1, 3)}), "F32, want I32"},
		"corrupt": {folder(t, map[string][]byte{class + debugTrees[0]: nil, class + ".a_outputs.safetensors": []byte("x")}), `.a_outputs.safetensors": `},
	} {
		if _, err := OpenImport(c.dir, FormHFDebug); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestImportBin(t *testing.T) {
	dir := folder(t, map[string][]byte{
		"llamacpp-x.bin": floats(tensor.F32, nil, 1, 2, 3).Data, "llamacpp-x-tokens.bin": {7, 0, 0, 0, 8, 0, 0, 0},
		"odd.bin": {1, 2, 3}, "odd-tokens.bin": {7, 0, 0, 0}, "alone.bin": {0, 0, 0, 0},
	})
	_, all := importAll(t, filepath.Join(dir, "llamacpp-x.bin"), "")
	if p := all[0]; !slices.Equal(p.IDs, []int32{7, 8}) || fmt.Sprint(p.Logits.Shape) != "[1 3]" {
		t.Errorf("%+v", p)
	}
	for _, name := range []string{"odd.bin", "alone.bin", "absent.bin"} {
		if _, err := OpenImport(filepath.Join(dir, name), ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := OpenImport(dir, "onnx"); err == nil {
		t.Error("a form that there is not")
	}
}

// TestTranslate turns llama.cpp's record of a model into one with PyTorch's names and
// compares it with PyTorch's.
func TestTranslate(t *testing.T) {
	gold := open(t, golden.Record(t, "tiny-llama").Tensors(t))
	in, all := importAll(t, golden.Shared(t, "goldens/llamacpp/tiny-llama.bf16.safetensors"), "")
	if in.Form != FormLlamaCpp || in.Names != NamesLlamaCpp {
		t.Errorf("%s, names of %s", in.Form, in.Names)
	}
	g := loadGraph(t, golden.Model(t, "tiny-llama"))
	for _, p := range all {
		if err := p.Take(gold.Prompt(p.Index)); err != nil {
			t.Fatal(err)
		}
	}
	p := all[slices.IndexFunc(all, func(p *Prompt) bool { return p.Index == 2 })]
	left, err := p.Translate(g, in.Names)
	if err != nil || len(left) != 17 {
		t.Errorf("%d left out, %v", len(left), err)
	}
	c, err := Compare(&Record{Prompts: []*Prompt{gold.Prompt(2)}}, &Record{Prompts: []*Prompt{p}}, Options{MaxDiff: new(1e-4)})
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, tap := range c.Prompts[0].Taps {
		if tap.Problem == "" {
			compared++
			if !(tap.Worst <= 1e-5) {
				t.Errorf("%s: off by %v", tap.Name, tap.Worst)
			}
		}
	}
	if compared < 50 || !c.Inside() {
		t.Errorf("%d taps compared", compared)
	}
}
