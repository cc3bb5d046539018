package imatrix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/tensor"
)

// maxName leaves room for a suffix in the 63 bytes of a name in GGUF.
const maxName = 63 - len(sumsSuffix)

// old reads a file of the form without GGUF: little-endian int32 numbers, texts and blocks of float32 with their length
// before them (common/imatrix-loader.cpp).
type old struct{ rest []byte }

// count returns the next number, an error if negative.
func (o *old) count(what string) (int, error) {
	if len(o.rest) < 4 {
		return 0, fmt.Errorf("%s: the file ends", what)
	}
	n := int32(binary.LittleEndian.Uint32(o.rest))
	if n < 0 {
		return 0, fmt.Errorf("%s: %d, want 0 or more", what, n)
	}
	o.rest = o.rest[4:]
	return int(n), nil
}

// take returns the next n elements of size bytes.
func (o *old) take(what string, n, size int) ([]byte, error) {
	if n > len(o.rest)/size {
		return nil, fmt.Errorf("%s: %d × %d bytes, %d are left", what, n, size, len(o.rest))
	}
	b := o.rest[:n*size]
	o.rest = o.rest[n*size:]
	return b, nil
}

func (o *old) text(what string) (string, error) {
	n, err := o.count(what)
	if err != nil {
		return "", err
	}
	b, err := o.take(what, n, 1)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("%s: %q is no UTF-8", what, b[:min(n, 40)])
	}
	return string(b), err
}

func parseOld(data []byte) (*Matrix, error) {
	o, m := &old{data}, &Matrix{Datasets: []string{}, Entries: map[string]*Entry{}}
	n, err := o.count("number of weights")
	for i := 0; i < n && err == nil; i++ {
		if err = o.entry(m); err != nil {
			err = fmt.Errorf("weight %d of %d: %w", i, n, err)
		}
	}
	if err == nil && n == 0 {
		err = errors.New("it holds no sums")
	}
	if err == nil && len(o.rest) > 0 { // fields of later versions
		var dataset string
		if m.Chunks, err = o.count("number of windows"); err == nil {
			dataset, err = o.text("name of the text")
		}
		m.Datasets = []string{dataset}
	}
	if err == nil && len(o.rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(o.rest))
	}
	if err != nil {
		return nil, fmt.Errorf("neither GGUF nor llama-imatrix's older form: %w", err)
	}
	return m, nil
}

// entry reads a weight: the means of its squared activations, times the windows.
func (o *old) entry(m *Matrix) error {
	name, err := o.text("its name")
	if err != nil {
		return err
	}
	hidden := func(r rune) bool { return !unicode.IsGraphic(r) }
	if _, twice := m.Entries[name]; twice || name == "" || len(name) > maxName || strings.ContainsFunc(name, hidden) {
		return fmt.Errorf("the name %q, want a new name of at most %d bytes, without control characters",
			name[:min(len(name), 80)], maxName)
	}
	windows, err := o.count("windows of " + name)
	columns := 0
	if err == nil {
		columns, err = o.count("columns of " + name)
	}
	if err == nil && columns == 0 {
		err = fmt.Errorf("%s has no columns", name)
	}
	if err != nil {
		return err
	}
	data, err := o.take("columns of "+name, columns, 4)
	if err != nil {
		return err
	}
	sums, err := numbers(tensor.Tensor{DType: tensor.F32, Data: data})
	m.Entries[name] = &Entry{sums, []float64{float64(float32(max(windows, 1)))}} // in the form of GGUF
	return err
}

// Scale turns the counts of an old file, in windows of n rows, into rows.
func (m *Matrix) Scale(n int) {
	for _, e := range m.Entries {
		for _, x := range [][]float64{e.Sums, e.Counts} {
			for i := range x {
				x[i] *= float64(n)
			}
		}
	}
	m.ChunkSize = n
}
