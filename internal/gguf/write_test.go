package gguf

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// TestWrite writes what valid holds; the bytes must be those put together by hand.
func TestWrite(t *testing.T) {
	s := valid()
	s.data = bytes.Clone(s.data)
	for _, gap := range [][2]int{{24, 32}, {100, 128}, {138, 160}, {162, 192}} {
		clear(s.data[gap[0]:gap[1]]) // the padding is zeros
	}
	want := s.bytes()
	f, err := Parse(want)
	if err != nil {
		t.Fatal(err)
	}
	copied := make([]KeyValue, len(wantValues))
	for i, kv := range wantValues {
		v, _ := f.Metadata.Lookup(kv.Key)
		copied[i] = KeyValue{kv.Key, v}
	}
	for name, metadata := range map[string][]KeyValue{"values": wantValues, "copied values": copied} {
		var b bytes.Buffer
		if err := Write(&b, metadata, f.Tensors()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: the file differs:\n%q\n%q", name, b.Bytes(), want)
		}
	}
}

// TestWriterPieces writes the data in pieces of each size.
func TestWriterPieces(t *testing.T) {
	tensors := []tensor.Tensor{
		{Name: "a", DType: tensor.F32, Shape: tensor.Shape{3}, Data: counting(12)},
		{Name: "b", DType: tensor.I8, Shape: tensor.Shape{64}, Data: counting(64)},
		{Name: "c", DType: tensor.I8, Shape: tensor.Shape{7}, Data: counting(7)},
	}
	metadata := []KeyValue{{"general.alignment", uint32(64)}}
	var whole bytes.Buffer
	if err := Write(&whole, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	data := join(counting(12), counting(64), counting(7))
	for size := 1; size <= len(data); size++ {
		var b bytes.Buffer
		w, err := NewWriter(&b, metadata, tensors)
		if err != nil {
			t.Fatal(err)
		}
		for rest := data; len(rest) > 0; {
			n, err := w.Write(rest[:min(size, len(rest))])
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil || !bytes.Equal(b.Bytes(), whole.Bytes()) {
			t.Errorf("pieces of %d bytes: %v, or another file", size, err)
		}
	}
	f, err := Parse(whole.Bytes())
	if err != nil || f.Alignment != 64 {
		t.Fatal(f, err)
	}
	checkTensors(t, f, whole.Bytes())
	if got := f.Tensors(); !reflect.DeepEqual(got, tensors) {
		t.Errorf("tensors %v", got)
	}
}

func TestWriterErrors(t *testing.T) {
	one := tensor.Tensor{Name: "a", DType: tensor.F32, Shape: tensor.Shape{8}, Data: counting(32)}
	with := func(change func(*tensor.Tensor)) []tensor.Tensor {
		x := one
		change(&x)
		return []tensor.Tensor{x}
	}
	for _, c := range []struct {
		metadata []KeyValue
		tensors  []tensor.Tensor
		says     string
	}{
		{metadata: []KeyValue{{"k", 1}}, says: `key "k": GGUF has no values of type int`},
		{metadata: []KeyValue{{"k", nil}}, says: "GGUF has no values of type"},
		{metadata: []KeyValue{{"k", []int{1}}}, says: "GGUF has no values of type int"},
		{metadata: []KeyValue{{"k", map[string]int{}}}, says: "GGUF has no values of type map"},
		{metadata: []KeyValue{{"k", []any{1}}}, says: "a int among arrays"},
		{metadata: []KeyValue{{"k", []any{[]any{[]any{[]any{[]any{}}}}}}}, says: "nested too deeply"},
		{metadata: []KeyValue{{"k", "v"}, {"k", "v"}}, says: `key "k" is already there`},
		{metadata: []KeyValue{{"", "v"}}, says: "a key is empty"},
		{metadata: []KeyValue{{"k", strings.Repeat("v", 16<<20+1)}}, says: "a string is too long"},
		{metadata: []KeyValue{{"general.alignment", uint32(12)}}, says: "bad alignment"},
		{metadata: []KeyValue{{"general.alignment", uint32(0)}}, tensors: []tensor.Tensor{one}, says: "bad alignment"},
		{metadata: []KeyValue{{"general.alignment", uint64(32)}}, says: "wrong type"},
		{tensors: []tensor.Tensor{one, one}, says: `a tensor "a" is already there`},
		{tensors: with(func(x *tensor.Tensor) { x.DType = tensor.U16 }), says: "GGUF has no elements of type U16"},
		{tensors: with(func(x *tensor.Tensor) { x.DType = tensor.Q4_K }), says: "no multiple of Q4_K's blocks"},
		{tensors: with(func(x *tensor.Tensor) { x.Shape = tensor.Shape{1, 1, 1, 1, 8} }), says: "too many dimensions"},
		{tensors: with(func(x *tensor.Tensor) { x.Shape = tensor.Shape{0} }), says: "bad dimension"},
		{tensors: with(func(x *tensor.Tensor) { x.Name = strings.Repeat("n", 64) }), says: "too long"},
		{tensors: with(func(x *tensor.Tensor) { x.Data = x.Data[:31] }), says: "Data has 31 bytes, not 32"},
	} {
		var b bytes.Buffer
		if err := Write(&b, c.metadata, c.tensors); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error %v, want %s", err, c.says)
		}
	}
}

func TestWriterCount(t *testing.T) {
	tensors := []tensor.Tensor{{Name: "a", DType: tensor.I8, Shape: tensor.Shape{4}}}
	w, err := NewWriter(io.Discard, nil, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("123")); n != 3 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("Close with a byte missing: %v", err)
	}
	w, err = NewWriter(io.Discard, nil, tensors)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("12345")); n != 4 || err == nil || !strings.Contains(err.Error(), "more data") {
		t.Errorf("Write of a byte too many = %d, %v", n, err)
	}
}

// failing is a disk that is full after some bytes.
type failing struct{ room int }

var errFull = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n := f.room
		f.room = 0
		return n, errFull
	}
	f.room -= len(p)
	return len(p), nil
}

func TestWriterFull(t *testing.T) {
	tensors := []tensor.Tensor{{Name: "a", DType: tensor.I8, Shape: tensor.Shape{40}, Data: counting(40)}}
	var b bytes.Buffer
	if err := Write(&b, nil, tensors); err != nil {
		t.Fatal(err)
	}
	for room := range b.Len() {
		if err := Write(&failing{room}, nil, tensors); !errors.Is(err, errFull) {
			t.Errorf("room for %d of %d bytes: %v", room, b.Len(), err)
		}
	}
	if err := Write(&failing{b.Len()}, nil, tensors); err != nil {
		t.Error(err)
	}
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	version := func(n uint32) func(io.Writer) error {
		return func(w io.Writer) error { return Write(w, []KeyValue{{"n", n}}, nil) }
	}
	for n := range uint32(2) { // the second replaces the first
		if err := WriteFile(path, version(n)); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.Metadata.Uint("n"); got != uint64(n) || err != nil {
			t.Errorf("n = %d, %v", got, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = WriteFile(path, func(w io.Writer) error {
		w.Write([]byte("half of"))
		return errFull
	})
	if !errors.Is(err, errFull) {
		t.Errorf("WriteFile on a full disk: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed: %v", err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if err := WriteFile(filepath.Join(dir, "absent", "m.gguf"), version(0)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent folder: %v", err)
	}
}
