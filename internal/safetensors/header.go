package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/tensor"
)

// What a file may declare. The largest published headers have under 2 MiB and
// 20,000 tensors, the largest index 200,000.
const (
	maxHeader   = 16 << 20
	maxTensors  = 1 << 17
	maxIndexed  = 1 << 18
	maxMetadata = 1 << 12 // entries
	maxDims     = 8
	maxName     = 1 << 10 // bytes
)

const metadataKey = "__metadata__"

// dtypes lists the element types under their String names, in the order of the reference's writer.
var dtypes = [...]tensor.DType{
	tensor.Bool, tensor.U8, tensor.I8, tensor.F8_E5M2, tensor.F8_E4M3, tensor.F8_E8M0,
	tensor.I16, tensor.U16, tensor.F16, tensor.BF16,
	tensor.I32, tensor.U32, tensor.F32, tensor.F64, tensor.I64, tensor.U64,
}

// entry is a tensor's entry in the header: Bytes(dtype, shape) is end-begin.
type entry struct {
	name       string
	dtype      tensor.DType
	shape      tensor.Shape
	begin, end int // after the header
}

// parseHeader reads the header's JSON, in the order of the text.
func parseHeader(text []byte) (entries []entry, metadata map[string]string, err error) {
	if !utf8.Valid(text) {
		return nil, nil, errors.New("the header is not UTF-8")
	}
	entries = make([]entry, 0, min(bytes.Count(text, []byte(`"dtype"`)), maxTensors))
	s := scanner{text: text, base: 8}
	err = s.object(func(name string) error {
		if name == metadataKey {
			if metadata != nil {
				return s.errorf("a second %s", metadataKey)
			}
			metadata, err = s.strings(maxMetadata)
			return err
		}
		if len(entries) == maxTensors {
			return s.errorf("more than %d tensors", maxTensors)
		}
		e, err := s.entry(name)
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for ; s.pos < len(text); s.pos++ {
		if text[s.pos] != ' ' {
			return nil, nil, s.errorf("%q after the header's object, only spaces may follow", text[s.pos])
		}
	}
	return entries, metadata, nil
}

// entry reads a tensor's object: dtype, shape and data_offsets, each once, in any order.
func (s *scanner) entry(name string) (entry, error) {
	if len(name) > maxName {
		return entry{}, s.errorf("a tensor's name of %d bytes, at most %d are allowed", len(name), maxName)
	}
	e := entry{name: name}
	var offsets []int
	err := s.object(func(key string) (err error) {
		switch {
		case key == "dtype" && e.dtype == tensor.Invalid:
			e.dtype, err = s.dtype()
		case key == "shape" && e.shape == nil:
			e.shape, err = s.ints(maxDims)
		case key == "data_offsets" && offsets == nil:
			offsets, err = s.ints(2)
		default:
			err = s.errorf("key %.40q is unknown or there twice", key)
		}
		return err
	})
	if err == nil && (e.dtype == tensor.Invalid || e.shape == nil || len(offsets) != 2) {
		err = s.errorf("needs a dtype, a shape and two data_offsets")
	}
	if err != nil {
		return e, fmt.Errorf("tensor %q: %w", name, err)
	}
	e.begin, e.end = offsets[0], offsets[1]
	size, err := tensor.Bytes(e.dtype, e.shape)
	if err != nil {
		return e, fmt.Errorf("tensor %q: %w", name, err)
	}
	if e.end < e.begin || e.end-e.begin != size {
		return e, fmt.Errorf("tensor %q: data_offsets [%d, %d], but %v of shape %v has %d bytes", name, e.begin, e.end,
			e.dtype, e.shape, size)
	}
	return e, nil
}

func (s *scanner) dtype() (tensor.DType, error) {
	name, err := s.string()
	if err != nil {
		return tensor.Invalid, err
	}
	for _, d := range dtypes {
		if d.String() == name {
			return d, nil
		}
	}
	return tensor.Invalid, s.errorf("dtype %.40q is not supported", name)
}

// ints reads an array of at most limit integers. The result is never nil.
func (s *scanner) ints(limit int) ([]int, error) {
	var v [maxDims]int
	n := 0
	err := s.array(func() (err error) {
		if n == limit {
			return s.errorf("more than %d numbers", limit)
		}
		v[n], err = s.int()
		n++
		return err
	})
	return slices.Clone(v[:n:n]), err
}

// strings reads an object of at most limit different strings. The result is never nil.
func (s *scanner) strings(limit int) (map[string]string, error) {
	m := map[string]string{}
	err := s.object(func(key string) (err error) {
		if _, ok := m[key]; ok {
			return s.errorf("a second %.40q", key)
		}
		if len(m) == limit {
			return s.errorf("more than %d entries", limit)
		}
		m[key], err = s.string()
		return err
	})
	return m, err
}

// maxDepth bounds the nesting of skipped values.
const maxDepth = 16

// scanner reads JSON from left to right, building nothing. Package encoding/json would take the last of two equal keys,
// and 1e3 for an integer, and needs several times the text's size in memory.
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
