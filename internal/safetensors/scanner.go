package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
)

// maxDepth bounds the nesting of skipped values.
const maxDepth = 16

// scanner reads JSON from left to right, building nothing. Package encoding/json
// would take the last of two equal keys, and 1e3 for an integer, and needs
// several times the text's size in memory.
type scanner struct {
	text  []byte
	pos   int
	base  int // where text begins in the file
	depth int
}

// errorf returns an error at the current byte of the file.
func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: "+format, append([]any{s.base + s.pos}, args...)...)
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// expect consumes the byte c.
func (s *scanner) expect(c byte) error {
	if found := s.peek(); found != c {
		if s.pos == len(s.text) {
			return s.errorf("the JSON ends where %q is expected", c)
		}
		return s.errorf("%q where %q is expected", found, c)
	}
	s.pos++
	return nil
}

// object calls member with each key; member must read the value.
func (s *scanner) object(member func(key string) error) error {
	return s.list('{', '}', func() error {
		key, err := s.string()
		if err == nil {
			err = s.expect(':')
		}
		if err != nil {
			return err
		}
		return member(key)
	})
}

// array calls element to read each value.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

func (s *scanner) list(open, end byte, element func() error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	if s.depth++; s.depth > maxDepth {
		return s.errorf("nested deeper than %d", maxDepth)
	}
	for first := true; s.peek() != end; first = false {
		if !first {
			if err := s.expect(','); err != nil {
				return err
			}
		}
		if err := element(); err != nil {
			return err
		}
	}
	s.depth--
	return s.expect(end)
}

// string reads a string.
func (s *scanner) string() (string, error) {
	if err := s.expect('"'); err != nil {
		return "", err
	}
	begin, escaped := s.pos, false
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == '\\':
			escaped = true
			s.pos++
		case c < ' ':
			return "", s.errorf("control character %q in a string", c)
		case c == '"':
			s.pos++
			if !escaped {
				return string(s.text[begin : s.pos-1]), nil
			}
			var v string
			if err := json.Unmarshal(s.text[begin-1:s.pos], &v); err != nil {
				return "", s.errorf("string before it: %v", err)
			}
			return v, nil
		}
	}
	s.pos = len(s.text)
	return "", s.errorf("the JSON ends in a string")
}

// int reads a number of digits alone, 0 to the greatest int.
func (s *scanner) int() (int, error) {
	first, begin, v := s.peek(), s.pos, 0
	for ; s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9'; s.pos++ {
		digit := int(s.text[s.pos] - '0')
		if v > (math.MaxInt-digit)/10 {
			return 0, s.errorf("a number greater than %d", math.MaxInt)
		}
		v = v*10 + digit
	}
	if s.pos == begin || first == '0' && s.pos > begin+1 {
		return 0, s.errorf("not a non-negative integer")
	}
	return v, nil
}

// skip reads any value.
func (s *scanner) skip() error {
	switch s.peek() {
	case '{':
		return s.object(func(string) error { return s.skip() })
	case '[':
		return s.array(s.skip)
	case '"':
		_, err := s.string()
		return err
	}
	n := bytes.IndexAny(s.text[s.pos:], ",]} \t\r\n")
	if n < 0 || !json.Valid(s.text[s.pos:s.pos+n]) {
		return s.errorf("not a JSON value")
	}
	s.pos += n
	return nil
}
