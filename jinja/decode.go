package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth bounds arrays and objects inside each other.
const maxJSONDepth = 500

// DecodeJSON makes a value of a JSON text as Python's json.loads does: keys keep their order, of equal keys the last
// value counts, and a number is a float if it is spelt with a point or an exponent, otherwise an integer of 64 bits.
// Half a surrogate pair becomes U+FFFD. Errors name the byte offset.
func DecodeJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("json: not UTF-8")
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		bad, ok := errors.AsType[*json.SyntaxError](err)
		early := ok && strings.HasPrefix(bad.Error(), "invalid character ' '") && !bytes.HasSuffix(data, []byte(" "))
		if !ok || early || strings.HasPrefix(bad.Error(), "unexpected end") {
			return nil, fmt.Errorf("json: byte %d: the text ends too early", len(data))
		}
		return nil, fmt.Errorf("json: byte %d: %w", bad.Offset-1, err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return decodeValue(d, 0)
}

// decodeValue reads the next value of valid JSON.
func decodeValue(d *json.Decoder, depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("json: byte %d: nested deeper than %d", d.InputOffset(), maxJSONDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("json: byte %d: %w", d.InputOffset(), err)
	}
	switch x := token.(type) {
	case string:
		return unmarked(x), nil
	case bool:
		return boolean(x), nil
	case json.Number:
		return decodeNumber(d, string(x))
	case json.Delim:
		items, dict := []Value{}, NewDict()
		for d.More() {
			var name json.Token
			if x == '{' {
				name, _ = d.Token() // a string: the JSON is valid
			}
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			if x == '{' {
				dict.Set(name.(string), v)
			} else {
				items = append(items, v)
			}
		}
		if _, err := d.Token(); x == '{' {
			return dict, err
		}
		return List(items...), nil
	}
	return None, nil
}

func decodeNumber(d *json.Decoder, spelt string) (Value, error) {
	if strings.ContainsAny(spelt, ".eE") {
		f, _ := strconv.ParseFloat(spelt, 64) // out of range: infinite, as in Python
		return float(f), nil
	}
	i, err := strconv.ParseInt(spelt, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("json: byte %d: an integer of more than 64 bits is not supported",
			d.InputOffset()-int64(len(spelt)))
	}
	return integer(i), nil
}
