// Package bind ties a checkpoint's tensors to a model's fields by struct tag:
//
//	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
//	B *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"attention_bias"`
//	V *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"absent where K serves as V"`
//
// Tags of nested structs and slices prefix the tags inside; a nil pointer to a struct is a part missing in the layer. A
// tensor's name has no ".weight". Binding is strict: a missing tensor, a tensor not claimed by any field, and a tensor
// contradicting its "if" setting are all errors, reported together. "if" names a field of the model's Config by its
// json tag, which must not be zero, or with a "!" must be. Otherwise the weight is nil. An optional weight may be
// missing here: the graph reports an error if an operation needs the weight.
package bind

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// Source is a checkpoint's tensors under the names of the format in use.
type Source interface {
	// Names lists all tensors, without ".weight".
	Names() []string
	// Tensor finds a tensor by its name in either format.
	Tensor(gguf, hf string) (tensor.Tensor, bool)
	// Name chooses the name in the source's own format.
	Name(gguf, hf string) string
	// Key is the source's own name of a setting.
	Key(name string) string
}

// maxErrors bounds the report on a hostile file; a model with faults in all of 200 layers stays below.
const maxErrors = 5000

// Model sets the *graph.Weight fields of the struct behind m, and lists the weights in src, in the order of the struct.
// The error joins every problem; the other weights are then bound, so that recording the graph can add further
// problems.
func Model(m any, src Source) ([]*graph.Weight, error) {
	root := reflect.ValueOf(m).Elem()
	b := binder{src: src, used: map[string]bool{}, settings: map[string]reflect.Value{}}
	for _, f := range reflect.VisibleFields(root.Type()) {
		if name := f.Tag.Get("json"); name != "" {
			b.settings[name] = root.FieldByIndex(f.Index)
		}
	}
	b.walk(root, "", "")
	for _, name := range src.Names() {
		if !b.used[name] {
			b.fault(name, graph.Unclaimed, "the file holds it, but no weight of the architecture claims it")
		}
	}
	if b.more > 0 {
		b.errs = append(b.errs, fmt.Errorf("and %d more", b.more))
	}
	return b.weights, errors.Join(b.errs...)
}

type binder struct {
	src      Source
	used     map[string]bool
	settings map[string]reflect.Value
	weights  []*graph.Weight
	errs     []error
	more     int // beyond maxErrors
}

func (b *binder) fault(name string, f graph.Fault, format string, args ...any) {
	if len(b.errs) == maxErrors {
		b.more++
		return
	}
	b.errs = append(b.errs, graph.NewTensorError(name, f, format, args...))
}

var weightType = reflect.TypeFor[*graph.Weight]()

func join(scope, name string) string { return strings.Trim(scope+"."+name, ".") }

func (b *binder) walk(v reflect.Value, gguf, hf string) {
	for i := range v.NumField() {
		f, field := v.Field(i), v.Type().Field(i)
		g, ok := field.Tag.Lookup("gguf")
		if !ok {
			continue
		}
		g, h := join(gguf, g), join(hf, field.Tag.Get("hf"))
		switch {
		case f.Type() == weightType:
			b.weight(f, field.Tag, g, h)
		case f.Kind() == reflect.Struct:
			b.walk(f, g, h)
		case f.Kind() == reflect.Pointer && !f.IsNil():
			b.walk(f.Elem(), g, h)
		case f.Kind() == reflect.Slice:
			for j := range f.Len() {
				n := strconv.Itoa(j)
				b.walk(f.Index(j), join(g, n), join(h, n))
			}
		}
	}
}

func (b *binder) weight(f reflect.Value, tag reflect.StructTag, gguf, hf string) {
	name := b.src.Name(gguf, hf)
	t, found := b.src.Tensor(gguf, hf)
	if found {
		b.used[name] = true
	}
	if u, ok := t.Source.(tensor.Unread); ok {
		b.fault(name, graph.Missing, "it is not read: %v", u.Err)
	}
	says := ""
	if setting, ok := tag.Lookup("if"); ok {
		key, not := strings.CutPrefix(setting, "!")
		v := b.settings[key]
		says = fmt.Sprintf(", but the configuration says that %s is %v", b.src.Key(key), v)
		if v.IsZero() != not {
			if found {
				b.fault(name, graph.Refused, "the file holds it%s", says)
			}
			return
		}
	}
	if _, optional := tag.Lookup("optional"); !found && optional {
		t.Name = name
	} else if !found {
		b.fault(name, graph.Missing, "missing%s", says)
	}
	w := &graph.Weight{Tensor: t, GGUF: gguf, HF: hf}
	f.Set(reflect.ValueOf(w))
	if found {
		b.weights = append(b.weights, w)
	}
}
