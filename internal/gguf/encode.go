package gguf

import (
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// KeyValue is a metadata key with its value. A value is of a type that Value.Any returns (uint8 to float64, bool,
// string, slices of these, []any of slices), or a Value of another file, whose bytes are copied.
type KeyValue struct {
	Key   string
	Value any
}

// appendHeader returns the bytes before the tensors' data and its padding.
func appendHeader(metadata []KeyValue, tensors []tensor.Tensor) (b []byte, err error) {
	alignment := defaultAlignment
	b = append(b, magic...)
	b = le.AppendUint32(b, 3)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(metadata)))
	for _, kv := range metadata {
		b = appendString(b, kv.Key)
		if b, err = appendValue(b, kv.Value); err != nil {
			return nil, fmt.Errorf("key %q: %w", kv.Key, err)
		}
		if a, ok := kv.Value.(uint32); ok && kv.Key == alignmentKey {
			alignment = int(a)
		}
	}
	offset := int64(0)
	for _, t := range tensors {
		id, ok := idOf(t.DType)
		if !ok {
			return nil, fmt.Errorf("tensor %q: GGUF has no elements of type %v", t.Name, t.DType)
		}
		b = appendString(b, t.Name)
		b = le.AppendUint32(b, uint32(len(t.Shape)))
		for i := len(t.Shape) - 1; i >= 0; i-- {
			b = le.AppendUint64(b, uint64(t.Shape[i]))
		}
		b = le.AppendUint32(b, id)
		b = le.AppendUint64(b, uint64(offset))
		n, err := tensor.Bytes(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		offset = alignUp(offset+int64(n), alignment)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(le.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue appends x after its type.
func appendValue(b []byte, x any) ([]byte, error) {
	if v, ok := x.(Value); ok {
		b = le.AppendUint32(b, uint32(v.typ))
		err := mmap.Guard(func() error {
			b = append(b, v.data...)
			return nil
		})
		return b, err
	}
	t, err := typeOf(reflect.TypeOf(x))
	if err != nil {
		return nil, err
	}
	return appendBody(le.AppendUint32(b, uint32(t)), x)
}

// appendBody appends x without its type.
func appendBody(b []byte, x any) ([]byte, error) {
	switch x := x.(type) {
	case string:
		return appendString(b, x), nil
	case []string:
		b = le.AppendUint32(b, uint32(String))
		b = le.AppendUint64(b, uint64(len(x)))
		for _, s := range x {
			b = appendString(b, s)
		}
		return b, nil
	case []any:
		return appendArrays(b, x)
	}
	if v := reflect.ValueOf(x); v.Kind() == reflect.Slice {
		elem, err := typeOf(v.Type().Elem())
		if err != nil {
			return nil, err
		}
		b = le.AppendUint32(b, uint32(elem))
		b = le.AppendUint64(b, uint64(v.Len()))
	}
	return binary.Append(b, le, x)
}

func appendArrays(b []byte, arrays []any) (_ []byte, err error) {
	b = le.AppendUint32(b, uint32(Array))
	b = le.AppendUint64(b, uint64(len(arrays)))
	for _, x := range arrays {
		if reflect.ValueOf(x).Kind() != reflect.Slice {
			return nil, fmt.Errorf("a %T among arrays", x)
		}
		if b, err = appendBody(b, x); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// typeOf returns the format's type for values of t.
func typeOf(t reflect.Type) (Type, error) {
	if t != nil {
		if t.Kind() == reflect.Slice {
			return Array, nil
		}
		for i := range numTypes {
			if i != Array && types[i].name == t.Kind().String() {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("GGUF has no values of type %v", t)
}
