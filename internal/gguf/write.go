package gguf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/tensor"
)

// Writer writes a GGUF file of version 3. NewWriter writes the header; the
// tensors' data follow through Write.
type Writer struct {
	w         io.Writer
	alignment int
	left      []int // bytes still to come of each incomplete tensor
	written   int64
	err       error // first failed write
}

// NewWriter writes the header to w: the metadata in order, and the tensors, whose Data is not used. The alignment is
// metadata's general.alignment, a uint32, else 32. Anything that Open would refuse is an error, before a byte is
// written.
func NewWriter(w io.Writer, metadata []KeyValue, tensors []tensor.Tensor) (*Writer, error) {
	b, err := appendHeader(metadata, tensors)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	// Reading the header back holds the writer to all of the reader's rules.
	f, _, err := readHeader(b[:min(len(b), maxHeader)], math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("write: %w", err)
	}
	g := &Writer{w: w, alignment: f.Alignment, left: make([]int, len(tensors))}
	for i, t := range f.tensors {
		if g.left[i], err = tensor.Bytes(t.DType, t.Shape); err != nil {
			return nil, fmt.Errorf("write: tensor %q: %w", t.Name, err)
		}
	}
	g.put(b)
	g.pad()
	return g, g.err
}

// MetadataOf returns the metadata of a file with these keys.
func MetadataOf(keys []KeyValue) (Metadata, error) {
	b, err := appendHeader(keys, nil)
	if err != nil {
		return Metadata{}, err
	}
	f, _, err := readHeader(b, math.MaxInt)
	if err != nil {
		return Metadata{}, err
	}
	return f.Metadata, nil
}

// Write appends p to the tensors' data. Data is in the order of the tensors, in pieces of any size; the padding between
// tensors is the Writer's work.
func (g *Writer) Write(p []byte) (n int, err error) {
	for n < len(p) && g.err == nil {
		if len(g.left) == 0 {
			g.err = errors.New("write: more data than the tensors hold")
			break
		}
		size := min(len(p)-n, g.left[0])
		g.put(p[n : n+size])
		n += size
		if g.left[0] -= size; g.left[0] == 0 {
			g.left = g.left[1:]
			g.pad()
		}
	}
	return n, g.err
}

// Close reports whether all the data was written. The underlying writer stays open.
func (g *Writer) Close() error {
	if g.err == nil && len(g.left) > 0 {
		g.err = fmt.Errorf("write: the data of %d tensors is not complete", len(g.left))
	}
	return g.err
}

func (g *Writer) put(b []byte) {
	if g.err == nil {
		var n int
		n, g.err = g.w.Write(b)
		g.written += int64(n)
	}
}

func (g *Writer) pad() { g.put(make([]byte, alignUp(g.written, g.alignment)-g.written)) }

// Write writes a whole file to w: the metadata, and the tensors with their Data.
func Write(w io.Writer, metadata []KeyValue, tensors []tensor.Tensor) error {
	g, err := NewWriter(w, metadata, tensors)
	if err != nil {
		return err
	}
	for i, t := range tensors {
		if len(t.Data) != g.left[0] {
			return fmt.Errorf("write: tensor %q (%d): Data has %d bytes, not %d", t.Name, i, len(t.Data), g.left[0])
		}
		if _, err := g.Write(t.Data); err != nil {
			return err
		}
	}
	return g.Close()
}

// WriteFile makes or replaces the file at path with the output of write. Until all bytes are on disk, they are in
// another file of the same folder; an error leaves no trace, and the file at path unchanged. Anything at path but a
// regular file is an error.
func WriteFile(path string, write func(io.Writer) error) error {
	err := atomicfile.Write(path, func(f io.Writer) error {
		w := bufio.NewWriterSize(f, 1<<20)
		if err := write(w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("write: %s: %w", path, err)
	}
	return nil
}
