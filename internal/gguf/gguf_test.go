package gguf

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

// checkTensors holds every tensor's data to its size and its place in file.
func checkTensors(t *testing.T, f *File, file []byte) {
	t.Helper()
	for _, x := range f.Tensors() {
		size, err := tensor.Bytes(x.DType, x.Shape)
		if err != nil || len(x.Data) != size || cap(x.Data) != size {
			t.Errorf("tensor %q: %d bytes, want %d, %v", x.Name, len(x.Data), size, err)
		}
		_, at, ok := f.Place(x.Name)
		if !ok || at < 24 || at+int64(size) > int64(len(file)) || at%int64(f.Alignment) != 0 {
			t.Fatalf("tensor %q lies at byte %d of %d, %v", x.Name, at, len(file), ok)
		}
		if size > 0 && &file[at] != &x.Data[0] {
			t.Errorf("tensor %q is not a part of the file", x.Name)
		}
		if y, ok := f.Tensor(x.Name); !ok || !reflect.DeepEqual(x, y) {
			t.Errorf("Tensor(%q) is another one", x.Name)
		}
	}
}

func TestParse(t *testing.T) {
	file := valid().bytes()
	f, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || f.Alignment != 32 {
		t.Errorf("version %d, alignment %d", f.Version, f.Alignment)
	}
	checkTensors(t, f, file)
	data := file[len(file)-192:]
	want := []tensor.Tensor{
		{Name: "a.weight", DType: tensor.F32, Shape: tensor.Shape{2, 3}, Data: data[:24]},
		{Name: "b.weight", DType: tensor.Q8_0, Shape: tensor.Shape{2, 1, 32}, Data: data[32:100]},
		{Name: "c.bias", DType: tensor.F16, Shape: tensor.Shape{5}, Data: data[128:138]},
		{Name: "d", DType: tensor.BF16, Shape: tensor.Shape{}, Data: data[160:162]},
	}
	if got := f.Tensors(); !reflect.DeepEqual(got, want) {
		t.Errorf("tensors %v", got)
	}
	if _, ok := f.Tensor("e"); ok {
		t.Error("there is a tensor e")
	}
	if _, _, ok := f.Place("e"); ok {
		t.Error("there is a place of e")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// wantValues are what valid's values are in Go.
var wantValues = []KeyValue{
	{"general.architecture", "llama"},
	{"t.u8", uint8(200)},
	{"t.i8", int8(-1)},
	{"t.u16", uint16(60000)},
	{"t.i16", int16(-2)},
	{"t.u32", uint32(4000000000)},
	{"t.i32", int32(-3)},
	{"t.f32", float32(0.5)},
	{"t.bool", true},
	{"t.u64", uint64(1 << 63)},
	{"t.i64", int64(math.MinInt64)},
	{"t.f64", 1e300},
	{"t.strings", []string{"a", "", "ключ"}},
	{"t.bools", []bool{true, false, true}},
	{"t.i32s", []int32{7, -1}},
	{"t.u8s", []uint8{1, 2, 255}},
	{"t.u64s", []uint64{5, 1 << 62}},
	{"t.f32s", []float32{-1.5, 2}},
	{"t.f64s", []float64{0.1}},
	{"t.empty", []string{}},
	{"t.nested", []any{[]uint32{1, 2}, []string{"x"}}},
}

func TestValues(t *testing.T) {
	file, keyAt, _ := valid().build()
	f, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for i, want := range wantValues {
		keys = append(keys, want.Key)
		v, ok := f.Metadata.Lookup(want.Key)
		got, err := v.Any()
		if !ok || err != nil || !reflect.DeepEqual(got, want.Value) {
			t.Errorf("%s = %#v, %v; want %#v", want.Key, got, err, want.Value)
		}
		if at := int64(keyAt[i] + 8 + len(want.Key) + 4); v.Offset() != at {
			t.Errorf("%s is at byte %d, want %d", want.Key, v.Offset(), at)
		}
	}
	if !slices.Equal(f.Metadata.Keys(), keys) {
		t.Errorf("keys %v", f.Metadata.Keys())
	}
	if v, ok := f.Metadata.Lookup("absent"); ok {
		t.Errorf("Lookup(absent) = %v", v)
	}
	if v, _ := f.Metadata.Lookup("t.strings"); v.Type() != Array || v.Elem() != String || v.Len() != 3 {
		t.Errorf("t.strings is %v of %d %v", v.Type(), v.Len(), v.Elem())
	}
}

// TestGetters calls each getter with each of valid's keys: it gives the value
// where the type fits and an error with key and type elsewhere.
func TestGetters(t *testing.T) {
	f, err := Parse(valid().bytes())
	if err != nil {
		t.Fatal(err)
	}
	m := f.Metadata
	getters := map[string]func(string) (any, error){
		"String":  func(k string) (any, error) { return m.String(k) },
		"Bool":    func(k string) (any, error) { return m.Bool(k) },
		"Int":     func(k string) (any, error) { return m.Int(k) },
		"Uint":    func(k string) (any, error) { return m.Uint(k) },
		"Float":   func(k string) (any, error) { return m.Float(k) },
		"Strings": func(k string) (any, error) { return m.Strings(k) },
		"Ints":    func(k string) (any, error) { return m.Ints(k) },
		"Floats":  func(k string) (any, error) { return m.Floats(k) },
	}
	want := map[string]map[string]any{
		"String":  {"general.architecture": "llama"},
		"Bool":    {"t.bool": true},
		"Int":     {"t.u8": int64(200), "t.i8": int64(-1), "t.u16": int64(60000), "t.i16": int64(-2), "t.u32": int64(4000000000), "t.i32": int64(-3), "t.i64": int64(math.MinInt64)},
		"Uint":    {"t.u8": uint64(200), "t.u16": uint64(60000), "t.u32": uint64(4000000000), "t.u64": uint64(1 << 63)},
		"Float":   {"t.f32": 0.5, "t.f64": 1e300},
		"Strings": {"t.strings": []string{"a", "", "ключ"}, "t.empty": []string{}},
		"Ints":    {"t.i32s": []int64{7, -1}, "t.u8s": []int64{1, 2, 255}, "t.u64s": []int64{5, 1 << 62}},
		"Floats":  {"t.f32s": []float64{-1.5, 2}, "t.f64s": []float64{0.1}},
	}
	for name, get := range getters {
		for _, k := range m.Keys() {
			got, err := get(k)
			if value, ok := want[name][k]; ok {
				if err != nil || !reflect.DeepEqual(got, value) {
					t.Errorf("%s(%s) = %v, %v; want %v", name, k, got, err, value)
				}
				continue
			}
			var e *Error
			v, _ := m.Lookup(k)
			if !errors.As(err, &e) || e.Name != fmt.Sprintf("key %q", k) || e.Offset != v.Offset() || e.Declared == "" || e.Allowed == "" {
				t.Errorf("%s(%s) = %v, %v", name, k, got, err)
			}
		}
		if _, err := get("absent"); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), `"absent"`) {
			t.Errorf("%s(absent): %v", name, err)
		}
	}
}

func TestGetterErrors(t *testing.T) {
	f, err := Parse(valid().bytes())
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := f.Metadata.Strings("t.i32s")
	_, err2 := f.Metadata.Uint("t.i8")
	_, err3 := f.Metadata.Int("t.u64")
	_, err4 := f.Metadata.Float("t.strings")
	for err, want := range map[error]string{
		err1: "wrong type (declared an array of 2 int32, allowed an array of string)",
		err2: "negative integer (declared -1, allowed 0 and above)",
		err3: "integer is too large (declared 9223372036854775808, allowed at most 9223372036854775807)",
		err4: "wrong type (declared an array of 3 string, allowed float32 or float64)",
	} {
		if err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestChanged changes the file under an open File, as another program can: what
// the getters give may be wrong then, but they neither panic nor leave the file.
func TestChanged(t *testing.T) {
	file := valid().bytes()
	f, err := Parse(file)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Metadata
	refused := 0
	for i, old := range file[:len(file)-192] {
		for _, b := range []byte{0, 4, 9, 0xff, old ^ 1, old ^ 8} {
			file[i] = b
			for _, k := range m.Keys() {
				v, _ := m.Lookup(k)
				_, any := v.Any()
				_, ints := m.Ints(k)
				_, strs := m.Strings(k)
				_, fl := m.Floats(k)
				_, one := m.String(k)
				if any != nil {
					refused++
				}
				if any != nil && (ints == nil || strs == nil || fl == nil) && v.Type() == Array || any != nil && one == nil {
					t.Errorf("byte %d = %d: Any(%s) gives %v, a getter none", i, b, k, any)
				}
			}
		}
		file[i] = old
	}
	if refused == 0 {
		t.Error("no change was noticed")
	}
}

// TestConcurrent reads one mapped file from several goroutines.
func TestConcurrent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, valid().bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, k := range f.Metadata.Keys() {
				v, _ := f.Metadata.Lookup(k)
				if _, err := v.Any(); err != nil {
					t.Errorf("%s: %v", k, err)
				}
			}
			if x, ok := f.Tensor("c.bias"); !ok || x.Data[0] != 128*7%256+1 {
				t.Error("c.bias")
			}
		})
	}
	wg.Wait()
}

// TestGoldens opens every GGUF file that there is.
func TestGoldens(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 && golden.Dir(t) != golden.Repo(t) {
		t.Fatal("the shared folder has no files")
	}
	for _, path := range append(paths, filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf")) {
		f, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		checkGolden(t, f, filepath.Base(path))
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func checkGolden(t *testing.T, f *File, name string) {
	arch, err := f.Metadata.String("general.architecture")
	if err != nil {
		t.Error(name, err)
	}
	hidden, err := f.Metadata.Uint(arch + ".embedding_length")
	if err != nil {
		t.Error(name, err)
	}
	tokens, err := f.Metadata.Strings("tokenizer.ggml.tokens")
	if err != nil {
		t.Error(name, err)
	}
	embd, ok := f.Tensor("token_embd.weight")
	if want := (tensor.Shape{len(tokens), int(hidden)}); !ok || !slices.Equal(embd.Shape, want) {
		t.Errorf("%s: token_embd.weight is %v, want %v", name, embd.Shape, want)
	}
	end := int64(0)
	for _, x := range f.Tensors() {
		size, err := tensor.Bytes(x.DType, x.Shape)
		if err != nil || size != len(x.Data) || size == 0 {
			t.Errorf("%s: %s: %d bytes for %v %v, %v", name, x.Name, len(x.Data), x.DType, x.Shape, err)
		}
		_, at, _ := f.Place(x.Name)
		if at < end {
			t.Errorf("%s: %s at byte %d overlaps", name, x.Name, at)
		}
		end = at + int64(size)
	}
}

// TestVocabularies reads published vocabularies: their string arrays are the
// largest that there are.
func TestVocabularies(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(golden.Shared(t, "vocab"), "*.gguf.gz"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range paths {
		data := unzip(t, path)
		f, err := Parse(data)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		tokens, err := f.Metadata.Strings("tokenizer.ggml.tokens")
		if err != nil || len(tokens) < 30000 {
			t.Errorf("%s: %d tokens, %v", path, len(tokens), err)
		}
	}
}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(data)
}

// manyStrings is a file with n strings of 1 to 12 bytes.
func manyStrings(n int) []byte {
	body := array(8, uint64(n))
	for i := range n {
		body = append(body, str("abcdefghijkl"[:1+i%12])...)
	}
	return oneKey(9, body)
}

func BenchmarkParse256kStrings(b *testing.B) {
	file := manyStrings(1 << 18)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(file); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode256kStrings(b *testing.B) {
	f, err := Parse(manyStrings(1 << 18))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s, err := f.Metadata.Strings("x"); err != nil || len(s) != 1<<18 {
			b.Fatal(len(s), err)
		}
	}
}
