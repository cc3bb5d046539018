package npy

import (
	"bytes"
	"encoding/binary"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

var update = flag.Bool("update", false, "write the fuzz target's corpus")

// file returns a file of that header, padded as NumPy does, and n bytes of elements.
func file(version byte, header string, n int) []byte {
	b := append([]byte(magic), version, 0)
	size := 2
	if version > 1 {
		size = 4
	}
	header += strings.Repeat(" ", 63-(len(b)+size+len(header))%64) + "\n"
	if size == 2 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

var good = map[string]struct {
	data  []byte
	kind  string
	shape []int
}{
	// The bytes that numpy.save writes.
	"numpy":    {append([]byte("\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"+strings.Repeat(" ", 58)+"\n"), make([]byte, 24)...), "f4", []int{2, 3}},
	"scalar":   {file(1, `{'descr': '<f8', 'fortran_order': False, 'shape': ()}`, 8), "f8", []int{}},
	"vector":   {file(2, `{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}`, 24), "i8", []int{3}},
	"order":    {file(3, `{"shape":(1,2,3),"descr":"<u2","fortran_order":False,}`, 12), "u2", []int{1, 2, 3}},
	"empty":    {file(1, `{'descr': '<f2', 'fortran_order': False, 'shape': (0, 7)}`, 0), "f2", []int{0, 7}},
	"python 2": {file(1, `{'descr': '<i4', 'fortran_order': False, 'shape': (2L, 1L)}`, 8), "i4", []int{2, 1}},
}

var bad = map[string]struct {
	data []byte
	want string
}{
	"nothing":       {nil, "does not begin"},
	"magic only":    {[]byte(magic), "does not begin"},
	"zip":           {[]byte("PK\x03\x04 a .npz file"), "does not begin"},
	"version":       {file(9, `{}`, 0), "version 9"},
	"short":         {[]byte(magic + "\x02\x00\x01\x00"), "too short"},
	"long header":   {[]byte(magic + "\x02\x00\xff\xff\xff\xff{}"), "header of"},
	"no dictionary": {file(1, `[]`, 0), `want "{"`},
	"unended":       {file(1, `{'descr': '<f4`, 0), "elements"},
	"empty header":  {file(1, `{}`, 0), "want descr"},
	"missing":       {file(1, `{'descr': '<f4', 'shape': (1,)}`, 4), "want descr"},
	"twice":         {file(1, `{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}`, 4), "second time"},
	"objects":       {file(1, `{'descr': '|O', 'fortran_order': False, 'shape': (1,)}`, 4), "elements"},
	"structure":     {file(1, `{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}`, 4), "elements"},
	"big endian":    {file(1, `{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}`, 4), "big endian"},
	"native":        {file(1, `{'descr': '=f4', 'fortran_order': False, 'shape': (1,)}`, 4), "elements"},
	"fortran":       {file(1, `{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}`, 4), "ascontiguousarray"},
	"order word":    {file(1, `{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}`, 4), "want True or False"},
	"key":           {file(1, `{'descr': '<f4', 'extra': 1}`, 4), "key"},
	"too short":     {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}`, 7), "8 bytes, the file has 7"},
	"too long":      {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}`, 9), "8 bytes, the file has 9"},
	"overflow":      {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4294967296)}`, 0), "too many"},
	"hidden zero":   {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387903, 8, 0)}`, 0), "too many"},
	"negative":      {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}`, 0), "shape"},
	"number":        {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': 3}`, 12), "want \"(\""},
	"no comma":      {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}`, 48), "shape"},
	"many":          {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (`+strings.Repeat("1,", 33)+`)}`, 4), "32 dimensions"},
	"text after":    {file(1, `{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x`, 4), "after the dictionary"},
}

func TestParse(t *testing.T) {
	for name, c := range good {
		a, err := Parse(c.data)
		if err != nil || a.Type != c.kind || !slices.Equal(a.Shape, c.shape) || !bytes.HasSuffix(c.data, a.Data) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	for name, c := range bad {
		if _, err := Parse(c.data); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// TestCorpus keeps the committed corpus in step with the cases above.
func TestCorpus(t *testing.T) {
	want := map[string][]byte{}
	for name, c := range good {
		want["good-"+name] = c.data
	}
	for name, c := range bad {
		want["bad-"+name] = c.data
	}
	golden.Corpus(t, "FuzzParse", want, *update)
}

// FuzzParse: any bytes give an error, or an array whose elements are the file's last bytes, as many as its shape says.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Parse(data)
		if err != nil {
			return
		}
		n := sizes[a.Type]
		for _, d := range a.Shape {
			n *= d
		}
		if n == 0 && len(a.Data) != 0 || n != len(a.Data) || !bytes.HasSuffix(data, a.Data) {
			t.Errorf("%s %v: %d bytes", a.Type, a.Shape, len(a.Data))
		}
	})
}
