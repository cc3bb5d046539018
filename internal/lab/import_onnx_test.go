package lab

import (
	"encoding/binary"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

var update = flag.Bool("update", false, "write the corpus of FuzzONNX")

// proto returns a TensorProto as ONNX Runtime's debug build writes it: dims, data_type, name and raw_data.
func proto(name string, kind int, shape []int, raw []byte) (b []byte) {
	for _, n := range shape {
		b = binary.AppendUvarint(append(b, 1<<3), uint64(n))
	}
	b = binary.AppendUvarint(append(b, 2<<3), uint64(kind))
	b = append(binary.AppendUvarint(append(b, 8<<3|2), uint64(len(name))), name...)
	return append(binary.AppendUvarint(append(b, 9<<3|2), uint64(len(raw))), raw...)
}

// protoFloats returns a TensorProto of float32 numbers that count from first on.
func protoFloats(name string, first int, shape ...int) []byte {
	var raw []byte
	size := 1
	for _, n := range shape {
		size *= n
	}
	for i := range size {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(first+i)))
	}
	return proto(name, 1, shape, raw)
}

// onnxIDs returns a TensorProto of ids.
func onnxIDs(ids ...uint64) []byte {
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint64(raw, id)
	}
	return proto("input_ids", 7, []int{1, len(ids)}, raw)
}

// onnxBase returns the file of a value.
func onnxBase(name string) string {
	return strings.Map(func(c rune) rune {
		if strings.ContainsRune("/.", c) {
			return '_'
		}
		return c
	}, name) + onnxEnding
}

// TestImportONNX reads folders with the layout of ONNX Runtime's debug build, of the names that torch.onnx and
// onnxruntime-genai's builder give. Each tap has a place in a graph.
func TestImportONNX(t *testing.T) {
	exported := map[string]string{
		"/model/embed_tokens/Gather_output_0":                     "embed_tokens.out",
		"/model/layers.0/input_layernorm/Mul_output_0":            "",
		"/model/layers.0/input_layernorm/Mul_1_output_0":          "layers.0.input_layernorm.out",
		"/model/layers.0/input_layernorm/Pow_output_0":            "",
		"/model/layers.1/self_attn/q_proj/MatMul_output_0":        "layers.1.self_attn.q_proj.out",
		"/model/layers.1/self_attn/o_proj/MatMul_output_0":        "layers.1.self_attn.o_proj.out",
		"/model/layers.1/self_attn/Softmax_output_0":              "",
		"/model/layers.1/mlp/Mul_output_0":                        "layers.1.mlp.down_proj.in",
		"/model/layers.1/Add_output_0":                            "",
		"/model/layers.1/Add_1_output_0":                          "layers.1.out",
		"/model/norm/Mul_1_output_0":                              "norm.out",
		"onnx::MatMul_991":                                        "",
		"model.norm.weight":                                       "",
		"/model/layers.0/post_attention_layernorm/Mul_1_output_0": "layers.0.post_attention_layernorm.out",
	}
	built := map[string]string{
		"/model/embed_tokens/Gather/output_0":                    "embed_tokens.out",
		"/model/layers.1/input_layernorm/output_0":               "layers.1.input_layernorm.out",
		"/model/layers.1/input_layernorm/output_3":               "layers.0.out",
		"/model/layers.0/attn/k_proj/MatMul/output_0":            "layers.0.self_attn.k_proj.out",
		"/model/layers.0/attn/v_proj/MatMulNBits/output_0":       "layers.0.self_attn.v_proj.out",
		"/model/layers.0/attn/q_rotary/RotaryEmbedding/output_0": "layers.0.self_attn.q_rope.out",
		"/model/layers.0/attn/GroupQueryAttention/output_0":      "layers.0.self_attn.o_proj.in",
		"/model/layers.0/mlp/Mul/output_0":                       "layers.0.mlp.down_proj.in",
		"/model/layers.8/final_norm_layernorm/output_0":          "norm.out",
		"/model/layers.8/final_norm_layernorm/output_3":          "layers.7.out",
		"/model/layers.0/post_attention_layernorm/output_3":      "",
		"/model/layers.0/attn/seqlens_k/Sub/output_0":            "",
	}
	l := newPlacer(loadGraph(t, golden.Model(t, "tiny-llama")), &Prompt{})
	for name, names := range map[string]map[string]string{"torch.onnx": exported, "builder": built} {
		files := map[string][]byte{onnxBase("input_ids"): onnxIDs(7, 8), onnxBase("logits"): protoFloats("logits", 1, 1, 2, 3),
			"attention_mask.tensorproto": proto("attention_mask", 9, []int{1, 2}, []byte{1, 1})}
		var want []string
		for edge, tap := range names {
			if files[onnxBase(edge)] = protoFloats(edge, 5, 1, 2, 4); tap != "" {
				want = append(want, "model."+tap)
			}
		}
		dir := folder(t, files)
		in, all := importAll(t, dir, "")
		got := slices.Sorted(maps.Keys(all[0].Taps))
		slices.Sort(want)
		if in.Form != FormONNX || !slices.Equal(got, want) || !slices.Equal(all[0].IDs, []int32{7, 8}) || all[0].Logits.Shape[0] != 2 || len(in.Notes) != 1 {
			t.Errorf("%s: %q, want %q; %v, %q", name, got, want, all[0].IDs, in.Notes)
		}
		for _, tap := range got {
			if s := l.hf(tap); s.node == nil && !strings.Contains(tap, "layers.7") {
				t.Errorf("%s: %s: %+v", name, tap, s)
			}
		}
		if s := tapsOf(all[0])[0]; s != "model.embed_tokens.out [2 4] 5..12" {
			t.Error(s)
		}
	}
	runs := t.TempDir()
	for i, ids := range [][]uint64{{1, 2}, {3}} {
		dir := filepath.Join(runs, string(rune('0'+i)))
		bias := "/model/layers.0/self_attn/q_proj/"
		for name, data := range map[string][]byte{"a": onnxIDs(ids...), "b": protoFloats(bias+"MatMul_output_0", 0, 1, len(ids), 2),
			"c": protoFloats(bias+"Add_output_0", 9, 1, len(ids), 2)} {
			if err := os.MkdirAll(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+onnxEnding), data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, all := importAll(t, runs, "")
	if len(all) != 2 || !slices.Equal(all[1].IDs, []int32{3}) || !slices.Equal(tapsOf(all[1]), []string{"model.layers.0.self_attn.q_proj.out [1 2] 9..10"}) {
		t.Errorf("%d prompts, %q", len(all), tapsOf(all[len(all)-1]))
	}
	for name, data := range map[string][]byte{"short": protoFloats("logits", 0, 2, 3)[:20], "none": {}, "fewer numbers": proto("logits", 1, []int{2, 3}, make([]byte, 20)),
		"elsewhere": append(proto("logits", 1, []int{1, 1}, make([]byte, 4)), 14<<3, 1), "huge": proto("logits", 1, []int{1 << 40, 1 << 40}, nil)} {
		dir := folder(t, map[string][]byte{"ids" + onnxEnding: onnxIDs(7), "x" + onnxEnding: data})
		if _, err := OpenImport(dir, ""); err == nil || !strings.Contains(err.Error(), "x"+onnxEnding) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// onnxSeeds are the corpus of FuzzONNX.
func onnxSeeds() map[string][]byte {
	return map[string][]byte{"ids": onnxIDs(7, 8), "floats": protoFloats("/model/layers.0/mlp/Mul_output_0", 1, 1, 2, 2),
		"packed dims": append([]byte{1<<3 | 2, 2, 1, 2}, proto("logits", 10, nil, make([]byte, 4))...),
		"elsewhere":   append(proto("logits", 1, []int{1, 1}, nil), 14<<3, 1, 13<<3|2, 0)}
}

// TestCorpusONNX wants the committed corpus.
func TestCorpusONNX(t *testing.T) { golden.Corpus(t, "FuzzONNX", onnxSeeds(), *update) }

// FuzzONNX wants values that fit their shape, or an error, of any bytes.
func FuzzONNX(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parseONNX(data)
		if err != nil || v.tap == "" {
			return
		}
		prompt := 0
		x, err := (&arrayInfo{Name: v.tap, Prompt: &prompt, DType: v.dtype}).tensor(v.array)
		if err != nil {
			t.Fatal(err)
		}
		if size := x.Shape.Size() * x.DType.BlockBytes(); size != len(x.Data) {
			t.Errorf("%v of %v: %d bytes", x.DType, x.Shape, len(x.Data))
		}
	})
}
