// Package jsonerr tells of errors in JSON files in plain words: encoding/json's have the names of Go's types, which a
// file's author does not know.
package jsonerr

import (
	"bytes"
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
		if err != nil && strings.Contains(err.Error(), ",string struct tag") {
			return errors.New("a number in quotation marks is wanted, and there is another value")
		}
		return err
	}
	want := Kind(e.Type)
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

// Unmarshal calls json.Unmarshal for the value of a key. The error names the key inside, and its value.
func Unmarshal(data []byte, into any, key string) error {
	err := json.Unmarshal(data, into)
	e := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &e) {
		if err != nil && key != "" {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	}
	path, value := locate(data, e.Offset)
	text := fmt.Sprintf("%.80s is %s", value, negated[Kind(e.Type)])
	if key = strings.TrimPrefix(key+path, "."); key != "" {
		text = key + ": " + text
	}
	return errors.New(text)
}

// negated says of another value that the value is of none of the kinds.
var negated = map[string]string{"a string": "no string", "a list": "no list", "true or false": "neither true nor false",
	"an integer": "no whole number", "a number": "no number", "an object": "no object"}

// level is a list or an object around a value.
type level struct {
	object, atKey bool
	key           string
	index         int
}

// locate returns the value of which encoding/json has read the bytes up to end (the first byte of a list or an object),
// and the path of keys to the value.
func locate(data []byte, end int64) (path, value string) {
	d := json.NewDecoder(bytes.NewReader(data))
	var around []level
	for start := int64(0); ; start = d.InputOffset() {
		t, err := d.Token()
		if err != nil {
			return "", "another value"
		}
		in := &level{}
		if len(around) > 0 {
			in = &around[len(around)-1]
		}
		switch {
		case t == json.Delim('}'), t == json.Delim(']'):
			around = around[:len(around)-1]
			continue
		case in.atKey:
			in.key, in.atKey = t.(string), false
			continue
		}
		in.atKey, in.index = in.object, in.index+1
		if d.InputOffset() < end {
			if t == json.Delim('{') || t == json.Delim('[') {
				around = append(around, level{object: t == json.Delim('{'), atKey: t == json.Delim('{')})
			}
			continue
		}
		for _, in := range around {
			if in.object {
				path += "." + in.key
			} else {
				path += fmt.Sprintf("[%d]", in.index-1)
			}
		}
		var all json.RawMessage
		if start += int64(len(data[start:]) - len(bytes.TrimLeft(data[start:], " \t\r\n,:"))); start < end &&
			json.NewDecoder(bytes.NewReader(data[start:])).Decode(&all) == nil {
			return path, string(all)
		}
		return path, "another value"
	}
}

// Kind returns what JSON calls the values of a type.
func Kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return Kind(t.Elem())
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
