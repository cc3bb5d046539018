package family

import (
	"reflect"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/rope"
)

// Model makes runnable models.
type Model struct {
	Config func() any // pointer to an empty configuration, with settings as json tags

	weights reflect.Type // struct type behind New's pointer

	// New returns the model of a configuration, made for so many positions and opened for sequences of so many tokens,
	// without weights; 0 stands for the maximum by the configuration.
	New func(config any, positions, context int) (Forwarder, error)
}

// Forwarder is a model with fields for its weights.
type Forwarder interface {
	Forward(g graph.Builder) *graph.Node
}

// Of makes a Model of a family's New.
func Of[C any, M Forwarder](newModel func(C) (M, error)) Model {
	return Model{
		Config:  func() any { return new(C) },
		weights: reflect.TypeFor[M]().Elem(),
		New: func(config any, positions, context int) (Forwarder, error) {
			openRotations(reflect.ValueOf(config).Elem(), positions, context)
			return newModel(*config.(*C))
		},
	}
}

// openRotations opens the rotations of a configuration. It is apart from Of, which the program has once a family.
func openRotations(config reflect.Value, positions, context int) {
	for _, f := range reflect.VisibleFields(config.Type()) {
		if f.Type == reflect.TypeFor[rope.Kinds]() {
			config.FieldByIndex(f.Index).Addr().Interface().(*rope.Kinds).Open(positions, context)
		}
	}
}

// Embedding returns the embedding's name in config.json's format. The part before its first dot is the module of
// everything except the head.
func (m Model) Embedding() string {
	for _, f := range reflect.VisibleFields(m.weights) {
		if f.Tag.Get("gguf") == "token_embd" {
			return f.Tag.Get("hf")
		}
	}
	return ""
}

// Dense returns the folders inside the model's with dense layers behind the pooling (sentence-transformers), named
// after their linear layers.
func (m Model) Dense() (folders []string) {
	for _, f := range reflect.VisibleFields(m.weights) {
		if folder, ok := strings.CutSuffix(f.Tag.Get("hf"), "_Dense.linear"); ok {
			folders = append(folders, folder+"_Dense")
		}
	}
	return folders
}

// Claims reports whether the model or its layers have a weight with a name in either format: attn_qkv.
func (m Model) Claims(name string) bool { return claims(m.weights, name) }

func claims(t reflect.Type, name string) bool {
	for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for f := range t.Fields() {
		tag, ok := f.Tag.Lookup("gguf")
		if ok && (tag == name || f.Tag.Get("hf") == name || claims(f.Type, name)) {
			return true
		}
	}
	return false
}

// Reads reports whether the configuration has a field for a setting.
func (m Model) Reads(setting string) bool {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(m.Config()).Elem()) {
		if f.Tag.Get("json") == setting {
			return true
		}
	}
	return false
}
