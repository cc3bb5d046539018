package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

const smallConfig = `{"model_type": "llama", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
	"num_attention_heads": 2, "max_position_embeddings": 77, "eos_token_id": 9, "top_k": 5}`

// open opens a folder of one tensor and the files.
func open(t *testing.T, files map[string]string) (*Checkpoint, error) {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"config.json": smallConfig}
	maps.Copy(all, files)
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	norm := tensor.Tensor{Name: "model.norm.weight", DType: tensor.F16, Shape: tensor.Shape{8}, Data: make([]byte, 16)}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), []tensor.Tensor{norm}, nil); err != nil {
		t.Fatal(err)
	}
	c, err := Open(dir)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

// TestTemplate finds the chat template where the file's age has put it.
func TestTemplate(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"none", nil, ""},
		{"its own file", map[string]string{"chat_template.jinja": "{{ own }}\n"}, "{{ own }}\n"},
		{"a string", map[string]string{"tokenizer_config.json": `{"chat_template": "{{ \"a\" }}"}`}, `{{ "a" }}`},
		{"null", map[string]string{"tokenizer_config.json": `{"chat_template": null}`}, ""},
		{"no template", map[string]string{"tokenizer_config.json": `{"add_bos_token": true}`}, ""},
		{"named", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}`}, "d"},
		{"named, none default", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name":"tool_use","template":"t"}]}`}, ""},
		{"object", map[string]string{"tokenizer_config.json": `{"chat_template": {"default": "d", "rag": "r"}}`}, "d"},
		{"of a processor", map[string]string{"chat_template.json": `{"chat_template": "p"}`, "tokenizer_config.json": `{}`}, "p"},
		{"not of a processor", map[string]string{"chat_template.json": `{"chat_template": "p"}`, "tokenizer_config.json": `{"chat_template": "t"}`}, "t"},
		{"both", map[string]string{"chat_template.jinja": "own", "tokenizer_config.json": `{"chat_template": "old"}`}, "own"},
	} {
		m, err := open(t, c.files)
		if err != nil || m.Template() != c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, m.Template(), err, c.want)
		}
	}
}

// TestGeneration reads what a publisher recommends: generation_config.json has
// the last word over what older files say in config.json.
func TestGeneration(t *testing.T) {
	for _, c := range []struct {
		file string
		want settings.Generation
	}{
		{"", settings.Generation{TopK: 5, End: settings.IDs{9}}},
		{`{}`, settings.Generation{TopK: 5, End: settings.IDs{9}}},
		{`{"eos_token_id": 3}`, settings.Generation{TopK: 5, End: settings.IDs{3}}},
		{`{"eos_token_id": [3, 99], "top_k": 64}`, settings.Generation{TopK: 64, End: settings.IDs{3, 99}}},
		{`{"eos_token_id": null}`, settings.Generation{TopK: 5}},
		{`{"eos_token_id": [3.0, -1], "top_k": 50.0, "suppress_tokens": null}`, settings.Generation{TopK: 50, End: settings.IDs{3}}},
		{`{"eos_token_id": -1, "epsilon_cutoff": 0.0, "typical_p": 1.0, "max_length": 20, "pad_token_id": NaN}`, settings.Generation{TopK: 5}},
		{`{"temperature": 0.9, "top_p": 0.6}`, settings.Generation{Sample: true, Temperature: 0.9, TopP: 0.6, TopK: 5, End: settings.IDs{9}}},
		{`{"do_sample": false, "temperature": 0.9}`, settings.Generation{Temperature: 0.9, TopK: 5, End: settings.IDs{9}}},
		{`{"temperature": 1.0, "top_p": 1.0, "top_k": 50}`, settings.Generation{Temperature: 1, TopP: 1, TopK: 50, End: settings.IDs{9}}},
		{`{"do_sample": true, "temperature": 0.0, "top_k": -1}`, settings.Generation{End: settings.IDs{9}}},
		{`{"do_sample": true, "top_p": 0}`, settings.Generation{TopK: 5, End: settings.IDs{9}}},
		{`{"do_sample": true, "top_p": 1.5, "no_repeat_ngram_size": 3, "stop_strings": ["x"], "num_beams": 1}`, settings.Generation{
			Sample: true, TopK: 5, End: settings.IDs{9},
			Unapplied: []settings.Entry{{Key: "no_repeat_ngram_size", Value: "3"}, {Key: "stop_strings", Value: `["x"]`}, {Key: "top_p", Value: "1.5"}},
		}},
		{`{"do_sample": true, "temperature": 0.6, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1, "top_k": null}`,
			settings.Generation{Sample: true, Temperature: 0.6, TopK: 5, TopP: 0.95, MinP: 0.05, Repeat: 1.1, End: settings.IDs{9}}},
	} {
		files := map[string]string{"generation_config.json": c.file}
		if c.file == "" {
			files = nil
		}
		m, err := open(t, files)
		if err != nil {
			t.Errorf("%s: %v", c.file, err)
			continue
		}
		if got := m.Generation(); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", c.want) {
			t.Errorf("%s: %+v, want %+v", c.file, got, c.want)
		}
		for _, x := range c.want.Unapplied {
			if !slices.ContainsFunc(m.Notes, func(note string) bool { return strings.Contains(note, x.Key+" = "+x.Value+" is not applied") }) {
				t.Errorf("%s: notes %q", c.file, m.Notes)
			}
		}
	}
}

// TestView reads what a checkpoint tells people.
func TestView(t *testing.T) {
	m, err := open(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Format != HuggingFace || m.Arch != "llama" || m.ContextLength() != 77 || m.Bytes() != 16 {
		t.Errorf("%s, %s, context %d, %d bytes", m.Format, m.Arch, m.ContextLength(), m.Bytes())
	}
	if ts := m.Tensors(); len(ts) != 1 || ts[0].Name != "model.norm.weight" || !slices.Equal(m.Names(), []string{"model.norm"}) {
		t.Errorf("tensors %v, names %v", ts, m.Names())
	}
	if !slices.Contains(m.Metadata, settings.Entry{Key: "hidden_size", Value: "8"}) || !slices.Contains(m.Metadata, settings.Entry{Key: "model_type", Value: `"llama"`}) {
		t.Errorf("metadata %v", m.Metadata)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// TestEvenHeads: a file of a family whose heads share the width evenly cannot say otherwise.
func TestEvenHeads(t *testing.T) {
	embed := tensor.Tensor{Name: "token_embd.weight", DType: tensor.F32, Shape: tensor.Shape{3, 8}, Data: make([]byte, 96)}
	for _, x := range []struct {
		key   string
		value any
		want  string
	}{
		{"attention.head_count_kv", uint32(2), ""},
		{"attention.key_length", uint32(4), ""},
		{"attention.head_count_kv", uint32(1), "attention.head_count_kv is 1, but there are 2 heads"},
		{"attention.key_length", uint32(3), "attention.key_length is 3, but 2 heads share a width of 8 evenly"},
	} {
		metadata := []gguf.KeyValue{{Key: "general.architecture", Value: "gpt2"}, {Key: "gpt2.block_count", Value: uint32(1)}, {Key: "gpt2.context_length", Value: uint32(55)},
			{Key: "gpt2.embedding_length", Value: uint32(8)}, {Key: "gpt2.feed_forward_length", Value: uint32(16)}, {Key: "gpt2.attention.head_count", Value: uint32(2)},
			{Key: "gpt2.attention.layer_norm_epsilon", Value: float32(1e-5)}, {Key: "gpt2." + x.key, Value: x.value}}
		var b bytes.Buffer
		if err := gguf.Write(&b, metadata, []tensor.Tensor{embed}); err != nil {
			t.Fatal(err)
		}
		m, err := Parse("some.gguf", b.Bytes())
		if x.want == "" && err != nil || x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)) {
			t.Errorf("%s %v: %v, want %q", x.key, x.value, err, x.want)
		}
		if err == nil {
			m.Close()
		}
	}
}

// TestParse opens GGUF from memory; its errors have the name that is given.
func TestParse(t *testing.T) {
	var b bytes.Buffer
	metadata := []gguf.KeyValue{{Key: "general.architecture", Value: "qwen3"}, {Key: "qwen3.block_count", Value: uint8(1)}, {Key: "qwen3.context_length", Value: int64(55)},
		{Key: "qwen3.embedding_length", Value: uint16(8)}, {Key: "qwen3.feed_forward_length", Value: uint32(16)}, {Key: "qwen3.attention.head_count", Value: uint64(2)},
		{Key: "qwen3.attention.head_count_kv", Value: []uint32{1, 1, 1}}, {Key: "qwen3.attention.layer_norm_rms_epsilon", Value: float32(1e-6)},
		{Key: "tokenizer.chat_template", Value: "{{ x }}"}, {Key: "general.tags", Value: []string{"a", "b"}}}
	embed := tensor.Tensor{Name: "token_embd.weight", DType: tensor.F32, Shape: tensor.Shape{3, 8}, Data: make([]byte, 96)}
	if err := gguf.Write(&b, metadata, []tensor.Tensor{embed}); err != nil {
		t.Fatal(err)
	}
	var other bytes.Buffer
	if err := gguf.Write(&other, []gguf.KeyValue{{Key: "general.architecture", Value: "qwen3"}, {Key: "general.type", Value: "adapter"}}, []tensor.Tensor{embed}); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("lora.gguf", other.Bytes()); err == nil || !strings.Contains(err.Error(), "lora.gguf: an adapter and no model: give it with --lora") {
		t.Errorf("an adapter: %v", err)
	}
	m, err := Parse("some.gguf", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var c struct {
		Vocab   int      `json:"vocab_size"`
		KVHeads int      `json:"num_key_value_heads"`
		HeadDim int      `json:"head_dim"`
		Eps     float32  `json:"rms_norm_eps"`
		Types   []string `json:"layer_types"`
		Tied    bool     `json:"tie_word_embeddings"`
	}
	if _, err := m.Config(&c); err != nil {
		t.Fatal(err)
	}
	if c.Vocab != 3 || c.KVHeads != 1 || c.HeadDim != 4 || c.Eps != 1e-6 || !slices.Equal(c.Types, []string{family.FullAttention}) || !c.Tied || m.ContextLength() != 55 || m.Template() != "{{ x }}" {
		t.Errorf("%+v, context %d, template %q", c, m.ContextLength(), m.Template())
	}
	if !slices.Contains(m.Metadata, settings.Entry{Key: "general.tags", Value: "array of 2 string"}) || !slices.Contains(m.Metadata, settings.Entry{Key: "qwen3.block_count", Value: "1"}) {
		t.Errorf("metadata %v", m.Metadata)
	}
	var vocabulary bytes.Buffer
	if err := gguf.Write(&vocabulary, metadata, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Parse("some.gguf", vocabulary.Bytes()); err == nil || !strings.Contains(err.Error(), "some.gguf: the file has a vocabulary at most, but no tensors") {
		t.Errorf("without tensors: %v", err)
	}
	if _, err := Parse("some.gguf", b.Bytes()[:100]); err == nil || !strings.Contains(err.Error(), "some.gguf") {
		t.Errorf("got %v", err)
	}
}

// TestUnpermute orders the rows of two heads of four: GGUF has the halves of a
// pair side by side, Hugging Face the first halves before the second ones.
func TestUnpermute(t *testing.T) {
	in := tensor.Tensor{Shape: tensor.Shape{8, 1}, Data: []byte("aAbBcCdD")}
	if got := unpermute(in, Habit{Heads: 2}.GGUFRow); string(got.Data) != "abABcdCD" {
		t.Errorf("got %q", got.Data)
	}
	for heads, want := range map[int]string{3: "aAbBcCdD", 8: "aAbBcCdD"} { // no whole heads: left alone
		if got := unpermute(in, Habit{Heads: heads}.GGUFRow); string(got.Data) != want {
			t.Errorf("%d heads: got %q", heads, got.Data)
		}
	}
	in = tensor.Tensor{DType: tensor.Q8_0, Shape: tensor.Shape{8, 32}, Data: bytes.Repeat([]byte{1}, 8*34)}
	for i := range 8 {
		in.Data[i*34] = "aAbBcCdD"[i]
	}
	c := Checkpoint{weights: weights{Model: settings.New(""), Format: GGUF}}
	c.Family, c.Values = registry.Find("llama"), family.Settings{"num_attention_heads": 2.}
	got, err := c.restore("blk.0.attn_q", in)
	order := ""
	for i := range 8 {
		order += string(got.Row(i)[:1])
	}
	if err != nil || order != "abABcdCD" || &got.Data[0] != &in.Data[0] {
		t.Errorf("quantized: got %q, copied: %v", order, &got.Data[0] != &in.Data[0])
	}
}

// TestMinusOne restores norms from every plain type.
func TestMinusOne(t *testing.T) {
	for _, in := range []tensor.Tensor{
		{DType: tensor.F32, Shape: tensor.Shape{2}, Data: []byte{0, 0, 0xc0, 0x3f, 0, 0, 0x80, 0x3f}}, // 1.5, 1
		{DType: tensor.F16, Shape: tensor.Shape{2}, Data: []byte{0, 0x3e, 0, 0x3c}},
		{DType: tensor.BF16, Shape: tensor.Shape{2}, Data: []byte{0xc0, 0x3f, 0x80, 0x3f}},
	} {
		got, err := mapValues(in, Habit{Plus: 1}.FromGGUF)
		if want := []byte{0, 0, 0, 0x3f, 0, 0, 0, 0}; err != nil || got.DType != tensor.F32 || !bytes.Equal(got.Data, want) { // 0.5, 0
			t.Errorf("%v: %v %v", in.DType, got.DType, got.Data)
		}
	}
}

// TestIDs reads one id, several and none.
func TestIDs(t *testing.T) {
	for text, want := range map[string]settings.IDs{"3": {3}, "[3, 4]": {3, 4}, "null": nil, "[]": {}} {
		ids := settings.IDs{7}
		if err := json.Unmarshal([]byte(text), &ids); err != nil || !slices.Equal(ids, want) {
			t.Errorf("%s: %v, %v", text, ids, err)
		}
	}
	for _, text := range []string{`"3"`, "3.5", "[null, {}]", "true", "[9e99]"} {
		var ids settings.IDs
		if err := json.Unmarshal([]byte(text), &ids); err == nil {
			t.Errorf("%s: %v", text, ids)
		}
	}
}
