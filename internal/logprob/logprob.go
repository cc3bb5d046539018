// Package logprob reads and writes the files that llama-perplexity --kl-divergence-base makes of a model's predictions
// over a text (llama.cpp, tools/perplexity).
//
// A file is the magic _logits_; context, vocabulary and number of chunks as uint32; context token ids for each chunk;
// and for each chunk and each position from half the context to the last but one a row: float32 scale, float32 least,
// and a uint16 q for each token of the vocabulary and one more if the tokens are odd in number. least + scale·q is the
// logarithm of the token's probability after that position, but where q is 0: at most that. None is less than 16 below
// the largest.
package logprob

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/mmap"
)

// Magic is what a file begins with.
const Magic = "_logits_"

const (
	header = len(Magic) + 12
	reach  = 16 // nats that a row's logarithms span at most
)

var le = binary.LittleEndian

// File is an open file.
type File struct {
	Context, Vocab, Chunks int

	ids, rows []byte
	file      *mmap.File
}

// Open maps the file at path. Later reads must be under mmap.Guard.
func Open(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	var f *File
	if err = mmap.Guard(func() (err error) { f, err = Parse(m.Data()); return err }); err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, m.Close()))
	}
	f.file = m
	return f, nil
}

// Parse reads a file that is in memory, which must not change.
func Parse(b []byte) (*File, error) {
	if len(b) < header || string(b[:len(Magic)]) != Magic {
		return nil, errors.New("not a file of llama-perplexity --kl-divergence-base: it does not begin with _logits_")
	}
	field := func(i int) int { return int(le.Uint32(b[len(Magic)+4*i:])) }
	f := &File{Context: field(0), Vocab: field(1), Chunks: field(2)}
	if f.Context < 3 || f.Vocab < 1 || f.Chunks < 1 || f.Vocab > math.MaxInt32 {
		return nil, fmt.Errorf("context %d, vocabulary %d, %d chunks; want 3 or more, 1 to %d, 1 or more",
			f.Context, f.Vocab, f.Chunks, math.MaxInt32)
	}
	rest := b[header:]
	if f.Chunks > len(rest)/4/f.Context {
		return nil, fmt.Errorf("%d bytes after the header, %d chunks of %d ids are more", len(rest),
			f.Chunks, f.Context)
	}
	ids, rows := 4*f.Context*f.Chunks, f.Chunks*f.Rows()
	if n := len(rest) - ids; n/f.rowBytes() != rows || n%f.rowBytes() != 0 {
		return nil, fmt.Errorf("%d bytes after the header, want %d ids and %d rows of %d bytes", len(rest), ids/4, rows,
			f.rowBytes())
	}
	f.ids, f.rows = rest[:ids], rest[ids:]
	return f, nil
}

// Close unmaps the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// Rows returns the number of rows of each chunk.
func (f *File) Rows() int { return Rows(f.Context) }

// Rows returns the number of rows of a chunk of context tokens: their predictions are scored.
func Rows(context int) int { return context - 1 - context/2 }

func (f *File) rowBytes() int { return 8 + (f.Vocab+1)/2*4 }

// IDs returns the tokens of a chunk, [Context].
func (f *File) IDs(chunk int) []int32 {
	ids := make([]int32, f.Context)
	for i := range ids {
		ids[i] = int32(le.Uint32(f.ids[4*(chunk*f.Context+i):]))
	}
	return ids
}

// Row returns the logarithms of the probabilities after position Context/2 + i of a chunk, into row [Vocab]. The least
// ones are known to be at most that; least is NaN where all are equal.
func (f *File) Row(row []float32, chunk, i int) (least float32) {
	b := f.rows[(chunk*f.Rows()+i)*f.rowBytes():][:f.rowBytes()]
	scale, least := math.Float32frombits(le.Uint32(b)), math.Float32frombits(le.Uint32(b[4:]))
	for j := range row {
		row[j] = least + scale*float32(le.Uint16(b[8+2*j:]))
	}
	if scale == 0 {
		return float32(math.NaN())
	}
	return least
}

// Writer writes a file.
type Writer struct {
	w           io.Writer
	vocab, left int // left: rows to come
	b           []byte
}

// NewWriter writes what comes before the rows of a text: ids [chunks, context].
func NewWriter(w io.Writer, context, vocab int, ids []int32) (*Writer, error) {
	if context < 3 || vocab < 1 || len(ids) == 0 || len(ids)%context != 0 {
		return nil, fmt.Errorf("write: %d ids in chunks of %d, a vocabulary of %d", len(ids), context, vocab)
	}
	chunks := len(ids) / context
	b := append(make([]byte, 0, header+4*len(ids)), Magic...)
	for _, x := range []int{context, vocab, chunks} {
		b = le.AppendUint32(b, uint32(x))
	}
	for _, id := range ids {
		b = le.AppendUint32(b, uint32(id))
	}
	_, err := w.Write(b)
	return &Writer{w: w, vocab: vocab, left: chunks * Rows(context)}, err
}

// Row writes the next row, from the logits [vocab] and the logarithm of the sum of their exponentials.
func (w *Writer) Row(logits []float32, norm float64) error {
	if len(logits) != w.vocab || w.left == 0 {
		return fmt.Errorf("write: a row of %d with %d rows to come, the vocabulary has %d", len(logits),
			w.left, w.vocab)
	}
	top := slices.Max(logits)
	if !(math.Abs(float64(top)) <= math.MaxFloat32) { // also NaN
		return fmt.Errorf("write: the largest logit of a row is %v", top)
	}
	low := max(slices.Min(logits), top-reach)
	scale := (top - low) / math.MaxUint16
	b := le.AppendUint32(w.b[:0], math.Float32bits(scale))
	b = le.AppendUint32(b, math.Float32bits(float32(float64(low)-norm)))
	for _, x := range logits {
		q := 0.
		if x > low {
			q = min(math.RoundToEven(float64(x-low)/float64(scale)), math.MaxUint16)
		}
		b = le.AppendUint16(b, uint16(q))
	}
	if w.vocab%2 != 0 {
		b = le.AppendUint16(b, 0)
	}
	w.b, w.left = b, w.left-1
	_, err := w.w.Write(b)
	return err
}

// Close reports whether all rows were written. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.left > 0 {
		return fmt.Errorf("write: %d rows are missing", w.left)
	}
	return nil
}
