package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// file is a safetensors file of the header, as it is, and size bytes of data.
func file(header string, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range size {
		b = append(b, byte(i))
	}
	return b
}

// write puts a file in a folder of its own.
func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestParse(t *testing.T) {
	f, err := Parse(file(`{"b":{"shape":[2,2],"dtype":"F16","data_offsets":[4,12]}, "__metadata__": {"k\n":"\u00e9"},
		"none":{"dtype":"I64","shape":[0,3],"data_offsets":[4,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   `, 12))
	if err != nil {
		t.Fatal(err)
	}
	want := []tensor.Tensor{
		{Name: "a", DType: tensor.F32, Shape: tensor.Shape{}, Data: []byte{0, 1, 2, 3}},
		{Name: "none", DType: tensor.I64, Shape: tensor.Shape{0, 3}, Data: []byte{}},
		{Name: "b", DType: tensor.F16, Shape: tensor.Shape{2, 2}, Data: []byte{4, 5, 6, 7, 8, 9, 10, 11}},
	}
	if !reflect.DeepEqual(f.Tensors, want) || !maps.Equal(f.Metadata, map[string]string{"k\n": "é"}) {
		t.Errorf("got %v, %v", f.Tensors, f.Metadata)
	}
	for _, x := range f.Tensors {
		if cap(x.Data) != len(x.Data) {
			t.Errorf("%s: appending to the data would write into the next tensor", x.Name)
		}
	}
	if f, err = Parse(file("{}", 0)); err != nil || len(f.Tensors) != 0 || f.Metadata != nil {
		t.Errorf("empty file: %v, %v", f, err)
	}
}

// TestDTypes reads each type that is said to be read, and no other.
func TestDTypes(t *testing.T) {
	for name, size := range map[string]int{"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
		"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1} {
		f, err := Parse(file(fmt.Sprintf(`{"x":{"dtype":"%s","shape":[3],"data_offsets":[0,%d]}}`, name, 3*size), 3*size))
		if err != nil || f.Tensors[0].DType.String() != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"F8_E3M4", "F4", "C64", "Q4_0", "f32", "invalid", ""} {
		_, err := Parse(file(`{"x":{"dtype":"`+name+`","shape":[0],"data_offsets":[0,0]}}`, 0))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("tensor \"x\": byte %d: dtype %q is not supported", 8+len(`{"x":{"dtype":"`)+len(name)+1, name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestReference reads every file of the goldens, and compares what is read with
// what encoding/json and the offsets in the header say. A file that Python's
// library wrote is written again: the bytes must be the same.
func TestReference(t *testing.T) {
	dir := golden.Dir(t)
	if dir == golden.Repo(t) {
		dir = golden.Unpacked(t)
	}
	for _, c := range []struct {
		pattern  string
		fewest   int
		byPython bool
	}{
		{"models/*/*.safetensors", 4, true},
		{"records/*/*.safetensors", 7, golden.Dir(t) != golden.Repo(t)}, // the repository's are an excerpt
		{"llamacpp/*.safetensors", 3, false},
	} {
		paths, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(c.pattern)))
		if err != nil || len(paths) < c.fewest {
			t.Fatalf("%s: %d files, %v", c.pattern, len(paths), err)
		}
		for _, path := range paths {
			readReference(t, path, c.byPython)
		}
	}
}

func readReference(t *testing.T, path string, byPython bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	compareJSON(t, raw, f)
	var out bytes.Buffer
	if err := Write(&out, f.Tensors, f.Metadata); err != nil {
		t.Error(err)
	}
	if byPython && !bytes.Equal(out.Bytes(), raw) {
		t.Errorf("%s: written again, the bytes differ", path)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// compareJSON decodes the header with encoding/json, another parser, and
// compares every tensor with it and its bytes with the file's.
func compareJSON(t *testing.T, raw []byte, f *File) {
	t.Helper()
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(raw[8:8+n], &header); err != nil {
		t.Fatalf("encoding/json: %v", err)
	}
	var metadata map[string]string
	if m, ok := header[metadataKey]; ok {
		if err := json.Unmarshal(m, &metadata); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		delete(header, metadataKey)
	}
	if !maps.Equal(metadata, f.Metadata) || len(header) != len(f.Tensors) {
		t.Fatalf("%d tensors, metadata %v; encoding/json: %d, %v", len(f.Tensors), f.Metadata, len(header), metadata)
	}
	for _, x := range f.Tensors {
		var want struct {
			DType   string
			Shape   []int
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(header[x.Name], &want); err != nil {
			t.Fatalf("%q: encoding/json: %v", x.Name, err)
		}
		if want.DType != x.DType.String() || !slices.Equal(want.Shape, x.Shape) {
			t.Fatalf("%q: %v %v, encoding/json: %v", x.Name, x.DType, x.Shape, want)
		}
		data := raw[8+n:]
		if !bytes.Equal(x.Data, data[want.Offsets[0]:want.Offsets[1]]) {
			t.Fatalf("%q: other bytes than at %v", x.Name, want.Offsets)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{write(t, "empty.safetensors", nil), "empty.safetensors: the file is empty"},
		{filepath.Join(t.TempDir(), "absent.safetensors"), "absent.safetensors"},
		{t.TempDir(), "not a regular file"},
		{write(t, "x.safetensors", file(`{"x":1}`, 0)), `tensor "x": byte 13: '1' where '{' is expected`},
	} {
		f, err := Open(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v; want %q", f, err, c.want)
		}
	}
}

func TestWrite(t *testing.T) {
	tensors := []tensor.Tensor{
		{Name: "z", DType: tensor.U8, Shape: tensor.Shape{3}, Data: []byte{1, 2, 3}},
		{Name: "a\"<\u2028é", DType: tensor.BF16, Shape: tensor.Shape{1, 1}, Data: []byte{4, 5}},
		{Name: "m", DType: tensor.F64, Data: make([]byte, 8)},
		{Name: "b", DType: tensor.F64, Shape: tensor.Shape{0}, Data: nil},
	}
	metadata := map[string]string{"one": "1", "two": "\t<2>", "three": ""}
	var first []byte
	for range 3 {
		var out bytes.Buffer
		if err := Write(&out, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = out.Bytes()
		}
		if !bytes.Equal(out.Bytes(), first) {
			t.Fatal("the order of the tensors changes the file")
		}
		slices.Reverse(tensors[:3])
		tensors[1], tensors[3] = tensors[3], tensors[1]
	}
	f, err := Parse(first)
	if err != nil {
		t.Fatal(err)
	}
	compareJSON(t, first, f)
	var names []string
	for _, x := range f.Tensors {
		names = append(names, x.Name)
	}
	if want := []string{"b", "m", "a\"<\u2028é", "z"}; !slices.Equal(names, want) || !maps.Equal(f.Metadata, metadata) {
		t.Errorf("read back: %q, %q", names, f.Metadata)
	}
	if n := binary.LittleEndian.Uint64(first); n%8 != 0 {
		t.Errorf("header of %d bytes", n)
	}
}

func TestWriteErrors(t *testing.T) {
	good := func() tensor.Tensor {
		return tensor.Tensor{Name: "x", DType: tensor.U8, Shape: tensor.Shape{2}, Data: []byte{1, 2}}
	}
	change := func(f func(x *tensor.Tensor)) []tensor.Tensor { x := good(); f(&x); return []tensor.Tensor{x} }
	for want, tensors := range map[string][]tensor.Tensor{
		"the name is taken":      {good(), good()},
		"no safetensors dtype":   change(func(x *tensor.Tensor) { x.DType = tensor.Q8_0 }),
		"2 bytes, but":           change(func(x *tensor.Tensor) { x.Shape[0] = 3 }),
		"dimension":              change(func(x *tensor.Tensor) { x.Shape = make(tensor.Shape, 9) }),
		"at most 1024 bytes":     change(func(x *tensor.Tensor) { x.Name = strings.Repeat("x", 1025) }),
		"of UTF-8":               change(func(x *tensor.Tensor) { x.Name = "\xff" }),
		`"__metadata__": the na`: change(func(x *tensor.Tensor) { x.Name = metadataKey }),
		"more elements":          change(func(x *tensor.Tensor) { x.Shape = tensor.Shape{math.MaxInt, 2} }),
	} {
		var out bytes.Buffer
		if err := Write(&out, tensors, nil); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v after %d bytes, want %q", err, out.Len(), want)
		}
	}
	if err := Write(&bytes.Buffer{}, nil, map[string]string{"x": "\xff"}); err == nil {
		t.Error("metadata that are not UTF-8 are written")
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	x := tensor.Tensor{Name: "x", DType: tensor.U8, Shape: tensor.Shape{2}, Data: []byte{1, 2}}
	for _, v := range []byte{7, 9} { // the second replaces the first
		x.Data = []byte{v, v}
		if err := WriteFile(path, []tensor.Tensor{x}, nil); err != nil {
			t.Fatal(err)
		}
	}
	bad := x
	bad.Shape = tensor.Shape{3}
	if err := WriteFile(path, []tensor.Tensor{bad}, nil); err == nil {
		t.Error("a tensor without its bytes is written")
	}
	if err := WriteFile(filepath.Join(dir, "absent", "x"), nil, nil); err == nil {
		t.Error("written into no folder")
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !bytes.Equal(f.Tensors[0].Data, []byte{9, 9}) {
		t.Errorf("after a failed write: %v", f.Tensors)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left in the folder: %v", entries)
	}
}

// TestWriter gives the bytes of Write, whatever the pieces.
func TestWriter(t *testing.T) {
	tensors := []tensor.Tensor{
		{Name: "b", DType: tensor.BF16, Shape: tensor.Shape{3}, Data: []byte("bbbbbb")},
		{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{1, 2}, Data: []byte("aaaa")},
		{Name: "c", DType: tensor.F32, Shape: tensor.Shape{1}, Data: []byte("cccc")},
	}
	var whole, pieces bytes.Buffer
	if err := Write(&whole, tensors, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(&pieces, tensors, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for _, x := range w.Tensors {
		data = append(data, x.Data...)
	}
	for i := range data {
		if err := w.Close(); err == nil {
			t.Fatalf("%d of %d bytes are a whole file", i, len(data))
		}
		if _, err := w.Write(data[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil || !bytes.Equal(whole.Bytes(), pieces.Bytes()) {
		t.Errorf("%v: %q, want %q", err, pieces.Bytes(), whole.Bytes())
	}
	if _, err := w.Write([]byte{0}); err == nil {
		t.Error("a byte too many: no error")
	}
}
