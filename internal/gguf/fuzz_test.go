package gguf

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tensor"
)

var update = flag.Bool("update", false, "write testdata/fuzz again")

// seeds are the files of FuzzParse's corpus by name: valid ones of each feature
// and the hostile ones.
func seeds() map[string][]byte {
	s := map[string][]byte{
		"valid":     valid().bytes(),
		"version-2": spec{version: 2, keys: [][]byte{key("x", 4, u32(1))}}.bytes(),
		"alignment": spec{keys: [][]byte{key("general.alignment", 4, u32(64))}, alignment: 64, entries: [][]byte{tensorEntry("x", 24, 0, 3)}, data: counting(64)}.bytes(),
		"A7-short":  valid().bytes()[:300],
		"A10":       oddNumbers().bytes(),
		"A11-part":  splitParts()[1].bytes(),
	}
	for id, x := range ggmlTypes {
		if x.dtype != tensor.Invalid {
			data := counting((x.dtype.BlockBytes()*2 + 31) &^ 31)
			s["type-"+x.name] = spec{entries: [][]byte{tensorEntry("x", uint32(id), 0, uint64(x.dtype.BlockSize()), 2)}, data: data}.bytes()
		}
	}
	for _, h := range allHostile() {
		s[h.row+"-"+strings.NewReplacer(" ", "-", ",", "", "^", "to").Replace(h.name)] = h.data
	}
	return s
}

// TestCorpus keeps the committed corpus the same as seeds; -update writes it.
func TestCorpus(t *testing.T) { golden.Corpus(t, "FuzzParse", seeds(), *update) }

// FuzzParse: no input makes Parse or Read panic, and they agree; what they accept has
// its tensors inside the input, decodes, and is the same after it was written and read again.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Parse(data)
		pieces, err2 := Read(Source{At: bytes.NewReader(data), Size: int64(len(data))})
		if (err == nil) != (err2 == nil) {
			t.Fatalf("Parse: %v, Read: %v", err, err2)
		}
		if err != nil {
			if g != nil {
				t.Fatalf("file %v with error %v", g, err)
			}
			return
		}
		checkTensors(t, g, data)
		for i, x := range pieces.Tensors() {
			if want := g.Tensors()[i]; x.Name != want.Name || x.Source == nil && !bytes.Equal(x.Data, want.Data) {
				t.Fatalf("%s by pieces is not %s", x.Name, want.Name)
			}
		}
		var metadata []KeyValue
		for _, k := range g.Metadata.Keys() {
			v, _ := g.Metadata.Lookup(k)
			x, err := v.Any()
			if err != nil {
				t.Fatalf("key %q: %v", k, err)
			}
			metadata = append(metadata, KeyValue{k, x})
		}
		var b bytes.Buffer
		if err := Write(&b, metadata, g.Tensors()); err != nil {
			t.Fatalf("write: %v", err)
		}
		checkSame(t, g, b.Bytes())
	})
}

func checkSame(t *testing.T, g *File, written []byte) {
	h, err := Parse(written)
	if err != nil {
		t.Fatalf("read again: %v", err)
	}
	checkTensors(t, h, written)
	if len(g.Tensors()) != len(h.Tensors()) || len(g.Metadata.Keys()) != len(h.Metadata.Keys()) {
		t.Fatal("read again: other counts")
	}
	for i, x := range g.Tensors() {
		y := h.Tensors()[i]
		if x.Name != y.Name || x.DType != y.DType || fmt.Sprint(x.Shape) != fmt.Sprint(y.Shape) || !bytes.Equal(x.Data, y.Data) {
			t.Fatalf("read again: tensor %q differs", x.Name)
		}
	}
	for i, k := range g.Metadata.Keys() {
		v, _ := g.Metadata.Lookup(k)
		w, _ := h.Metadata.Lookup(h.Metadata.Keys()[i])
		if v.key != w.key || v.typ != w.typ || !bytes.Equal(v.data, w.data) {
			t.Fatalf("read again: key %q differs", k)
		}
	}
}

// FuzzSplit: two parts of any bytes are joined, or refused, in the same way from memory,
// piece by piece, and with either of them first; a joined tensor lies inside its parts.
func FuzzSplit(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b []byte) {
		source := func(no int, data []byte) (memory, pieces Source) {
			name := partPath("m", no, 2)
			return Source{Name: name, Data: data}, Source{Name: name, At: bytes.NewReader(data), Size: int64(len(data))}
		}
		a1, a2 := source(1, a)
		b1, b2 := source(2, b)
		g, err := Read(a1, b1)
		for i, files := range [][]Source{{a2, b2}, {b1, a2}, {b2, a1}} {
			other, err2 := Read(files...)
			if (err == nil) != (err2 == nil) {
				t.Fatalf("in memory: %v; way %d: %v", err, i, err2)
			}
			if err == nil && len(other.Tensors()) != len(g.Tensors()) {
				t.Fatalf("in memory: %d tensors; way %d: %d", len(g.Tensors()), i, len(other.Tensors()))
			}
		}
		if err != nil {
			if strings.HasPrefix(err.Error(), "gguf: ") {
				t.Fatal(err)
			}
			return
		}
		for _, x := range g.Tensors() {
			if n, err := tensor.Bytes(x.DType, x.Shape); err != nil || n != len(x.Data) || n > len(a)+len(b) {
				t.Fatalf("%s: %d bytes, want %d, %v", x.Name, len(x.Data), n, err)
			}
		}
	})
}

// TestSplitCorpus writes what FuzzSplit begins with.
func TestSplitCorpus(t *testing.T) {
	parts := func(a, b spec) []byte {
		return fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n[]byte(%q)\n", a.bytes(), b.bytes())
	}
	for name, want := range map[string][]byte{
		"two":          parts(splitPart(0, 2, 3, "c"), splitPart(1, 2, 3, "b", "a")),
		"none-in-one":  parts(splitPart(0, 2, 1), splitPart(1, 2, 1, "a")),
		"twice":        parts(splitPart(0, 2, 2, "a"), splitPart(1, 2, 2, "a")),
		"other-number": parts(splitPart(0, 2, 2, "a"), splitPart(0, 2, 2, "b")),
	} {
		path := filepath.Join("testdata", "fuzz", "FuzzSplit", name)
		if *update {
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, want, 0o666)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run go test -run Corpus -update", path, err)
		}
	}
}
