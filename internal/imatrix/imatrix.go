// Package imatrix measures importance matrices: the size of the inputs of each column of a weight, over a text.
// Quantizers spend their precision on important columns.
//
// The file is llama.cpp's (tools/imatrix): a GGUF file whose general.type is imatrix, with imatrix.datasets,
// imatrix.chunk_count and imatrix.chunk_size, and for a weight NAME the float32 tensors NAME.in_sum2 [matrices,
// columns], sums of squared activations, and NAME.counts [matrices, 1], how many rows they are of; of a weight that is
// one matrix [columns] and [1]. Files written by llama-imatrix before mid 2025 are also read (old.go). collect.go
// measures.
package imatrix

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

const (
	sumsSuffix   = ".in_sum2"
	countsSuffix = ".counts"
)

// Matrix is an importance matrix.
type Matrix struct {
	Datasets  []string // names of the texts
	Chunks    int      // windows computed
	ChunkSize int      // tokens of a window; 0 of an old file, with Counts in windows
	Entries   map[string]*Entry
}

// Entry is the sums of one weight, by its name in GGUF with .weight.
type Entry struct {
	Sums   []float64 // [matrices, columns] of squared activations
	Counts []float64 // [matrices], or [1] for all: rows in Sums
}

// Mean returns the mean squared activations of the columns of a weight, [matrices, columns], a matrix being one
// expert's; nil if m has no such weight. A matrix without rows has ones, as in llama-quantize.
func (m *Matrix) Mean(name string, matrices, columns int) ([]float32, error) {
	e, ok := m.Entries[name]
	if !ok {
		return nil, nil
	}
	if len(e.Sums) != matrices*columns {
		return nil, fmt.Errorf("tensor %q: %d columns in all, the model's has %d × %d", name, len(e.Sums),
			matrices, columns)
	}
	mean := make([]float32, len(e.Sums))
	for i, sum := range e.Sums {
		mean[i] = 1
		if count := e.Counts[i/(len(e.Sums)/len(e.Counts))]; count > 0 {
			mean[i] = float32(sum / count)
		}
	}
	return mean, nil
}

// Add merges the sums of another text.
func (m *Matrix) Add(o *Matrix) error {
	for name, e := range o.Entries {
		have, ok := m.Entries[name]
		switch {
		case !ok:
			m.Entries[name] = &Entry{slices.Clone(e.Sums), slices.Clone(e.Counts)}
			continue
		case len(have.Sums) != len(e.Sums) || len(have.Counts) != len(e.Counts):
			return fmt.Errorf("tensor %q: %d columns of %d matrices, the other file has %d of %d", name, len(have.Sums),
				len(have.Counts), len(e.Sums), len(e.Counts))
		}
		for i, x := range e.Sums {
			have.Sums[i] += x
		}
		for i, x := range e.Counts {
			have.Counts[i] += x
		}
	}
	m.Datasets = append(m.Datasets, o.Datasets...)
	m.Chunks += o.Chunks
	return nil
}

// Read reads the file at path, in either form.
func Read(path string) (*Matrix, error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	var m *Matrix
	err = mmap.Guard(func() (err error) {
		m, err = parse(f.Data())
		return err
	})
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func parse(data []byte) (*Matrix, error) {
	if !bytes.HasPrefix(data, []byte("GGUF")) {
		return parseOld(data)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		return nil, err
	}
	if kind, err := f.Metadata.String("general.type"); err != nil || kind != "imatrix" {
		return nil, errors.Join(fmt.Errorf("not an importance matrix: general.type is %q, not \"imatrix\"", kind), err)
	}
	m := &Matrix{Entries: map[string]*Entry{}}
	if m.Datasets, err = f.Metadata.Strings("imatrix.datasets"); err != nil {
		return nil, err
	}
	for key, to := range map[string]*int{"imatrix.chunk_count": &m.Chunks, "imatrix.chunk_size": &m.ChunkSize} {
		n, err := f.Metadata.Uint(key)
		if err != nil || n > math.MaxInt32 {
			return nil, errors.Join(fmt.Errorf("key %q: %d, want 0 to %d", key, n, math.MaxInt32), err)
		}
		*to = int(n)
	}
	for _, t := range f.Tensors() {
		if err := m.take(t, f); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	if len(m.Entries) == 0 {
		return nil, errors.New("it holds no sums")
	}
	return m, nil
}

// take reads a tensor of sums with its counts. Counts alone are passed over, and read with their sums.
func (m *Matrix) take(t tensor.Tensor, f *gguf.File) error {
	name, ok := strings.CutSuffix(t.Name, sumsSuffix)
	if !ok {
		name, ok = strings.CutSuffix(t.Name, countsSuffix)
		if _, pair := f.Tensor(name + sumsSuffix); !ok || !pair {
			return errors.New("neither the sums of a weight nor the counts beside them")
		}
		return nil
	}
	c, ok := f.Tensor(name + countsSuffix)
	if !ok {
		return fmt.Errorf("there is no %q beside it", name+countsSuffix)
	}
	sums, err := numbers(t)
	if err != nil {
		return err
	}
	counts, err := numbers(c)
	if err != nil {
		return fmt.Errorf("its counts: %w", err)
	}
	if len(sums)%len(counts) != 0 {
		return fmt.Errorf("%d sums for %d counts", len(sums), len(counts))
	}
	m.Entries[name] = &Entry{sums, counts}
	return nil
}

// numbers returns a tensor's float32 values, none of them negative.
func numbers(t tensor.Tensor) ([]float64, error) {
	if t.DType != tensor.F32 {
		return nil, fmt.Errorf("element type %v, want F32", t.DType)
	}
	x := make([]float64, len(t.Data)/4)
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
		if !(x[i] >= 0 && x[i] <= math.MaxFloat32) {
			return nil, fmt.Errorf("value %d is %v, want a finite number from 0", i, x[i])
		}
	}
	return x, nil
}

// Write writes the file.
func (m *Matrix) Write(w io.Writer) error {
	metadata := []gguf.KeyValue{
		{Key: "general.type", Value: "imatrix"}, {Key: "imatrix.datasets", Value: m.Datasets},
		{Key: "imatrix.chunk_count", Value: uint32(m.Chunks)}, {Key: "imatrix.chunk_size", Value: uint32(m.ChunkSize)},
	}
	var tensors []tensor.Tensor
	for _, name := range slices.Sorted(maps.Keys(m.Entries)) {
		e := m.Entries[name]
		sums, counts := tensor.Shape{len(e.Sums)}, tensor.Shape{1}
		if n := len(e.Counts); n > 1 {
			sums, counts = tensor.Shape{n, len(e.Sums) / n}, tensor.Shape{n, 1}
		}
		tensors = append(tensors, tensor.Tensor{Name: name + sumsSuffix, DType: tensor.F32, Shape: sums,
			Data: floats(e.Sums)},
			tensor.Tensor{Name: name + countsSuffix, DType: tensor.F32, Shape: counts, Data: floats(e.Counts)})
	}
	return gguf.Write(w, metadata, tensors)
}

func floats(x []float64) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}
