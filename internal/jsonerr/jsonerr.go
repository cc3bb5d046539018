// Package jsonerr tells of errors in JSON files in plain words: encoding/json's have the names of Go's types, which a
// file's author does not know.
package jsonerr

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Plain returns err with the key, the kind of value that it needs, and the byte where the wrong one ends. Keys lose the
// prefix, the name of an embedded Go struct.
func Plain(err error, prefix string) error {
	if e := (*json.SyntaxError)(nil); errors.As(err, &e) {
		text := strings.TrimSuffix(e.Error(), " JSON input")
		if text == "unexpected end of" {
			text = "it ends too early"
		}
		return fmt.Errorf("no JSON at byte %d: %s", e.Offset, text)
	}
	e := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &e) {
		return err
	}
	want := kind(e.Type)
	if n, ok := strings.CutPrefix(e.Value, "number "); ok && want == "an integer" &&
		strings.Trim(n, "-0123456789") == "" {
		want += fmt.Sprintf(" of %d bits", e.Type.Bits())
	}
	text := fmt.Sprintf("a JSON %s, want %s (at byte %d)", e.Value, want, e.Offset)
	if key := strings.TrimPrefix(e.Field, prefix); key != "" {
		text = key + ": " + text
	}
	return errors.New(text)
}

// kind returns what JSON calls the values of a type.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "an object"
}
