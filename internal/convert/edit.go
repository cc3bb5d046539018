package convert

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// EditOptions are the changes of Edit. A key is named once.
type EditOptions struct {
	Set   []gguf.KeyValue // new keys are added at the end
	Unset []string        // keys to remove, present in the file

	Loads func(*checkpoint.Checkpoint) error // reports why the result is no model; nil checks the tokenizer alone
}

// Change is a changed key, with the old and the new value. An absent value is empty.
type Change struct {
	Key string `json:"key"`
	Was string `json:"was,omitempty"`
	Is  string `json:"is,omitempty"`
}

// alignmentKey has the multiple of bytes at which tensors begin.
const alignmentKey = "general.alignment"

// Edit writes the GGUF file at src with other metadata to dst, which may be src. The tensors keep their order and their
// bytes. Before the file takes its place it is opened as a model: a file that would not load is an error. An error,
// including ctx's, leaves dst unchanged.
func Edit(ctx context.Context, src, dst string, o EditOptions) ([]Change, error) {
	if st, err := os.Stat(src); err == nil && st.IsDir() {
		return nil, fmt.Errorf("%s is a folder: its settings are in config.json", src)
	}
	if gguf.IsPart(src) || gguf.IsPart(dst) {
		return nil, fmt.Errorf("%s: parts of a split model are not edited: karat convert makes one file of them", src)
	}
	if err := atomicfile.Check(dst); err != nil {
		return nil, err
	}
	f, err := gguf.Open(src)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	keys, changes, err := editKeys(f.Metadata, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	out, err := atomicfile.Create(dst)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if err := writeEdited(ctx, out, keys, f.Tensors()); err != nil {
		return nil, err
	}
	if err := checkLoads(dst, out.Name(), o.Loads); err != nil {
		return nil, fmt.Errorf("the result would not load, and was not written: %w", err)
	}
	if err := f.Close(); err != nil { // a mapped file cannot be replaced everywhere
		return nil, err
	}
	if err := out.Commit(); err != nil {
		return nil, err
	}
	return changes, nil
}

// editKeys returns the keys of the edited file.
func editKeys(m gguf.Metadata, o EditOptions) (keys []gguf.KeyValue, changes []Change, err error) {
	set := map[string]any{}
	named := map[string]bool{}
	for _, kv := range o.Set {
		if named[kv.Key] {
			return nil, nil, fmt.Errorf("key %q: it is named twice", kv.Key)
		}
		named[kv.Key] = true
		set[kv.Key] = kv.Value
	}
	for _, key := range o.Unset {
		if named[key] {
			return nil, nil, fmt.Errorf("key %q: it is named twice", key)
		}
		named[key] = true
		if _, ok := m.Lookup(key); !ok {
			return nil, nil, fmt.Errorf("key %q: the file has none of that name", key)
		}
	}
	if len(named) == 0 {
		return nil, nil, errors.New("no change is given")
	}
	for key := range named {
		if gguf.IsPartKey(key) {
			return nil, nil, fmt.Errorf("key %q: it belongs to split files", key)
		}
	}
	for _, key := range m.Keys() {
		v, _ := m.Lookup(key)
		is, ok := set[key]
		if !ok && !slices.Contains(o.Unset, key) {
			kv := gguf.KeyValue{Key: key, Value: v}
			if key == alignmentKey { // the writer follows this key
				if kv.Value, err = v.Any(); err != nil {
					return nil, nil, err
				}
			}
			keys = append(keys, kv)
			continue
		}
		was, err := v.Any()
		if err != nil {
			return nil, nil, err
		}
		c := Change{Key: key, Was: describe(was)}
		if ok {
			c.Is = describe(is)
			keys = append(keys, gguf.KeyValue{Key: key, Value: is})
		}
		changes = append(changes, c)
	}
	for _, kv := range o.Set {
		if _, ok := m.Lookup(kv.Key); !ok {
			keys = append(keys, kv)
			changes = append(changes, Change{Key: kv.Key, Is: describe(kv.Value)})
		}
	}
	return keys, changes, nil
}

// describe returns a value with its type, for people: uint32:32. Long values are cut.
func describe(v any) string {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", v), "[]")
	text := fmt.Sprint(v)
	if strings.HasPrefix(fmt.Sprintf("%T", v), "[]") {
		kind += "[]"
	}
	if r := []rune(text[:min(len(text), 400)]); len(r) > 80 {
		text = fmt.Sprintf("%s… (%d bytes)", string(r[:80]), len(text))
	}
	return kind + ":" + text
}

// writeEdited writes the file.
func writeEdited(ctx context.Context, out io.Writer, keys []gguf.KeyValue, tensors []tensor.Tensor) error {
	const piece = 16 << 20 // between two looks at ctx
	b := bufio.NewWriterSize(out, 1<<20)
	w, err := gguf.NewWriter(b, keys, tensors)
	if err != nil {
		return err
	}
	for _, t := range tensors {
		for part := range slices.Chunk(t.Data, piece) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := mmap.Guard(func() error { _, err := w.Write(part); return err }); err != nil {
				return err
			}
		}
		mmap.Drop(t.Data)
	}
	if err := w.Close(); err != nil {
		return err
	}
	return b.Flush()
}

// checkLoads opens the file at path under its later name, and checks the tokenizer and the caller's conditions.
func checkLoads(name, path string, ask func(*checkpoint.Checkpoint) error) error {
	m, err := mmap.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	return mmap.Guard(func() error {
		c, err := checkpoint.Parse(name, m.Data())
		if err != nil {
			return err
		}
		defer c.Close()
		if ask != nil {
			if err := ask(c); err != nil {
				return err
			}
		}
		_, err = c.Tokenizer()
		return err
	})
}

// ParseKeyValue reads KEY=TYPE:VALUE. TYPE is a type of GGUF: uint8 to uint64, int8 to int64, float32, float64, bool or
// string; or an array such as int32[], with a JSON list as VALUE.
func ParseKeyValue(text string) (kv gguf.KeyValue, err error) {
	key, typed, ok := strings.Cut(text, "=")
	kind, value, typedOK := strings.Cut(typed, ":")
	if !ok || !typedOK || key == "" {
		return kv, fmt.Errorf("%.100q: want KEY=TYPE:VALUE, as in general.name=string:Mine", text)
	}
	kv.Key = key
	if elem, array := strings.CutSuffix(kind, "[]"); array {
		kv.Value, err = parseArray(elem, value)
	} else {
		kv.Value, err = parseValue(kind, value)
	}
	if err != nil {
		return kv, fmt.Errorf("%s: %w", key, err)
	}
	return kv, nil
}

// valueTypes are the types of values by their names.
var valueTypes = map[string]reflect.Type{"uint8": reflect.TypeFor[uint8](), "int8": reflect.TypeFor[int8](),
	"uint16": reflect.TypeFor[uint16](), "int16": reflect.TypeFor[int16](), "uint32": reflect.TypeFor[uint32](),
	"int32": reflect.TypeFor[int32](), "uint64": reflect.TypeFor[uint64](), "int64": reflect.TypeFor[int64](),
	"float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](), "bool": reflect.TypeFor[bool](),
	"string": reflect.TypeFor[string]()}

// typeOf returns the type of a name.
func typeOf(kind string) (reflect.Type, error) {
	if t, ok := valueTypes[kind]; ok {
		return t, nil
	}
	return nil, fmt.Errorf("type %.40q: want uint8, int8, uint16, int16, uint32, int32, uint64, int64, float32, "+
		"float64, bool or string, or one of them with [] behind", kind)
}

// parseValue reads a value of a type; an integer in decimal, or in hexadecimal after 0x.
func parseValue(kind, value string) (any, error) {
	t, err := typeOf(kind)
	if err != nil {
		return nil, err
	}
	v := reflect.New(t).Elem()
	var u uint64
	var i int64
	var x float64
	switch {
	case v.CanUint():
		u, err = strconv.ParseUint(value, 0, t.Bits())
		v.SetUint(u)
	case v.CanInt():
		i, err = strconv.ParseInt(value, 0, t.Bits())
		v.SetInt(i)
	case v.CanFloat():
		x, err = strconv.ParseFloat(value, t.Bits())
		v.SetFloat(x)
	case kind == "string":
		v.SetString(value)
	case value != "true" && value != "false":
		return nil, fmt.Errorf("%.40q: want true or false", value)
	default:
		v.SetBool(value == "true")
	}
	if err != nil {
		return nil, fmt.Errorf("%.40q is no %s", value, kind)
	}
	return v.Interface(), nil
}

// parseArray reads a JSON list of values of a type.
func parseArray(elem, list string) (any, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal([]byte(list), &parts); err != nil {
		return nil, fmt.Errorf("%.40q: want a JSON list", list)
	}
	t, err := typeOf(elem)
	if err != nil {
		return nil, err
	}
	all := reflect.MakeSlice(reflect.SliceOf(t), 0, len(parts))
	for i, p := range parts {
		text := string(p)
		if elem == "string" && json.Unmarshal(p, &text) != nil {
			return nil, fmt.Errorf("element %d: %.40s is no string", i, p)
		}
		v, err := parseValue(elem, text)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		all = reflect.Append(all, reflect.ValueOf(v))
	}
	return all.Interface(), nil
}
