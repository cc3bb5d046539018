// Package npy reads and writes NumPy's array files.
//
// A file is \x93NUMPY, a version, the length of the header, the header, a Python dictionary of descr, fortran_order and
// shape, and the elements (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). The reader takes
// arrays of numbers in C order and little endian. It never reads an array of objects, which is a pickle.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Array is an array in C order.
type Array struct {
	Type  string // of the elements: f2, f4, f8, u2, i4 or i8
	Shape []int  // empty for a single number
	Data  []byte // little endian, Shape's product of elements; a part of what was parsed
}

const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 16
	maxDims   = 32 // NumPy's own limit before version 2
)

// sizes are the bytes of an element.
var sizes = map[string]int{"f2": 2, "f4": 4, "f8": 8, "u2": 2, "i4": 4, "i8": 8}

// Parse reads a file's bytes, which the array shares.
func Parse(data []byte) (*Array, error) {
	a, err := parse(data)
	if err != nil {
		return nil, err
	}
	return a, nil
}

func parse(data []byte) (*Array, error) {
	header, rest, err := split(data)
	if err != nil {
		return nil, err
	}
	s := scanner{text: header}
	a, err := s.dictionary()
	if err != nil {
		return nil, fmt.Errorf("header: byte %d: %w", s.at, err)
	}
	want := uint64(sizes[a.Type])
	for _, d := range a.Shape {
		hi, lo := bits.Mul64(want, uint64(d))
		if want = lo; hi != 0 || d > 0 && lo > 1<<62 {
			return nil, fmt.Errorf("shape %v of %s: too many elements", a.Shape, a.Type)
		}
	}
	if want != uint64(len(rest)) {
		return nil, fmt.Errorf("shape %v of %s: %d bytes, the file has %d", a.Shape, a.Type, want, len(rest))
	}
	a.Data = rest
	return a, nil
}

// split cuts a file into header and elements.
func split(data []byte) (header string, rest []byte, err error) {
	if len(data) < 10 || string(data[:6]) != magic {
		return "", nil, errors.New("not a NumPy file: it does not begin with \\x93NUMPY")
	}
	n, at := int(binary.LittleEndian.Uint16(data[8:])), 10
	switch major := data[6]; major {
	case 1:
	case 2, 3:
		if len(data) < 12 {
			return "", nil, errors.New("too short for a header's length")
		}
		n, at = int(binary.LittleEndian.Uint32(data[8:])), 12
	default:
		return "", nil, fmt.Errorf("version %d; supported are 1, 2 and 3", major)
	}
	if n > maxHeader || n > len(data)-at {
		return "", nil, fmt.Errorf("header of %d bytes, want at most %d", n, min(maxHeader, len(data)-at))
	}
	return string(data[at : at+n]), data[at+n:], nil
}

// scanner reads the header's dictionary, as NumPy writes it, in any order and spacing.
type scanner struct {
	text string
	at   int
}

// token returns the next run of letters and digits, quoted string or other byte, "" at the end.
func (s *scanner) token() string {
	rest := strings.TrimLeft(s.text[s.at:], " \t\r\n")
	s.at = len(s.text) - len(rest)
	if rest == "" {
		return ""
	}
	n := strings.IndexFunc(rest, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if rest[0] == '\'' || rest[0] == '"' {
		n = 2 + strings.IndexByte(rest[1:], rest[0])
	}
	switch {
	case n < 0:
		n = len(rest)
	case n <= 1 && rest[0] != '\'' && rest[0] != '"':
		n = 1
	}
	s.at += n
	return rest[:n]
}

func (s *scanner) expect(want string) error {
	if got := s.token(); got != want {
		return fmt.Errorf("%.40q, want %q", got, want)
	}
	return nil
}

func (s *scanner) dictionary() (*Array, error) {
	a := &Array{}
	seen := map[string]bool{}
	if err := s.expect("{"); err != nil {
		return nil, err
	}
	key := s.token()
	for key != "}" {
		name := strings.Trim(key, `'"`)
		if seen[name] {
			return nil, fmt.Errorf("%s a second time", name)
		}
		seen[name] = true
		if err := s.expect(":"); err != nil {
			return nil, err
		}
		if err := s.entry(a, name); err != nil {
			return nil, err
		}
		sep := s.token()
		if key = sep; sep == "," {
			key = s.token()
		} else if sep != "}" {
			return nil, fmt.Errorf("%.40q, want \",\" or \"}\"", sep)
		}
	}
	if rest := s.token(); rest != "" {
		return nil, fmt.Errorf("%.40q after the dictionary", rest)
	}
	if len(seen) != 3 {
		return nil, errors.New("want descr, fortran_order and shape")
	}
	return a, nil
}

func (s *scanner) entry(a *Array, name string) (err error) {
	switch name {
	case "descr":
		v := s.token()
		descr := strings.Trim(v, `'"`)
		order, kind := descr[:min(1, len(descr))], descr[min(1, len(descr)):]
		switch _, ok := sizes[kind]; {
		case order == ">" && ok:
			return fmt.Errorf("elements %s are big endian; write x.astype('<%s')", v, kind)
		case order != "<" || !ok:
			return fmt.Errorf("elements %.40q; read are <f2, <f4, <f8, <u2 (for bfloat16), <i4 and <i8", descr)
		}
		a.Type = kind
	case "fortran_order":
		switch v := s.token(); v {
		case "False":
		case "True":
			return errors.New("in Fortran order; write numpy.ascontiguousarray(x)")
		default:
			return fmt.Errorf("fortran_order %.40q, want True or False", v)
		}
	case "shape":
		a.Shape, err = s.shape()
	default:
		return fmt.Errorf("key %.40q; known are descr, fortran_order and shape", name)
	}
	return err
}

// shape reads a tuple of numbers: (), (3,) or (3, 4).
func (s *scanner) shape() ([]int, error) {
	if err := s.expect("("); err != nil {
		return nil, err
	}
	shape := []int{}
	for v := s.token(); v != ")"; v = s.token() {
		d, err := strconv.ParseUint(strings.TrimSuffix(v, "L"), 10, 62) // Python 2 wrote 3L
		if err != nil || len(shape) == maxDims {
			return nil, fmt.Errorf("shape: %.40q after %d dimensions", v, len(shape))
		}
		shape = append(shape, int(d))
		if v = s.token(); v == ")" {
			break
		} else if v != "," {
			return nil, fmt.Errorf("shape: %.40q, want \",\" or \")\"", v)
		}
	}
	return shape, nil
}
