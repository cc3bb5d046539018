// Package bind ties a checkpoint's tensors to a model's fields by struct tag:
//
//	Q *graph.Weight `gguf:"attn_q" hf:"q_proj"`
//	B *graph.Weight `gguf:"attn_q.bias" hf:"q_proj.bias" if:"AttentionBias"`
//	V *graph.Weight `gguf:"attn_v" hf:"v_proj" optional:"K=V layers"`
//
// Tags of nested structs and slices prefix those inside. A tensor's name has
// no ".weight". Binding is strict: a tensor that is missing, one that no field
// claims, and one whose presence contradicts the configuration's fact named by
// "if" are all errors, reported together.
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

// Source is what a checkpoint offers: its tensors under the names that the
// format in use has for them.
type Source interface {
	// Names lists all tensors, without ".weight".
	Names() []string
	// Tensor finds one by the name that the tags give for either format.
	Tensor(gguf, hf string) (tensor.Tensor, bool)
	// Name chooses the name in the source's own format.
	Name(gguf, hf string) string
}

// Model sets the *graph.Weight fields of the struct that m points to. The
// error joins every problem; the model is then bound as far as possible, so
// that recording its graph can add what it finds.
func Model(m any, src Source) error {
	root := reflect.ValueOf(m).Elem()
	b := binder{root: root, src: src, used: map[string]bool{}}
	b.walk(root, "", "")
	for _, name := range src.Names() {
		if !b.used[name] {
			b.errs = append(b.errs, fmt.Errorf("tensor %s: the file holds it, but no weight of the architecture claims it", name))
		}
	}
	return errors.Join(b.errs...)
}

type binder struct {
	root reflect.Value
	src  Source
	used map[string]bool
	errs []error
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
	fact, conditional := tag.Lookup("if")
	_, optional := tag.Lookup("optional")
	wanted := !conditional || b.fact(fact)
	switch {
	case found && !wanted:
		b.errs = append(b.errs, fmt.Errorf("tensor %s: the file holds it, but the configuration says that %s is false", name, fact))
		return
	case !found && !wanted, !found && optional:
		return
	case !found && conditional:
		b.errs = append(b.errs, fmt.Errorf("tensor %s: missing, but the configuration says that %s is true", name, fact))
	case !found:
		b.errs = append(b.errs, fmt.Errorf("tensor %s: missing", name))
	}
	f.Set(reflect.ValueOf(&graph.Weight{Tensor: t, GGUF: gguf, HF: hf}))
}

// fact is a bool field of the model, or a method on it without arguments.
func (b *binder) fact(name string) bool {
	if f := b.root.FieldByName(name); f.IsValid() {
		return f.Bool()
	}
	return b.root.Addr().MethodByName(name).Call(nil)[0].Bool()
}
