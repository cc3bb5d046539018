package adapter

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

var update = flag.Bool("update", false, "write the corpora of the fuzz targets")

// toy is a model of two layers, the second of which shares the first one's keys and values.
func toy(t testing.TB) *graph.Graph {
	t.Helper()
	weight := func(gguf, hf string, shape ...int) *graph.Weight {
		n := tensor.Shape(shape).Size()
		return &graph.Weight{GGUF: gguf, HF: hf, Tensor: tensor.Tensor{Name: hf, DType: tensor.F32, Shape: shape, Data: make([]byte, 4*n)}}
	}
	b := graph.New()
	table := weight("token_embd", "model.embed_tokens", 10, 4)
	h := b.Embed(table, 10, 4, 1)
	kv := &graph.KV{Heads: 1, Dim: 6}
	for i, names := range [][2]string{{"blk.0", "model.layers.0"}, {"blk.1", "model.layers.1"}} {
		l := b.Layer(i)
		of := func(gguf, hf string, shape ...int) *graph.Weight {
			return weight(names[0]+"."+gguf, names[1]+".self_attn."+hf, shape...)
		}
		q := l.Heads(l.Linear(of("attn_q", "q_proj", 6, 4), h, 6), 6)
		if i == 0 {
			l.StoreKV(kv, l.Heads(l.Linear(of("attn_k", "k_proj", 6, 4), h, 6), 6), l.Heads(l.Linear(of("attn_v", "v_proj", 6, 4), h, 6), 6))
		}
		h = l.Add(h, l.Linear(of("attn_output", "o_proj", 4, 6), l.Attention(q, kv, 1), 4))
	}
	h = b.RMSNorm(weight("output_norm", "model.norm", 4), b.Outputs(h), 1e-6, 0)
	b.Name(b.Linear(table, h, 10), "output", "lm_head.out")
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func zeros(name string, shape ...int) tensor.Tensor {
	return tensor.Tensor{Name: name, DType: tensor.F32, Shape: shape, Data: make([]byte, 4*tensor.Shape(shape).Size())}
}

const prefix = "base_model.model.model.layers.0.self_attn."

// q is a good pair of each format.
func q(format checkpoint.Format, rank int) []tensor.Tensor {
	if format == checkpoint.GGUF {
		return []tensor.Tensor{zeros("blk.0.attn_q.weight.lora_a", rank, 4), zeros("blk.0.attn_q.weight.lora_b", 6, rank)}
	}
	return []tensor.Tensor{zeros(prefix+"q_proj.lora_A.weight", rank, 4), zeros(prefix+"q_proj.lora_B.weight", 6, rank)}
}

// files are an adapter's parts, which tests spoil.
type files struct {
	keys    map[string]any // GGUF's metadata, or adapter_config.json
	tensors []tensor.Tensor
}

func good(format checkpoint.Format) *files {
	if format == checkpoint.GGUF {
		return &files{map[string]any{"general.architecture": "toy", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": float32(4)}, q(format, 2)}
	}
	return &files{map[string]any{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": []string{"q_proj", "k_proj", "lm_head"}}, q(format, 2)}
}

// bytes are the files: of GGUF one, of PEFT the configuration and the tensors.
func (f *files) bytes(t testing.TB, format checkpoint.Format) (config, tensors []byte) {
	t.Helper()
	var b bytes.Buffer
	var err error
	if format == checkpoint.GGUF {
		var keys []gguf.KeyValue
		for _, k := range slices.Sorted(maps.Keys(f.keys)) {
			keys = append(keys, gguf.KeyValue{Key: k, Value: f.keys[k]})
		}
		err = gguf.Write(&b, keys, f.tensors)
	} else if config, err = json.Marshal(f.keys); err == nil {
		err = safetensors.Write(&b, f.tensors, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config, b.Bytes()
}

// parse reads the bytes of files and binds them to toy.
func parse(g *graph.Graph, format checkpoint.Format, config, tensors []byte) (a *backend.Adapter, notes []string, err error) {
	var f *File
	if format == checkpoint.GGUF {
		var file *gguf.File
		if file, err = gguf.Parse(tensors); err == nil {
			f, err = fromGGUF(file)
		}
	} else {
		var file *safetensors.File
		if file, err = safetensors.Parse(tensors); err == nil {
			f, err = fromPEFT(config, file)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return f.bind("toy", func(string) checkpoint.Habit { return checkpoint.Habit{} }, g)
}

// spoiled are files that are refused, by what the error says; an empty text is one that is taken.
var spoiled = map[checkpoint.Format][]struct {
	name, want string
	do         func(f *files)
}{
	checkpoint.GGUF: {
		{"good", "", func(*files) {}},
		{"a model", `key general.type is "model"`, func(f *files) { f.keys["general.type"] = "model" }},
		{"no type", `no adapter: key "general.type"`, func(f *files) { delete(f.keys, "general.type") }},
		{"a control vector", `key adapter.type is "control_vector"`, func(f *files) { f.keys["adapter.type"] = "control_vector" }},
		{"another family", `architecture "llama", the model's is "toy"`, func(f *files) { f.keys["general.architecture"] = "llama" }},
		{"activated", "adapter.alora.invocation_tokens", func(f *files) { f.keys["adapter.alora.invocation_tokens"] = []uint32{1} }},
		{"alpha is text", `key "adapter.lora.alpha"`, func(f *files) { f.keys["adapter.lora.alpha"] = "4" }},
		{"alpha is infinite", "a scale of +Inf", func(f *files) { f.keys["adapter.lora.alpha"] = float32(math.Inf(1)) }},
		{"no alpha", "", func(f *files) { delete(f.keys, "adapter.lora.alpha") }},
		{"a NaN", "blk.0.attn_q.weight.lora_a: it has a value of NaN", func(f *files) {
			f.tensors[0].Data = slices.Clone(f.tensors[0].Data)
			binary.LittleEndian.PutUint32(f.tensors[0].Data[4:], math.Float32bits(float32(math.NaN())))
		}},
		{"no tensors", "it has no pairs", func(f *files) { f.tensors = nil }},
		{"a norm", "blk.0.attn_norm.weight: it is no half of a pair", func(f *files) { f.tensors = append(f.tensors, zeros("blk.0.attn_norm.weight", 4)) }},
		{"half a pair", "blk.0.attn_q.weight.lora_a: the other half", func(f *files) { f.tensors = f.tensors[:1] }},
		{"unknown layer", "blk.7.attn_q.weight.lora_a: the model has no layer", func(f *files) {
			f.tensors[0].Name, f.tensors[1].Name = "blk.7.attn_q.weight.lora_a", "blk.7.attn_q.weight.lora_b"
		}},
		{"embeddings", "token_embd.weight.lora_a: token_embd is no linear layer but of operation embed", func(f *files) {
			f.tensors[0].Name, f.tensors[1].Name = "token_embd.weight.lora_a", "token_embd.weight.lora_b"
		}},
		{"the head", "", func(f *files) {
			f.tensors = []tensor.Tensor{zeros("output.weight.lora_a", 1, 4), zeros("output.weight.lora_b", 10, 1)}
		}},
		{"keys that nobody reads", "", func(f *files) {
			f.tensors = append(f.tensors, zeros("blk.1.attn_k.weight.lora_a", 2, 9), zeros("blk.1.attn_k.weight.lora_b", 9, 2))
		}},
		{"another width", "shape [2 5], the layer wants [rank, 4]", func(f *files) { f.tensors[0] = zeros(f.tensors[0].Name, 2, 5) }},
		{"another height", "shape [7 2], the layer wants [6, 2]", func(f *files) { f.tensors[1] = zeros(f.tensors[1].Name, 7, 2) }},
		{"another rank", "shape [6 3], the layer wants [6, 2]", func(f *files) { f.tensors[1] = zeros(f.tensors[1].Name, 6, 3) }},
		{"a vector", "the layer wants [rank, 4]", func(f *files) { f.tensors[0] = zeros(f.tensors[0].Name, 8) }},
		{"experts", "the layer wants [rank, 4]", func(f *files) { f.tensors[0] = zeros(f.tensors[0].Name, 3, 2, 4) }},
		{"integers", "type I32 is not supported", func(f *files) { f.tensors[0].DType = tensor.I32 }},
	},
	checkpoint.HuggingFace: {
		{"good", "", func(*files) {}},
		{"another method", `key peft_type is "IA3"`, func(f *files) { f.keys["peft_type"] = "IA3" }},
		{"DoRA", "key use_dora is true: not supported", func(f *files) { f.keys["use_dora"] = true }},
		{"layers of its own", "key modules_to_save is [lm_head]", func(f *files) { f.keys["modules_to_save"] = []string{"lm_head"} }},
		{"biases", `key bias is "all"`, func(f *files) { f.keys["bias"] = "all" }},
		{"biases of B", "key lora_bias is true", func(f *files) { f.keys["lora_bias"] = true }},
		{"tokens", "key trainable_token_indices", func(f *files) { f.keys["trainable_token_indices"] = []int{1} }},
		{"activated", "key alora_invocation_tokens", func(f *files) { f.keys["alora_invocation_tokens"] = []int{1} }},
		{"more layers", "key layer_replication", func(f *files) { f.keys["layer_replication"] = [][]int{{0, 1}, {0, 2}} }},
		{"PiSSA", `key init_lora_weights is "pissa"`, func(f *files) { f.keys["init_lora_weights"] = "pissa" }},
		{"a key of tomorrow", "key use_magic is true", func(f *files) { f.keys["use_magic"] = true }},
		{"a key of tomorrow, off", "", func(f *files) { f.keys["use_magic"] = false }},
		{"fan in fan out", "", func(f *files) { f.keys["fan_in_fan_out"] = true }},
		{"a rank that is text", "adapter_config.json: r: a JSON string, want an integer", func(f *files) { f.keys["r"] = "2" }},
		{"another rank", "rank 2, adapter_config.json says 8", func(f *files) { f.keys["r"] = 8 }},
		{"a rank by name", "", func(f *files) {
			f.keys["r"], f.keys["rank_pattern"] = 8, map[string]int{`^model\.layers\.0\.self_attn\.q_proj`: 2}
		}},
		{"a rank by expression", "an expression is not supported", func(f *files) { f.keys["rank_pattern"] = map[string]int{".*q_proj": 2} }},
		{"two alphas", "have different values", func(f *files) { f.keys["alpha_pattern"] = map[string]int{"q_proj": 2, "self_attn.q_proj": 3} }},
		{"another layer", "none of adapter_config.json's layers_to_transform", func(f *files) { f.keys["layers_to_transform"] = []int{7} }},
		{"not layer 0", "none of adapter_config.json's layers_to_transform", func(f *files) { f.keys["layers_to_transform"] = 7 }},
		{"no target", "none of adapter_config.json's target_modules", func(f *files) { f.keys["target_modules"] = []string{"v_proj"} }},
		{"magnitudes", "DoRA is not supported", func(f *files) { f.tensors = append(f.tensors, zeros(prefix+"q_proj.lora_magnitude_vector", 6)) }},
		{"embeddings", "a pair for embeddings is not supported", func(f *files) {
			f.tensors = append(f.tensors, zeros("base_model.model.model.embed_tokens.lora_embedding_A", 2, 10))
		}},
		{"a whole layer", "it is no half of a pair", func(f *files) { f.tensors = append(f.tensors, zeros("base_model.model.lm_head.weight", 10, 4)) }},
		{"the head", "", func(f *files) {
			f.tensors = []tensor.Tensor{zeros("base_model.model.lm_head.lora_A.weight", 2, 4), zeros("base_model.model.lm_head.lora_B.weight", 10, 2)}
		}},
		{"keys that nobody reads", "", func(f *files) {
			f.tensors = append(f.tensors, zeros("base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight", 2, 4), zeros("base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight", 6, 2))
		}},
		{"a multimodal model's name", "", func(f *files) {
			for i := range f.tensors {
				f.tensors[i].Name = strings.Replace(f.tensors[i].Name, "model.model.layers", "model.model.language_model.layers", 1)
			}
		}},
		{"one layer by two names", "a second pair", func(f *files) {
			for _, t := range q(checkpoint.HuggingFace, 2) {
				t.Name = strings.Replace(t.Name, "model.model.layers", "model.model.language_model.layers", 1)
				f.tensors = append(f.tensors, t)
			}
		}},
		{"a key in capitals", "key Lora_alpha is not spelled lora_alpha", func(f *files) { f.keys["Lora_alpha"] = 0. }},
		{"a scale that no float32 holds", "a scale of 2.5e+39", func(f *files) { f.keys["lora_alpha"] = 5e39 }},
	},
}

// TestFiles: files that are read, and files that are refused by name.
func TestFiles(t *testing.T) {
	g := toy(t)
	for format, cases := range spoiled {
		for _, c := range cases {
			f := good(format)
			c.do(f)
			config, tensors := f.bytes(t, format)
			a, notes, err := parse(g, format, config, tensors)
			if c.want == "" && (err != nil || len(a.Pairs) != 1 || (len(notes) > 0) != (c.name == "keys that nobody reads")) ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s, %s: %v, notes %q, want %q", format, c.name, err, notes, c.want)
			}
		}
	}
}

// TestRank: a rank has a bound. Its file is too large for the corpus.
func TestRank(t *testing.T) {
	f := good(checkpoint.HuggingFace)
	f.tensors = q(checkpoint.HuggingFace, maxRank+1)
	config, tensors := f.bytes(t, checkpoint.HuggingFace)
	if _, _, err := parse(toy(t), checkpoint.HuggingFace, config, tensors); err == nil || !strings.Contains(err.Error(), "a rank of 65537") {
		t.Error(err)
	}
}

// TestScale: alpha over the rank, or over its root, and GGUF's 0 for 1.
func TestScale(t *testing.T) {
	g := toy(t)
	scale := func(format checkpoint.Format, do func(f *files)) float64 {
		f := good(format)
		do(f)
		config, tensors := f.bytes(t, format)
		a, _, err := parse(g, format, config, tensors)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range a.Pairs {
			return p.Scale
		}
		return 0
	}
	for _, c := range []struct {
		format checkpoint.Format
		want   float64
		do     func(f *files)
	}{
		{checkpoint.GGUF, 2, func(*files) {}},
		{checkpoint.GGUF, 1, func(f *files) { delete(f.keys, "adapter.lora.alpha") }},
		{checkpoint.HuggingFace, 2, func(*files) {}},
		{checkpoint.HuggingFace, 4 / math.Sqrt(2), func(f *files) { f.keys["use_rslora"] = true }},
		{checkpoint.HuggingFace, 5, func(f *files) { f.keys["alpha_pattern"] = map[string]int{"self_attn.q_proj": 10, "k_proj": 3} }},
		{checkpoint.HuggingFace, 4, func(f *files) { // PEFT's defaults
			f.tensors = q(checkpoint.HuggingFace, 8)
			delete(f.keys, "r")
			f.keys["lora_alpha"] = 32
		}},
	} {
		if got := scale(c.format, c.do); got != c.want {
			t.Errorf("%s: a scale of %v, want %v", c.format, got, c.want)
		}
	}
}

// TestHash: an adapter is known by what it computes, whatever its format.
func TestHash(t *testing.T) {
	g := toy(t)
	hashOf := func(format checkpoint.Format, first byte) [32]byte {
		f := good(format)
		f.tensors[0].Data[0] = first
		config, tensors := f.bytes(t, format)
		a, _, err := parse(g, format, config, tensors)
		if err != nil {
			t.Fatal(err)
		}
		return a.Hash
	}
	if hashOf(checkpoint.GGUF, 1) != hashOf(checkpoint.HuggingFace, 1) || hashOf(checkpoint.GGUF, 1) == hashOf(checkpoint.GGUF, 2) {
		t.Error("hashes do not tell adapters apart, or two formats of one")
	}
}

// TestOpen: folders and files that are no adapters, by path.
func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	config, tensors := good(checkpoint.HuggingFace).bytes(t, checkpoint.HuggingFace)
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string) {
		t.Helper()
		if f, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%v, %v; want %q", f, err, want)
		}
	}
	refused("adapter_config.json")
	if err := os.Mkdir(filepath.Join(dir, "adapter_config.json"), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || strings.Count(err.Error(), dir) != 1 {
		t.Errorf("%v, want the folder once", err)
	}
	if err := os.Remove(filepath.Join(dir, "adapter_config.json")); err != nil {
		t.Fatal(err)
	}
	write("adapter_config.json", config)
	write("adapter_model.bin", nil)
	refused("adapter_model.safetensors is missing")
	write("adapter_model.safetensors", tensors)
	f, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.Bytes() != 4*(2*4+6*2) {
		t.Errorf("%d bytes", f.Bytes())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	write("adapter_config.json", make([]byte, maxConfig+1))
	refused("at most 1048576")
	if _, err := Open(filepath.Join(dir, "none")); err == nil {
		t.Error("a path to nothing was opened")
	}
	write("adapter_config.json", []byte("{}"))
	t.Chdir(filepath.Dir(dir))
	if _, err := Open("adapter"); err == nil || !strings.HasPrefix(err.Error(), "adapter: adapter_config.json: ") {
		t.Errorf("%v, want the folder before the file", err)
	}
}

// TestCorpus keeps the committed corpora in step with the hostile files. A folder's are its
// configuration, a zero byte, and its tensors.
func TestCorpus(t *testing.T) {
	for format, cases := range spoiled {
		seeds := map[string][]byte{}
		for i, c := range cases {
			if i%3 > 0 && c.want != "" {
				continue // the fuzzer finds the others from these
			}
			f := good(format)
			c.do(f)
			config, tensors := f.bytes(t, format)
			if format == checkpoint.HuggingFace {
				tensors = slices.Concat(config, []byte{0}, tensors)
			}
			seeds[c.name] = tensors
		}
		golden.Corpus(t, map[checkpoint.Format]string{checkpoint.GGUF: "FuzzGGUF", checkpoint.HuggingFace: "FuzzPEFT"}[format], seeds, *update)
	}
}

// sound wants of an adapter that was taken what the kernels rely on.
func sound(t *testing.T, a *backend.Adapter) {
	t.Helper()
	if len(a.Pairs) == 0 {
		t.Error("an adapter of nothing")
	}
	for w, p := range a.Pairs {
		if p.Rank < 1 || len(p.A) != p.Rank*w.Shape[1] || len(p.B) != w.Shape[0]*p.Rank || !(math.Abs(p.Scale) <= math.MaxFloat32) {
			t.Errorf("%s: rank %d, %d and %d numbers, a scale of %v", w.Name, p.Rank, len(p.A), len(p.B), p.Scale)
		}
	}
}

// FuzzGGUF: any bytes give an error or a sound adapter.
func FuzzGGUF(f *testing.F) {
	g := toy(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if a, _, err := parse(g, checkpoint.GGUF, nil, data); err == nil {
			sound(t, a)
		}
	})
}

// FuzzPEFT is FuzzGGUF for folders.
func FuzzPEFT(f *testing.F) {
	g := toy(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		config, tensors, _ := bytes.Cut(data, []byte{0})
		if a, _, err := parse(g, checkpoint.HuggingFace, config, tensors); err == nil {
			sound(t, a)
		}
	})
}
