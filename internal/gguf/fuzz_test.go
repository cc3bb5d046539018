package gguf

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/golden"
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
			if g != nil || !strings.HasPrefix(err.Error(), "gguf: ") {
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
