package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// hostile are files that must be refused, and what the error must say. They are
// also the corpus of FuzzParse.
var hostile = map[string]struct {
	data []byte
	want string
}{
	"no bytes":               {nil, "the file is empty"},
	"7 bytes":                {make([]byte, 7), "x.safetensors is cut off: it has 7 bytes, and its header needs 8. Download it again"},
	"header of 0":            {make([]byte, 16), "byte 0: a header of 0 bytes"},
	"header beyond the file": {file(`{}`, 0)[:9], "x.safetensors is cut off: it has 9 bytes, and its header needs 10. Download it again"},
	"header of 2^64-1":       {bytes.Repeat([]byte{255}, 16), "byte 0: a header of 18446744073709551615 bytes, at most 16777216 are allowed"},
	"header of 100 MB":       {binary.LittleEndian.AppendUint64(nil, 100_000_001), "byte 0: a header of 100000001 bytes, at most 16777216"},
	"header not an object":   {file(`[{}]`, 0), `byte 8: the header begins with '[', not with {`},
	"space before it":        {file(` {}`, 0), `byte 8: the header begins with ' '`},
	"header cut":             {file(`{"a":{"dtype":"F32","sha`, 0), "byte 32: the JSON ends in a string"},
	"header cut after colon": {file(`{"a":`, 0), "byte 13: the JSON ends where '{' is expected"},
	"text after the object":  {file(`{} x`, 0), "byte 11: 'x' after the header's object"},
	"tab after the object":   {file("{}\t", 0), `byte 10: '\t' after the header's object`},
	"second object":          {file(`{}{}`, 0), "byte 10: '{' after the header's object"},
	"not UTF-8":              {file("{\"\xff\":1}", 0), "not UTF-8"},
	"control character":      {file("{\"a\nb\":1}", 0), `byte 11: control character '\n' in a string`},
	"bad escape":             {file(`{"\x":1}`, 0), "string before it: invalid character 'x' in string escape"},
	"comma at the end":       {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}`, 1), "'}' where '\"' is expected"},
	"comma missing":          {file(`{"a":{"dtype":"U8" "shape":[1],"data_offsets":[0,1]}}`, 1), "'\"' where ',' is expected"},
	"no object":              {file(`{"a":null}`, 0), `tensor "a": byte 13: 'n' where '{' is expected`},
	"overlap":                {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6), `tensor "b": data_offsets [2, 6] overlap another tensor, which ends at 4`},
	"same place":             {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 4), `data_offsets [0, 4] overlap`},
	"empty inside":           {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, 4), `tensor "b": data_offsets [2, 2] overlap`},
	"hole":                   {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`, 5), `tensor "b": data_offsets [3, 5] leave a hole from 2`},
	"hole at the start":      {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "leave a hole from 0"},
	"trailing bytes":         {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 5), "3 bytes after the last tensor, from byte 63"},
	"trailing, no tensor":    {file(`{}`, 1), "1 bytes after the last tensor, from byte 10"},
	"data short":             {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1), "x.safetensors is cut off: it has 62 bytes, and its tensors need 63. Download it again"},
	"end before begin":       {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[2,0]}}`, 2), "data_offsets [2, 0], but U8 of shape [2] has 2 bytes"},
	"size too small":         {file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "data_offsets [0, 4], but F32 of shape [2] has 8 bytes"},
	"size too large":         {file(`{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}}`, 4), "data_offsets [0, 4], but F16 of shape [1] has 2 bytes"},
	"shape overflow":         {file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "more elements than an int holds"},
	"byte overflow":          {file(`{"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}}`, 0), "more bytes than an int holds"},
	"hidden by a zero":       {file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}}`, 0), "more elements than an int holds"},
	"number of 65 bits":      {file(`{"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0]}}`, 0), "byte 55: a number greater than 9223372036854775807"},
	"negative":               {file(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}`, 0), "byte 36: not a non-negative integer"},
	"fraction":               {file(`{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}`, 1), "'.' where ',' is expected"},
	"exponent":               {file(`{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}`, 1), "'e' where ',' is expected"},
	"leading zero":           {file(`{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}`, 1), "not a non-negative integer"},
	"number as string":       {file(`{"a":{"dtype":"U8","shape":["1"],"data_offsets":[0,1]}}`, 1), "not a non-negative integer"},
	"one offset":             {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1]}}`, 1), "two data_offsets"},
	"three offsets":          {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1), "more than 2 numbers"},
	"nine dimensions":        {file(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1), "more than 8 numbers"},
	"no dtype":               {file(`{"a":{"shape":[1],"data_offsets":[0,1]}}`, 1), "needs a dtype"},
	"no shape":               {file(`{"a":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "needs a dtype, a shape"},
	"unknown key":            {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"code":""}}`, 1), `tensor "a": byte 67: key "code" is unknown or there twice`},
	"duplicate dtype":        {file(`{"a":{"dtype":"U8","dtype":"F32","shape":[1],"data_offsets":[0,1]}}`, 1), `key "dtype" is unknown or there twice`},
	"duplicate shape":        {file(`{"a":{"dtype":"U8","shape":[],"shape":[1],"data_offsets":[0,1]}}`, 1), `key "shape" is unknown or there twice`},
	"duplicate tensor":       {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `tensor "a": the header names it twice`},
	"duplicate in disguise":  {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `tensor "a": the header names it twice`},
	"duplicate metadata":     {file(`{"__metadata__":{},"__metadata__":{}}`, 0), "a second __metadata__"},
	"duplicate in metadata":  {file(`{"__metadata__":{"a":"1","a":"2"}}`, 0), `a second "a"`},
	"metadata not strings":   {file(`{"__metadata__":{"a":1}}`, 0), "byte 29: '1' where '\"' is expected"},
	"deep metadata":          {file(`{"__metadata__":{"a":`+strings.Repeat(`[`, 9000)+strings.Repeat(`]`, 9000)+`}}`, 0), "'[' where '\"' is expected"},
	"deep shape":             {file(`{"a":{"dtype":"U8","shape":`+strings.Repeat(`[`, 9000)+strings.Repeat(`]`, 9000)+`}}`, 0), "not a non-negative integer"},
	"long name":              {file(`{"`+strings.Repeat("a", 2000)+`":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), "a tensor's name of 2000 bytes"},
	"4-bit float":            {file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 1), `dtype "F4" is not supported`},
	"zip polyglot":           {append([]byte("PK\x03\x04\x00\x00\x00\x00{}"), make([]byte, 100)...), "this is a zip archive"},
}

// pickles are files that must be refused with the reason.
var pickles = map[string]struct {
	data []byte
	want string
}{
	"model.safetensors":        {[]byte("PK\x03\x04\x14\x00\x00\x00\x08\x00archive/data.pkl"), "a zip archive, perhaps PyTorch's, which has a pickle in it"},
	"old.safetensors":          {[]byte("\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."), "a Python pickle, whose reading would run code from it"},
	"gguf.safetensors":         {[]byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00"), "this is a GGUF file"},
	"lfs.safetensors":          {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0"), "this is a Git LFS pointer"},
	"page.safetensors":         {[]byte("<!DOCTYPE html>"), "this is a web page"},
	"index.safetensors":        {[]byte(`{"weight_map":{}}`), "this is JSON without the length of a header"},
	"pytorch_model.bin":        {file(`{}`, 0), "a .bin file is a Python pickle, whose reading would run code from it"},
	"model.pt":                 {file(`{}`, 0), "a .pt file is a Python pickle"},
	"model.PTH":                {file(`{}`, 0), "a .pth file is a Python pickle"},
	"model.ckpt":               {file(`{}`, 0), "a .ckpt file is a Python pickle"},
	"model.pkl":                {file(`{}`, 0), "a .pkl file is a Python pickle"},
	"m.bin.index.json":         {[]byte(`{"weight_map":{"a":"b.safetensors"}}`), "a .bin file is a Python pickle"},
	"m.safetensors.index.json": {[]byte(`{"weight_map":{"a":"pytorch_model.bin"}}`), "a .bin file is a Python pickle"},
}

// TestIncidents holds the rows of the list of incidents that this format has.
func TestIncidents(t *testing.T) {
	t.Run("A12", func(t *testing.T) {
		for name, c := range hostile {
			t.Run(name, func(t *testing.T) { refused(t, write(t, "x.safetensors", c.data), c.want) })
		}
		t.Run("every truncation", func(t *testing.T) {
			whole := file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"__metadata__":{"b":"c"}} `, 2)
			for n := range whole {
				if _, err := Parse(whole[:n]); err == nil {
					t.Errorf("cut after %d bytes of %d: read", n, len(whole))
				}
			}
			if _, err := Parse(whole); err != nil {
				t.Error(err)
			}
		})
		t.Run("greatest header", greatestHeader)
	})
	t.Run("A15", func(t *testing.T) {
		for name, c := range pickles {
			t.Run(name, func(t *testing.T) { refused(t, write(t, name, c.data), c.want) })
		}
	})
}

// refused opens the file, which must fail as the list of incidents demands.
func refused(t *testing.T, path, want string) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Open(path)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), filepath.Base(path)) {
		t.Fatalf("read %v, error %v; want %q", f, err, want)
	}
	runtime.ReadMemStats(&after)
	if bytes, n := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs; bytes > 64<<20 || n > 1<<20 {
		t.Errorf("%d bytes in %d allocations", bytes, n)
	}
	if len(err.Error()) > 2000 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// greatestHeader is wrong only in what is found last, after as many tensors as are
// allowed with as many dimensions and as long names as the header has room for:
// what the reader allocates for it stays below 64 MiB with the mapped header.
func greatestHeader(t *testing.T) {
	var b bytes.Buffer
	name := strings.Repeat("n", (maxHeader-16)/maxTensors-72)
	b.WriteByte('{')
	for i := range maxTensors {
		fmt.Fprintf(&b, `"%s%06d":{"dtype":"U8","shape":[0,1,1,1,1,1,1,1],"data_offsets":[0,0]},`, name, i)
	}
	header := append(b.Bytes()[:b.Len()-1], '}')
	for _, data := range [][]byte{file(string(header), 1), file(string(bytes.Replace(header, []byte("000001"), []byte("000000"), 1)), 0)} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Open(path)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Fatal("read")
		}
		total := after.TotalAlloc - before.TotalAlloc + uint64(len(header))
		pieces := after.Mallocs - before.Mallocs
		t.Logf("%d MB header: %.60v; %.1f MiB, %d allocations", len(header)>>20, err, float64(total)/(1<<20), pieces)
		if total > 64<<20 || pieces > 1<<20 {
			t.Errorf("%d MiB in %d allocations", total>>20, pieces)
		}
	}
}
