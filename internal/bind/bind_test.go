package bind

import (
	"slices"
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
func (s source) Tensor(_, hf string) (tensor.Tensor, bool) {
	shape, ok := s[hf]
	return tensor.Tensor{Name: hf, Shape: shape, Data: []byte{1}}, ok
}

type config struct{ Bias, Tied bool }

func (c *config) Untied() bool { return !c.Tied }

type layer struct {
	Attn struct {
		Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
		B *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"Bias"`
		V *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"where K serves as V"`
	} `gguf:"" hf:"self_attn"`
}

type model struct {
	config
	Output *graph.Weight `gguf:"output" hf:"lm_head" if:"Untied"`
	Layers []layer       `gguf:"blk" hf:"model.layers"`
	Note   string
}

func TestModel(t *testing.T) {
	src := source{
		"lm_head": {2, 2}, "model.layers.0.self_attn.q_proj": {2, 2}, "model.layers.1.self_attn.q_proj": {2, 2},
		"model.layers.1.self_attn.v_proj": {1, 2},
	}
	m := &model{Layers: make([]layer, 2)}
	if err := Model(m, src); err != nil {
		t.Fatal(err)
	}
	q := m.Layers[1].Attn.Q
	if q.GGUF != "blk.1.attn_q" || q.HF != "model.layers.1.self_attn.q_proj" || !slices.Equal(q.Shape, []int{2, 2}) {
		t.Errorf("bound %+v", q)
	}
	if m.Layers[0].Attn.V != nil || m.Layers[1].Attn.V == nil || m.Layers[0].Attn.B != nil || m.Output == nil {
		t.Error("optional and conditional weights")
	}
}

// TestStrict wants every problem of one file in one error.
func TestStrict(t *testing.T) {
	src := source{
		"lm_head": {2, 2}, "model.layers.0.self_attn.q_proj": {2, 2}, "model.layers.0.self_attn.q_norm": {2},
		"model.layers.0.self_attn.q_proj.bias": {2},
	}
	m := &model{config: config{Bias: true, Tied: true}, Layers: make([]layer, 2)}
	err := Model(m, src)
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"tensor lm_head: the file holds it, but the configuration says that Untied is false",
		"tensor model.layers.1.self_attn.q_proj: missing",
		"tensor model.layers.1.self_attn.q_proj.bias: missing, but the configuration says that Bias is true",
		"tensor model.layers.0.self_attn.q_norm: the file holds it, but no weight of the architecture claims it",
	}
	if got := strings.Split(err.Error(), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
