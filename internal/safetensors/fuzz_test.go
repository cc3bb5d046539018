package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

var update = flag.Bool("update", false, "write the corpora of the fuzz targets")

// TestCorpus keeps the committed corpora in step with the hostile files, less
// the long ones: the fuzzer would spend its time on making those shorter.
func TestCorpus(t *testing.T) {
	want := map[string]map[string][]byte{"FuzzParse": {}, "FuzzIndex": {}}
	add := func(target, name string, data []byte) {
		if len(data) < 1<<10 {
			want[target][name] = data
		}
	}
	for name, c := range hostile {
		add("FuzzParse", name, c.data)
	}
	for i, data := range [][]byte{
		file(`{}`, 0), one("a", "b", "c"),
		file(`{"b":{"shape":[2,2],"dtype":"F16","data_offsets":[4,12]}, "__metadata__": {"k\n":"\u00e9"}, "e":{"dtype":"I64","shape":[0,3],"data_offsets":[4,4]},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   `, 12),
	} {
		add("FuzzParse", fmt.Sprintf("good-%d", i), data)
	}
	for index := range hostileIndexes {
		add("FuzzIndex", fmt.Sprintf("%x", sha256.Sum256([]byte(index)))[:16], []byte(index))
	}
	add("FuzzIndex", "good", []byte(`{"metadata":{"total_size":3,"more":[-1.5e3,null,{"x":"y"}]},"weight_map":{"c":"2.safetensors","a":"1.safetensors"}}`))
	for target, seeds := range want {
		golden.Corpus(t, target, seeds, *update)
	}
}

// FuzzParse: any bytes give an error, or tensors that are the data from its first
// byte to its last and that encoding/json sees too, and that are written and read
// again as they were.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			if len(err.Error()) > 8000 {
				t.Error(err)
			}
			return
		}
		compareJSON(t, data, s)
		var all []byte
		for _, x := range s.Tensors {
			all = append(all, x.Data...)
		}
		if n := binary.LittleEndian.Uint64(data); !bytes.Equal(all, data[8+n:]) {
			t.Fatal("the tensors are not the data")
		}
		var first, second bytes.Buffer
		if err := Write(&first, s.Tensors, s.Metadata); err != nil {
			t.Fatal(err)
		}
		if s, err = Parse(first.Bytes()); err != nil {
			t.Fatal(err)
		}
		compareJSON(t, first.Bytes(), s)
		if err := Write(&second, s.Tensors, s.Metadata); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("written twice, different: %v", err)
		}
	})
}

// FuzzIndex: any bytes give an error, or bare file names that encoding/json sees too.
func FuzzIndex(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseIndex(text)
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		var want map[string]string
		if err := errors.Join(json.Unmarshal(text, &object), json.Unmarshal(object["weight_map"], &want)); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		for name, file := range m {
			if want[name] != file || filepath.Base(file) != file || !strings.HasSuffix(file, ".safetensors") {
				t.Fatalf("%q in %q, encoding/json: %q", name, file, want[name])
			}
		}
	})
}
