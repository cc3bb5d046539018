package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// one is a file of the tensors name, each one byte.
func one(names ...string) []byte {
	var entries []string
	for i, n := range names {
		entries = append(entries, fmt.Sprintf(`"%s":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, n, i, i+1))
	}
	return file(`{"__metadata__":{"first":"`+names[0]+`"},`+strings.Join(entries, ",")+`}`, len(names))
}

// sharded writes an index and the two files 1.safetensors (a, b) and 2.safetensors (c).
func sharded(t *testing.T, index string) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"1.safetensors": one("a", "b"), "2.safetensors": one("c"), "broken.safetensors": one("a")[:20],
		"model.safetensors.index.json": []byte(index), "weights": one("a"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "model.safetensors.index.json")
}

func TestIndex(t *testing.T) {
	path := sharded(t, `{"metadata":{"total_size":3,"more":[-1.5e3,null,{"x":"y"}]},"weight_map":{"c":"2.safetensors","a":"1.safetensors","b":"1.safetensors"}}
`)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []string
	for _, x := range f.Tensors {
		got = append(got, fmt.Sprint(x.Name, x.Data))
	}
	if fmt.Sprint(got) != "[a[0] b[1] c[0]]" || f.Metadata["first"] != "a" {
		t.Errorf("%v, %v", got, f.Metadata)
	}
}

// TestSharedIndex opens a model whose files Python's library split.
func TestSharedIndex(t *testing.T) {
	f, err := OpenIndex(golden.Shared(t, "goldens/models/demo/model.safetensors.index.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	bytes := 0
	for _, x := range f.Tensors {
		bytes += len(x.Data)
	}
	if len(f.Tensors) != 80 || bytes != 37775872 { // total_size of the index
		t.Errorf("%d tensors of %d bytes", len(f.Tensors), bytes)
	}
}

// hostileIndexes are refused with an error that says this.
var hostileIndexes = map[string]string{
	``:                                       "byte 0: the JSON ends where '{' is expected",
	`[]`:                                     "byte 0: '[' where '{' is expected",
	`{}`:                                     "no weight_map",
	`{"weight_map":{}}`:                      "no weight_map, or an empty one",
	`{"weight_map":[]}`:                      "'[' where '{' is expected",
	`{"weight_map":{"a":1}}`:                 "byte 19: '1' where '\"' is expected",
	`{"weight_map":{"a":"1.safetensors"}} x`: "byte 37: text after the index's object",
	`{"weight_map":{"a":"1.safetensors"}}` + "\x00":                                "text after the index's object",
	`{"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"1.safetensors"}}`: `1 tensors of the index are in no file, the first is "c" in 1.safetensors`,
	`{"weight_map":{"a":"1.safetensors"}}`:                                         `tensor "b" is in 1.safetensors and not in the index`,
	`{"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"}}`: `tensor "b" is in 1.safetensors, the index says in 2.safetensors`,
	`{"weight_map":{"a":"1.safetensors","a":"2.safetensors"}}`:                     `a second "a"`,
	`{"weight_map":{"a":"1.safetensors"},"weight_map":{}}`:                         "a second weight_map",
	`{"weight_map":{"a":"3.safetensors"}}`:                                         "3.safetensors",
	`{"weight_map":{"a":"broken.safetensors"}}`:                                    "broken.safetensors is cut off: it has 20 bytes, and its header needs 90",
	`{"weight_map":{"a":"weights"}}`:                                               `"weights" is not a .safetensors file`,
	`{"weight_map":{"a":""}}`:                                                      "not a bare file name",
	`{"weight_map":{"a":".."}}`:                                                    "not a bare file name",
	`{"weight_map":{"a":"../1.safetensors"}}`:                                      "not a bare file name",
	`{"weight_map":{"a":"./1.safetensors"}}`:                                       "not a bare file name",
	`{"weight_map":{"a":"/etc/1.safetensors"}}`:                                    "not a bare file name",
	`{"weight_map":{"a":"sub/1.safetensors"}}`:                                     "not a bare file name",
	`{"weight_map":{"a":"..\\1.safetensors"}}`:                                     "not a bare file name",
	`{"weight_map":{"a":"C:1.safetensors"}}`:                                       "not a bare file name",
	`{"weight_map":{"a":"1.safetensors\u0000"}}`:                                   "not a bare file name",
	`{"weight_map":{"a":"1.bin"}}`:                                                 "a .bin file is a Python pickle",
	`{"metadata":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `,"weight_map":{"a":"1.safetensors"}}`: "nested deeper than 16",
	`{"metadata":nul,"weight_map":{"a":"1.safetensors"}}`:                                                           "byte 12: not a JSON value",
	`{"metadata":{"x":},"weight_map":{"a":"1.safetensors"}}`:                                                        "byte 17: not a JSON value",
	"{\"metadata\":\"\xff\"}": "not UTF-8",
}

func TestHostileIndex(t *testing.T) {
	for index, want := range hostileIndexes {
		f, err := Open(sharded(t, index))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), " safetensors: ") {
			t.Errorf("%.80s: read %v, error %v; want %q", index, f, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "model.safetensors.index.json")
	if err := os.WriteFile(path, make([]byte, maxHeader+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "an index of 16777217 bytes, at most 16777216 are allowed") {
		t.Error(err)
	}
}
