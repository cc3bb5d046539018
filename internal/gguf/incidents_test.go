package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// hostile is a file that must be refused with this error.
type hostile struct {
	row, name string
	data      []byte
	at        int64    // Error.Offset
	of        string   // Error.Name
	says      []string // parts of the message: what, declared, allowed
}

// Where things are in a file with one key or one tensor's entry of name "x":
// 24 bytes of header, then 8 and 1 of the name.
const (
	atFirst   = 24
	atType    = atFirst + 8 + 1 // a key's type, or a tensor's dimensions
	atValue   = atType + 4
	atOneDim  = atType + 4    // the only dimension
	atOneType = atOneDim + 8  // the type of a tensor with one dimension
	atOneOff  = atOneType + 4 // and the offset of its data
	inTensor  = `tensor "x"`  // Error.Name
	inKey     = `key "x"`     // likewise
	inAlign   = `key "general.alignment"`
)

func oneKey(typ uint32, body ...[]byte) []byte {
	return spec{keys: [][]byte{key("x", typ, body...)}}.bytes()
}

func oneTensor(id uint32, offset uint64, ne ...uint64) []byte {
	return spec{entries: [][]byte{tensorEntry("x", id, offset, ne...)}, data: counting(256)}.bytes()
}

func counts(tensors, keys uint64) []byte {
	return spec{tensors: ptr(tensors), keyCount: ptr(keys), data: counting(64)}.bytes()
}

// sizes are A1 to A3: what a file declares about sizes and counts.
func sizes() []hostile {
	const top = math.MaxUint64
	beyond := "the data runs past the end of the file"
	return []hostile{
		{"A1", "size", oneTensor(0, 0, 65), atOneOff, inTensor, []string{"is cut off: it has 320 bytes, and its tensors need 324"}},
		{"A1", "offset", oneTensor(0, 1<<40, 8), atOneOff, inTensor, []string{"a gap lies before the data", "1099511627776", "allowed 0"}},
		{"A1", "offset wraps", oneTensor(0, top-31, 16), atOneOff, inTensor, []string{"a gap", "18446744073709551584"}},
		{"A1", "negative offset", oneTensor(0, 1<<63, 16), atOneOff, inTensor, []string{"a gap", "9223372036854775808"}},
		{"A1", "second tensor", spec{entries: [][]byte{tensorEntry("x", 0, 0, 8), tensorEntry("y", 0, 32, 57)}, data: counting(256)}.bytes(),
			57 + 25, `tensor "y"`, []string{"is cut off: it has 352 bytes, and its tensors need 356"}},
		{"A2", "size wraps", oneTensor(0, 0, 1<<61), atOneType, inTensor, []string{"more bytes than an int holds"}},
		{"A2", "padding wraps", oneTensor(24, 0, math.MaxInt64), atOneOff, inTensor, []string{beyond, "9223372036854775807 bytes"}},
		{"A2", "sum wraps", spec{entries: [][]byte{tensorEntry("x", 24, 0, 1<<62), tensorEntry("y", 24, 1<<62, 1<<62),
			tensorEntry("z", 24, 1<<63, 1<<62), tensorEntry("w", 24, 3<<62, 1<<62)}, data: counting(256)}.bytes(),
			atOneOff, inTensor, []string{beyond}},
		{"A2", "elements wrap", oneTensor(0, 0, 1<<32, 1<<32), atOneDim + 16, inTensor, []string{"more elements than an int holds"}},
		{"A3", "keys -1", counts(0, top), 16, "header", []string{"the number of keys is too large", "18446744073709551615", "at most 16384"}},
		{"A3", "keys 2^63", counts(0, 1<<63), 16, "header", []string{"the number of keys is too large", "9223372036854775808"}},
		{"A3", "keys beyond the file", counts(0, 100), 16, "header", []string{"is cut off: it has 96 bytes, and its header needs 1424 or more. Download it again"}},
		{"A3", "tensors -1", counts(top, 0), 8, "header", []string{"the number of tensors is too large", "at most 65536"}},
		{"A3", "tensors 2^63", counts(1<<63, 0), 8, "header", []string{"the number of tensors is too large"}},
		{"A3", "tensors beyond the file", counts(4, 0), 8, "header", []string{"is cut off", "its header needs 116 or more"}},
		{"A3", "dimension 2^63", oneTensor(0, 0, 1<<63), atOneDim, inTensor, []string{"bad dimension 0", "9223372036854775808"}},
		{"A3", "dimension -1", oneTensor(0, 0, 4, top), atOneDim + 8, inTensor, []string{"bad dimension 1", "18446744073709551615"}},
		{"A3", "dimension 0", oneTensor(0, 0, 0), atOneDim, inTensor, []string{"bad dimension 0", "declared 0"}},
	}
}

// strs are A4, A5 and A9: strings and arrays.
func strs() []hostile {
	deep := array(0, 1, u8(1))
	for range 5 {
		deep = array(9, 1, deep)
	}
	header := func(key []byte) []byte { return spec{keys: [][]byte{key}, data: counting(64)}.bytes() }
	return []hostile{
		{"A4", "version 1", spec{version: 1, keys: [][]byte{key("x", 8, u64(0))}}.bytes(), 4, "header", []string{"version 1", "declared 1", "2 or 3"}},
		{"A4", "empty key", header(key("", 8, str("v"))), atFirst, "key 1", []string{"a key is empty"}},
		{"A4", "key 2^40", header(join(u64(1<<40), []byte("xxxxxxxx"))), atFirst, "key 1", []string{"a key is too long", "1099511627776", "at most 1024"}},
		{"A4", "key beyond the file", header(join(u64(1000), []byte("xxxxxx"))), atFirst + 8, "key 1", []string{"is cut off"}},
		{"A4", "NUL in a key", header(key("x\x00y", 8, str("v"))), atFirst, "key 1", []string{"a control character", `x\x00y`}},
		{"A4", "key not UTF-8", header(key("\xff", 8, str("v"))), atFirst, "key 1", []string{"not UTF-8"}},
		{"A4", "escape in a name", spec{entries: [][]byte{tensorEntry("\x1b[2J", 0, 0, 8)}, data: counting(32)}.bytes(), atFirst, "tensor 1", []string{"a control character"}},
		{"A4", "string 2^40", oneKey(8, u64(1<<40)), atValue, inKey, []string{"a string is too long", "at most 16777216"}},
		{"A4", "string -1", oneKey(8, u64(math.MaxUint64)), atValue, inKey, []string{"a string is too long"}},
		{"A4", "string beyond the file", oneKey(8, u64(100)), atValue + 8, inKey, []string{"is cut off", "its header needs"}},
		{"A5", "2^32 strings", oneKey(9, array(8, 1<<32)), atValue + 4, inKey, []string{"number of an array's elements is too large", "4294967296", "at most 4194304"}},
		{"A5", "strings beyond the file", oneKey(9, array(8, 1<<20)), atValue + 4, inKey, []string{"is cut off"}},
		{"A5", "bytes beyond the file", oneKey(9, array(0, 1<<22)), atValue + 4, inKey, []string{"is cut off"}},
		{"A5", "2^63 bytes", oneKey(9, array(0, 1<<63)), atValue + 4, inKey, []string{"too large"}},
		{"A5", "size wraps", oneKey(9, array(10, 1<<61)), atValue + 4, inKey, []string{"too large"}},
		{"A5", "nested too deeply", oneKey(9, deep), atValue + 4*12, inKey, []string{"nested too deeply", "declared 5", "at most 4"}},
		{"A5", "2^32 arrays", oneKey(9, array(9, 1<<32)), atValue + 4, inKey, []string{"too large"}},
		{"A5", "arrays beyond the file", oneKey(9, array(9, 1<<20, array(9, 1<<20))), atValue + 4, inKey, []string{"is cut off"}},
		{"A5", "five dimensions", oneTensor(0, 0, 1, 1, 1, 1, 1), atType, inTensor, []string{"too many dimensions", "declared 5", "at most 4"}},
		{"A5", "2^32-1 dimensions", spec{entries: [][]byte{join(str("x"), u32(math.MaxUint32), u64(1), u64(1))}}.bytes(), atType, inTensor, []string{"too many dimensions"}},
		{"A9", "token beyond 16 MiB", oneKey(9, array(8, 1, u64(16<<20+1))), atValue + 12, inKey, []string{"too long", "declared 16777217", "at most 16777216"}},
	}
}

// divisors is A6.
func divisors() []hostile {
	at := int64(atFirst + 8 + len("general.alignment") + 4)
	alignment := func(typ uint32, a []byte) []byte {
		return spec{keys: [][]byte{key("general.alignment", typ, a)}}.bytes()
	}
	var list []hostile
	for _, a := range []uint32{0, 1, 3, 4, 33, 1 << 21, 1 << 31} {
		list = append(list, hostile{"A6", fmt.Sprintf("alignment %d", a), alignment(4, u32(a)), at, inAlign,
			[]string{"bad alignment", fmt.Sprintf("declared %d,", a), "powers of two from 8 to 1048576"}})
	}
	return append(list,
		hostile{"A6", "alignment uint64", alignment(10, u64(32)), at, inAlign, []string{"wrong type", "declared uint64", "allowed uint32"}},
		hostile{"A6", "alignment string", alignment(8, str("32")), at, inAlign, []string{"wrong type", "declared string"}},
		hostile{"A6", "block does not divide the row", oneTensor(12, 0, 160), atOneType, inTensor, []string{"rows of 160 elements", "Q4_K's blocks of 256"}},
		hostile{"A6", "no dimensions, blocks", oneTensor(8, 0), atType + 4, inTensor, []string{"rows of 1 elements", "Q8_0"}},
	)
}

// structure is A8, llama.cpp's test-gguf list.
func structure() []hostile {
	two := func(a, b []byte) []byte { return spec{entries: [][]byte{a, b}, data: counting(256)}.bytes() }
	x, second := tensorEntry("x", 0, 0, 9), int64(atFirst+33) // 36 bytes of data, 33 of entry
	return []hostile{
		{"A8", "magic", spec{magic: "GGUX"}.bytes(), 0, "", []string{`not a GGUF file: it begins with "GGUX"`}},
		{"A8", "version 0", join([]byte("GGUF"), make([]byte, 20)), 4, "header", []string{"no GGUF version", "declared 0"}},
		{"A8", "version 4", spec{version: 4}.bytes(), 4, "header", []string{"newer than this program", "declared 4", "2 or 3"}},
		{"A8", "big-endian", spec{version: 3 << 24}.bytes(), 4, "header", []string{"a big-endian file, of version 3", "0x3000000"}},
		{"A8", "duplicate key", spec{keys: [][]byte{key("x", 4, u32(1)), key("x", 4, u32(1))}}.bytes(), atFirst + 17, "key 2", []string{`key "x" is already there, with a value at byte 37`}},
		{"A8", "duplicate tensor", two(x, tensorEntry("x", 0, 64, 9)), second, "tensor 2", []string{`a tensor "x" is already there`}},
		{"A8", "value type", oneKey(13, u32(0)), atType, inKey, []string{"unknown type of value", "declared 13", "0 to 12"}},
		{"A8", "element type", oneKey(9, array(99, 0)), atValue, inKey, []string{"unknown type of an array's elements", "declared 99"}},
		{"A8", "tensor type", oneTensor(99, 0, 8), atOneType, inTensor, []string{"a type that is not read", "99, unknown"}},
		{"A8", "tensor type -1", oneTensor(math.MaxUint32, 0, 8), atOneType, inTensor, []string{"4294967295, unknown"}},
		{"A8", "tensor type removed", oneTensor(4, 0, 32), atOneType, inTensor, []string{"4, Q4_2"}},
		{"A8", "tensor type not read", oneTensor(15, 0, 256), atOneType, inTensor, []string{"15, Q8_K", "for activations"}},
		{"A8", "tensor type replaced", oneTensor(31, 0, 256), atOneType, inTensor, []string{"31, Q4_0_4_4", "replaced by Q4_0: quantize the model to Q4_0"}},
		{"A8", "tensor type replaced 8x8", oneTensor(38, 0, 256), atOneType, inTensor, []string{"38, IQ4_NL_8_8", "replaced by IQ4_NL: quantize"}},
		{"A8", "tensor type of another project", oneTensor(137, 0, 256), atOneType, inTensor, []string{"137, IQ2_K", "only ik_llama.cpp reads"}},
		{"A8", "name of 64 bytes", spec{entries: [][]byte{tensorEntry(strings.Repeat("n", 64), 0, 0, 8)}, data: counting(32)}.bytes(), atFirst, "tensor 1", []string{"too long", "declared 64", "at most 63"}},
		{"A8", "offset not aligned", oneTensor(0, 8, 8), atOneOff, inTensor, []string{"not aligned", "declared 8", "multiples of 32"}},
		{"A8", "alignment not that of the data", spec{keys: [][]byte{key("general.alignment", 4, u32(64))},
			entries: [][]byte{x, tensorEntry("y", 0, 96, 9)}, data: counting(256)}.bytes(), atFirst + 33 + 33 + 25, `tensor "y"`, []string{"not aligned", "multiples of 64"}},
		{"A8", "overlap", two(x, tensorEntry("y", 0, 32, 9)), second + 25, `tensor "y"`, []string{`overlaps that of "x"`, "declared 32", "allowed 64"}},
		{"A8", "gap", two(x, tensorEntry("y", 0, 96, 9)), second + 25, `tensor "y"`, []string{"a gap lies before the data", "declared 96", "allowed 64"}},
		{"A8", "data short", oneTensor(0, 0, 65), atOneOff, inTensor, []string{"is cut off: it has 320 bytes"}},
		{"A8", "data missing", spec{entries: [][]byte{x}, noPadding: true}.bytes(), atOneOff, inTensor, []string{"is cut off: it has 57 bytes, and its tensors need 100"}},
		{"A8", "bytes after the data", spec{entries: [][]byte{x}, data: counting(65)}.bytes(), 128, "end", []string{"bytes follow the last tensor", "129", "allowed 128"}},
		{"A8", "bool", oneKey(7, u8(2)), atValue, inKey, []string{"neither 0 nor 1", "declared 2"}},
		{"A8", "bools", oneKey(9, array(7, 3, u8(1), u8(0), u8(0xff))), atValue + 12 + 2, inKey, []string{"neither 0 nor 1", "declared 255"}},
	}
}

// others is A15: files of other formats.
func others() []hostile {
	list := []struct{ name, data, want string }{
		{"pickle", "\x80\x02}q\x00X\x06\x00\x00\x00weightq\x01.", "a Python pickle"},
		{"zip", "PK\x03\x04\x00\x00\x08\x08archive/data.pkl", "a ZIP archive"},
		{"safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{\"__metadata__\":{}}", "a safetensors file"},
		{"html", "\r\n<!DOCTYPE html><html><body>404", "a web page"},
		{"ggml", "lmgg\x01\x00\x00\x00", "a GGML file"},
		{"json", `{"error":"Repository not found"}`, "a JSON file"},
		{"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer"},
		{"zeros", strings.Repeat("\x00", 64), "an empty download"},
		{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00", "a gzip file"},
		{"text", "Hello there", `begins with "Hell"`},
		{"two letters", "Hi", `begins with "Hi"`},
	}
	out := make([]hostile, len(list))
	for i, c := range list {
		out[i] = hostile{"A15", c.name, []byte(c.data), 0, "", []string{"not a GGUF file", c.want}}
	}
	return out
}

func allHostile() []hostile {
	var all []hostile
	for _, f := range []func() []hostile{sizes, strs, divisors, structure, others} {
		all = append(all, f()...)
	}
	return all
}

// TestIncidents runs the rows of the list of what happened to other engines.
func TestIncidents(t *testing.T) {
	rows := make(map[string][]hostile)
	for _, h := range allHostile() {
		rows[h.row] = append(rows[h.row], h)
	}
	run := func(row string, more func(*testing.T)) {
		t.Run(row, func(t *testing.T) {
			for _, h := range rows[row] {
				t.Run(h.name, h.test)
			}
			if more != nil {
				more(t)
			}
		})
	}
	run("A1", nil)
	run("A2", nil)
	run("A3", testMany)
	run("A4", nil)
	run("A5", nil)
	run("A6", nil)
	run("A7", testShort)
	run("A8", testTwins)
	run("A9", testLongToken)
	run("A10", testOddNumbers)
	run("A11", testSplits)
	run("A15", nil)
}

// test reads h from memory and from disk.
func (h hostile) test(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hostile.gguf")
	if err := os.WriteFile(path, h.data, 0o600); err != nil {
		t.Fatal(err)
	}
	h.check(t, "", func() (*File, error) { return Parse(h.data) })
	h.check(t, path, func() (*File, error) { return Open(path) })
}

func (h hostile) check(t *testing.T, path string, open func() (*File, error)) {
	t.Helper()
	f, err := bounded(t, open)
	var e *Error
	if f != nil || !errors.As(err, &e) {
		t.Fatalf("file %v, error %v; want an *Error", f, err)
	}
	if e.Path != path || e.Name != h.of || e.Offset != h.at {
		t.Errorf("error in %q, %s, byte %d; want %q, %s, byte %d", e.Path, e.Name, e.Offset, path, h.of, h.at)
	}
	for _, part := range h.says {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// bounded calls open and holds it to 64 MiB in half a million pieces.
func bounded(t *testing.T, open func() (*File, error)) (*File, error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := open()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got >= 64<<20 {
		t.Errorf("%d MiB allocated", got>>20)
	}
	if got := after.Mallocs - before.Mallocs; got >= 1<<19 {
		t.Errorf("%d allocations", got)
	}
	return f, err
}

// testMany is A3 for counts that are allowed: the largest headers that there can
// be, wrong only in the last entry.
func testMany(t *testing.T) {
	tensors, keys, strs, arrays := spec{}, spec{}, array(8, maxElements), array(9, maxElements)
	for i := range maxTensors {
		tensors.entries = append(tensors.entries, tensorEntry(fmt.Sprintf("%063d", i), 0, uint64(i)*32, 1, 1, 1, 8))
	}
	tensors.entries[maxTensors-1] = tensors.entries[0]
	for i := range maxKeys {
		keys.keys = append(keys.keys, key(fmt.Sprintf("%01024d", i), 0, u8(0)))
	}
	keys.keys[maxKeys-1] = keys.keys[0]
	for range maxElements - 1 {
		strs = append(strs, 0, 0, 0, 0, 0, 0, 0, 0)
		arrays = append(arrays, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	strs = append(strs, u64(math.MaxUint64)...)
	arrays = append(arrays, array(99, 0)...)
	for name, c := range map[string]struct {
		s    spec
		says string
	}{
		"many tensors": {tensors, "already there"},
		"many keys":    {keys, "already there"},
		"many strings": {spec{keys: [][]byte{key("x", 9, strs)}}, "too long"},
		"many arrays":  {spec{keys: [][]byte{key("x", 9, arrays)}}, "unknown type"},
		"long header":  {spec{keys: [][]byte{key("x", 9, strs[:len(strs)-8], u64(0)), key("y", 9, strs)}}, "longer than is read"},
	} {
		t.Run(name, func(t *testing.T) {
			data := c.s.bytes()
			if _, err := bounded(t, func() (*File, error) { return Parse(data) }); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %s", err, c.says)
			}
		})
	}
}

// testShort is A7: files that end too early, and values that are not there.
func testShort(t *testing.T) {
	whole := valid().bytes()
	last := len(whole) - 30 // the last tensor's 2 bytes end here; padding may be missing
	for n := 1; n < last; n++ {
		f, err := bounded(t, func() (*File, error) { return Parse(whole[:n]) })
		var e *Error
		if f != nil || !errors.As(err, &e) || e.Offset > int64(n) || e.Name == "" || !strings.HasPrefix(err.Error(), fmt.Sprintf("the file is cut off: it has %d bytes, and its ", n)) ||
			e.Need <= int64(n) || e.Need > int64(len(whole)) {
			t.Fatalf("the first %d of %d bytes: %v, %v", n, len(whole), f, err)
		}
	}
	for n := last; n <= len(whole); n++ {
		if _, err := Parse(whole[:n]); err != nil {
			t.Errorf("the first %d of %d bytes: %v", n, len(whole), err)
		}
	}
	f, err := Parse(whole)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Metadata.Uint("llama.block_count"); !errors.Is(err, ErrNoKey) || !strings.Contains(err.Error(), `"llama.block_count"`) {
		t.Errorf("missing key: %v", err)
	}
	if _, err := f.Metadata.Uint("t.f32"); err == nil || !strings.Contains(err.Error(), `key "t.f32": byte `) || !strings.Contains(err.Error(), "declared float32") {
		t.Errorf("wrong type: %v", err)
	}
	path := filepath.Join(t.TempDir(), "empty.gguf")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path+": the file is empty") {
		t.Errorf("empty file: %v", err)
	}
}

// testTwins is A8's success twins: valid files that differ little from refused ones.
func testTwins(t *testing.T) {
	x := tensorEntry("x", 0, 0, 9)
	for name, s := range map[string]spec{
		"version 2":        {version: 2, keys: [][]byte{key("x", 4, u32(1))}},
		"nothing":          {},
		"nothing, no pad":  {noPadding: true},
		"bool":             {keys: [][]byte{key("x", 7, u8(0))}},
		"name of 63 bytes": {entries: [][]byte{tensorEntry(strings.Repeat("n", 63), 0, 0, 8)}, data: counting(32)},
		"four dimensions":  {entries: [][]byte{tensorEntry("x", 0, 0, 2, 1, 2, 2)}, data: counting(32)},
		"two tensors":      {entries: [][]byte{x, tensorEntry("y", 0, 64, 9)}, data: counting(128)},
		"padding missing":  {entries: [][]byte{x}, data: counting(36)},
		"padding there":    {entries: [][]byte{x}, data: counting(64)},
		"alignment 64": {keys: [][]byte{key("general.alignment", 4, u32(64))}, alignment: 64,
			entries: [][]byte{x, tensorEntry("y", 0, 64, 9)}, data: counting(128)},
		"alignment 8": {keys: [][]byte{key("general.alignment", 4, u32(8))}, alignment: 8,
			entries: [][]byte{x, tensorEntry("y", 0, 40, 9)}, data: counting(80)},
		"four arrays": {keys: [][]byte{key("x", 9, array(9, 1, array(9, 1, array(9, 1, array(0, 1, u8(1))))))}},
	} {
		t.Run("twin "+name, func(t *testing.T) {
			data := s.bytes()
			f, err := Parse(data)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Tensors()) != len(s.entries) || len(f.Metadata.Keys()) != len(s.keys) {
				t.Errorf("%d tensors, %d keys", len(f.Tensors()), len(f.Metadata.Keys()))
			}
			checkTensors(t, f, data)
		})
	}
}

// testLongToken is A9: a token's text of 1 MiB is read whole.
func testLongToken(t *testing.T) {
	long := strings.Repeat("ab", 1<<19)
	f, err := bounded(t, func() (*File, error) { return Parse(oneKey(9, array(8, 2, str(long), str("c")))) })
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.Metadata.Strings("x"); err != nil || len(s) != 2 || s[0] != long || s[1] != "c" {
		t.Errorf("Strings: %d strings, %v", len(s), err)
	}
}

// oddNumbers holds NaN, Inf, zeros and denormals, and a block whose scale is NaN.
func oddNumbers() spec {
	nan := float32(math.NaN())
	return spec{
		keys:    [][]byte{key("x", 6, f32(nan))},
		entries: [][]byte{tensorEntry("a", 0, 0, 4), tensorEntry("b", 8, 32, 32)},
		data: join(f32(nan), f32(float32(math.Inf(-1))), f32(0), f32(math.SmallestNonzeroFloat32),
			make([]byte, 16), u16(0x7e00), make([]byte, 32)),
	}
}

// testOddNumbers is A10: such numbers are data like any other.
func testOddNumbers(t *testing.T) {
	s := oddNumbers()
	f, err := Parse(s.bytes())
	if err != nil {
		t.Fatal(err)
	}
	a, _ := f.Tensor("a")
	b, _ := f.Tensor("b")
	if !bytes.Equal(a.Data, s.data[:16]) || !bytes.Equal(b.Data, s.data[32:]) {
		t.Errorf("a = %x, b = %x", a.Data, b.Data)
	}
	if x, err := f.Metadata.Float("x"); err != nil || !math.IsNaN(x) {
		t.Errorf("Float = %v, %v", x, err)
	}
}
