package server

import (
	"encoding/json"
)

// Bounds of a request's JSON. The bytes of a body say little about the memory of its Go values: an empty list has two
// bytes, and its value some hundred.
const (
	maxDepth  = 64
	maxValues = 1 << 17 // of strings, objects and arrays in a body, and of all values read by a template
	maxFields = 4096    // of an object
)

// census counts the values of a JSON text.
type census struct {
	depth  int // of brackets outside of strings
	made   int // strings, objects and arrays
	values int // values of all kinds, or some more
}

// countValues counts the values of a text, valid or not.
func countValues(text []byte) (c census) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			if quoted = !quoted; quoted {
				c.made++
			}
		case quoted:
		case b == '{' || b == '[':
			depth++
			c.depth, c.made, c.values = max(c.depth, depth), c.made+1, c.values+1
		case b == '}' || b == ']':
			depth--
		case b == ',':
			c.values++
		}
	}
	return c
}

// elements calls see for each value of an object or an array, with its name in an object, until see returns false. raw
// is valid JSON without white space around it; see gets parts of raw, not copies.
func elements(raw json.RawMessage, see func(name, value json.RawMessage) bool) {
	object := raw[0] == '{'
	for i := skipSpace(raw, 1); raw[i] != ']' && raw[i] != '}'; {
		var name json.RawMessage
		if object {
			end := valueEnd(raw, i)
			name = raw[i:end]
			i = skipSpace(raw, skipSpace(raw, end)+1) // behind the colon
		}
		end := valueEnd(raw, i)
		if !see(name, raw[i:end:end]) {
			return
		}
		if i = skipSpace(raw, end); raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
	}
}

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

// valueEnd returns the end of the value at i.
func valueEnd(raw []byte, i int) int {
	depth, quoted := 0, false
	for ; i < len(raw); i++ {
		switch b := raw[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			if quoted = !quoted; !quoted && depth == 0 {
				return i + 1
			}
		case quoted:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			if depth--; depth < 0 {
				return i
			} else if depth == 0 {
				return i + 1
			}
		case depth == 0 && (b == ',' || b == ':' || b == ' ' || b == '\t' || b == '\n' || b == '\r'):
			return i
		}
	}
	return i
}

// count returns the number of elements of an object or an array.
func count(raw json.RawMessage) (n int) {
	elements(raw, func(_, _ json.RawMessage) bool {
		n++
		return true
	})
	return n
}

// split returns the elements of an array.
func split(raw json.RawMessage) (all []json.RawMessage) {
	all = make([]json.RawMessage, 0, count(raw))
	elements(raw, func(_, value json.RawMessage) bool {
		all = append(all, value)
		return true
	})
	return all
}
