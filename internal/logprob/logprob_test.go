package logprob

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

var update = flag.Bool("update", false, "write testdata/fuzz again")

func norm(row []float32) float64 {
	sum := 0.
	for _, x := range row {
		sum += math.Exp(float64(x))
	}
	return math.Log(sum)
}

// perplexityFile is what llama-perplexity writes of logits [chunks·rows][vocabulary]. (tools/perplexity, log_softmax)
func perplexityFile(context int, ids []int32, logits [][]float32) []byte {
	vocab := len(logits[0])
	b := []byte("_logits_")
	for _, v := range []int{context, vocab, len(ids) / context} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	for _, row := range logits {
		top := slices.Max(row)
		least := max(slices.Min(row), top-16)
		scale := (top - least) / 65535
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(scale))
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(float64(least)-norm(row))))
		for _, v := range row {
			q := uint16(0)
			if v > least {
				q = uint16(math.Round(float64((v - least) / scale)))
			}
			b = binary.LittleEndian.AppendUint16(b, q)
		}
		if vocab%2 != 0 {
			b = binary.LittleEndian.AppendUint16(b, 0)
		}
	}
	return b
}

func example(vocab int) (ids []int32, logits [][]float32) {
	for i := range 4 {
		x := []float32{float32(i), 2, -40, 7.5, -3, 1}
		logits = append(logits, x[:vocab])
	}
	logits[3] = make([]float32, vocab)
	return []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, logits
}

// TestFile writes what llama-perplexity writes, and reads it back: contexts of 6 have rows
// of the positions 3 and 4.
func TestFile(t *testing.T) {
	for _, vocab := range []int{5, 6} {
		ids, logits := example(vocab)
		var b bytes.Buffer
		w, err := NewWriter(&b, 6, vocab, ids)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range logits {
			if w.Close() == nil {
				t.Errorf("closed after %d of %d rows", i, len(logits))
			}
			if err := w.Row(row, norm(row)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if w.Row(logits[0], 0) == nil {
			t.Error("one row too many is no error")
		}
		if want := perplexityFile(6, ids, logits); !bytes.Equal(b.Bytes(), want) {
			t.Errorf("wrote %x\nwant  %x", b.Bytes(), want)
		}
		path := filepath.Join(t.TempDir(), "base.kld")
		if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if f.Context != 6 || f.Vocab != vocab || f.Chunks != 2 || f.Rows() != 2 || !slices.Equal(slices.Concat(f.IDs(0), f.IDs(1)), ids) {
			t.Errorf("read %+v, %v, %v", f, f.IDs(0), f.IDs(1))
		}
		for i, want := range logits {
			row := make([]float32, vocab)
			least := f.Row(row, i/2, i%2)
			for j, v := range want {
				low := max(slices.Min(want), slices.Max(want)-16)
				if x := float64(max(v, low)) - norm(want); math.Abs(float64(row[j])-x) > 16./65535/2+1e-6 {
					t.Errorf("row %d, token %d: %v, want %v", i, j, row[j], x)
				}
				if (row[j] == least) != (v <= low && i != 3) {
					t.Errorf("row %d, token %d: %v, the least is %v", i, j, row[j], least)
				}
			}
		}
	}
}

func TestBadRows(t *testing.T) {
	w, err := NewWriter(&bytes.Buffer{}, 3, 2, []int32{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, row := range [][]float32{{1}, {1, nan}, {nan, 1}, {1, inf}, {-inf, -inf}} {
		if w.Row(row, 0) == nil {
			t.Errorf("%v is no error", row)
		}
	}
	if err := w.Row([]float32{1, -inf}, 1); err != nil {
		t.Error(err)
	}
	for _, x := range []struct{ context, vocab, ids int }{{2, 1, 2}, {3, 0, 3}, {3, 1, 0}, {3, 1, 4}} {
		if _, err := NewWriter(&bytes.Buffer{}, x.context, x.vocab, make([]int32, x.ids)); err == nil {
			t.Errorf("%+v is no error", x)
		}
	}
}

// spoiled are files that must be refused, with a part of the error.
func spoiled() map[string]struct {
	data []byte
	says string
} {
	ids, logits := example(6)
	good := perplexityFile(6, ids, logits)
	with := func(at int, b ...byte) []byte { return slices.Concat(good[:at], b, good[at+len(b):]) }
	return map[string]struct {
		data []byte
		says string
	}{
		"empty":       {nil, "does not begin"},
		"magic":       {with(0, 'x'), "does not begin"},
		"header":      {good[:19], "does not begin"},
		"cut":         {good[:len(good)-1], "want 12 ids"},
		"long":        {append(slices.Clone(good), 0), "want 12 ids"},
		"no-rows":     {good[:20], "ids are more"},
		"context":     {with(8, 2, 0, 0, 0), "context 2"},
		"no-vocab":    {with(12, 0, 0, 0, 0), "vocabulary 0"},
		"vocab":       {with(12, 255, 255, 255, 255), "vocabulary 4294967295"},
		"large-vocab": {with(12, 255, 255, 255, 127), "rows of 4294967304 bytes"},
		"no-chunks":   {with(16, 0, 0, 0, 0), "0 chunks"},
		"chunks":      {with(16, 255, 255, 255, 255), "4294967295 chunks"},
		"endless":     {with(8, 255, 255, 255, 255, 255, 255, 255, 127, 255, 255, 255, 255), "ids are more"},
	}
}

func TestSpoiled(t *testing.T) {
	for name, x := range spoiled() {
		if _, err := Parse(x.data); err == nil || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s: %v, want … %s …", name, err, x.says)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file is no error")
	}
}

// TestCorpus keeps FuzzParse's committed corpus; -update writes it.
func TestCorpus(t *testing.T) {
	ids, logits := example(5)
	seeds := map[string][]byte{"good": perplexityFile(6, ids, logits)}
	for name, x := range spoiled() {
		seeds[name] = x.data
	}
	golden.Corpus(t, "FuzzParse", seeds, *update)
}

// FuzzParse: any bytes give an error, or ids and rows that fill the file.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := Parse(data)
		if err != nil {
			return
		}
		size, row := 20, make([]float32, x.Vocab)
		for c := range x.Chunks {
			size += 4 * len(x.IDs(c))
			for i := range x.Rows() {
				x.Row(row, c, i)
				size += 8 + (x.Vocab+1)/2*4
			}
		}
		if size != len(data) {
			t.Errorf("%d bytes of %d", size, len(data))
		}
	})
}
