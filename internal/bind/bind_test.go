package bind

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

type source map[string]tensor.Shape

func (s source) Names() []string {
	var names []string
	for n := range s {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
func (s source) Name(_, hf string) string { return hf }
func (s source) Key(name string) string   { return "my." + name }
func (s source) Tensor(_, hf string) (tensor.Tensor, bool) {
	shape, ok := s[hf]
	if !ok {
		return tensor.Tensor{}, false
	}
	return tensor.Tensor{Name: hf, Shape: shape, Data: []byte{1}}, true
}

type config struct {
	Bias bool `json:"attention_bias"`
	Tied bool `json:"tie_word_embeddings"`
	Size int  `json:"extra_size"`
}

type layer struct {
	Attn struct {
		Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
		B *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
		V *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"where K serves as V"`
	} `gguf:"" hf:"self_attn"`
}

type model struct {
	config
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"!tie_word_embeddings"`
	Extra  *graph.Weight `gguf:"extra" hf:"extra" if:"extra_size"`
	Layers []layer       `gguf:"blk" hf:"model.layers"`
	Note   string
}

func TestModel(t *testing.T) {
	src := source{
		"lm_head": {2, 2}, "model.layers.0.self_attn.q_proj": {2, 2}, "model.layers.1.self_attn.q_proj": {2, 2},
		"model.layers.1.self_attn.v_proj": {1, 2},
	}
	m := &model{Layers: make([]layer, 2)}
	if _, err := Model(m, src); err != nil {
		t.Fatal(err)
	}
	q := m.Layers[1].Attn.Q
	if q.GGUF != "blk.1.attn_q" || q.HF != "model.layers.1.self_attn.q_proj" || !slices.Equal(q.Shape, []int{2, 2}) {
		t.Errorf("bound %+v", q)
	}
	if b := m.Layers[0].Attn.B; b != nil || m.Extra != nil || m.Output == nil {
		t.Errorf("conditional weights: bias %v, extra %v, output %v", b, m.Extra, m.Output)
	}
	if v := m.Layers[0].Attn.V; v == nil || v.Data != nil || v.Name != "model.layers.0.self_attn.v_proj" {
		t.Errorf("an optional weight that the file lacks: %+v", v)
	}
	if v := m.Layers[1].Attn.V; v.Data == nil {
		t.Errorf("an optional weight that the file holds: %+v", v)
	}
}

// TestStrict wants every problem of one file in one error.
func TestStrict(t *testing.T) {
	src := source{
		"lm_head": {2, 2}, "model.layers.0.self_attn.q_proj": {2, 2}, "model.layers.0.self_attn.q_norm": {2},
		"model.layers.0.self_attn.q_proj.bias": {2},
	}
	m := &model{config: config{Bias: true, Tied: true, Size: 8}, Layers: make([]layer, 2)}
	_, err := Model(m, src)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"tensor lm_head: the file holds it, but the configuration says that my.tie_word_embeddings is true",
		"tensor extra: missing, but the configuration says that my.extra_size is 8",
		"tensor model.layers.1.self_attn.q_proj: missing",
		"tensor model.layers.1.self_attn.q_proj.bias: missing, but the configuration says that my.attention_bias is true",
		"tensor model.layers.0.self_attn.q_norm: the file holds it, but no weight of the architecture claims it",
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// unread is a source whose tensors cannot be read.
type unread struct{ source }

func (s unread) Tensor(gguf, hf string) (tensor.Tensor, bool) {
	t, ok := s.source.Tensor(gguf, hf)
	t.Data, t.Source = nil, tensor.Unread{Err: errors.New("a bad sector")}
	return t, ok
}

// TestUnread: a tensor that is there and cannot be read is a problem with its cause.
func TestUnread(t *testing.T) {
	_, err := Model(&struct {
		Output *graph.Weight `gguf:"output" hf:"lm_head"`
	}{}, unread{source{"lm_head": {2, 2}}})
	if err == nil || err.Error() != "tensor lm_head: it is not read: a bad sector" {
		t.Error(err)
	}
}

// TestManyProblems bounds the report on a hostile file.
func TestManyProblems(t *testing.T) {
	src := source{}
	for i := range 3 * maxErrors {
		src[strings.Repeat("x", i%7)+strconv.Itoa(i)] = tensor.Shape{1}
	}
	_, err := Model(&model{}, src)
	lines := strings.Split(err.Error(), "\n")
	if n := len(lines); n != maxErrors+1 || lines[n-1] != "and 10001 more" { // lm_head is missing, too
		t.Errorf("%d lines, the last %q", n, lines[n-1])
	}
}
