// Package parquet writes tables as Parquet files.
//
// A file is PAR1, row groups, a footer in Thrift's compact protocol, the footer's length, and PAR1
// (https://parquet.apache.org/docs/file-format). Each column of a row group is one page: not
// compressed, in the encoding PLAIN, without nulls.
package parquet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Type is that of a column's values.
type Type uint8

// The types, and the Go values of a group's rows.
const (
	Int32  Type = iota // []int32
	String             // []string, in UTF-8
	Vector             // [][]float32, none empty; readers give lists
)

// Column is a column's name and type.
type Column struct {
	Name string
	Type Type
}

// Writer writes a file, a group of rows at a time, of which it keeps none.
type Writer struct {
	out     *bufio.Writer
	written int64
	err     error
	columns []Column
	groups  []group
}

// group is what the footer says of a group of rows.
type group struct {
	rows   int
	chunks []chunk // by column
}

// chunk is where a column of a group lies.
type chunk struct{ at, size, values int64 }

const magic = "PAR1"

// NewWriter begins a file.
func NewWriter(w io.Writer, columns ...Column) *Writer {
	x := &Writer{out: bufio.NewWriterSize(w, 1<<16), columns: columns}
	x.write([]byte(magic))
	return x
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
		w.written += int64(len(b))
	}
}

// Write adds a group of rows: for each column a slice of its type, all of one length. A column of a group has less
// than 2 GiB.
func (w *Writer) Write(columns ...any) error {
	if len(columns) != len(w.columns) {
		return fmt.Errorf("%d columns, want %d", len(columns), len(w.columns))
	}
	g := group{}
	for i, values := range columns {
		at := w.written
		p, err := newPage(w.columns[i].Type, values)
		if err == nil && i > 0 && p.rows != g.rows {
			err = fmt.Errorf("%d rows, want %d", p.rows, g.rows)
		}
		if err != nil {
			w.err = errors.Join(w.err, fmt.Errorf("column %s: %w", w.columns[i].Name, err))
			return w.err
		}
		w.write(p.header())
		w.write(p.levels)
		p.each(w.write)
		g.rows, g.chunks = p.rows, append(g.chunks, chunk{at, w.written - at, int64(p.values)})
	}
	w.groups = append(w.groups, g)
	return w.err
}

// page is a column of a group.
type page struct {
	rows, values int
	size         int    // bytes, with the levels
	levels       []byte // of repetition and definition
	each         func(write func([]byte))
}

func newPage(t Type, rows any) (p *page, err error) {
	switch x := rows.(type) {
	case []int32:
		if t == Int32 {
			p = ofInts(x)
		}
	case []string:
		if t == String {
			p = ofStrings(x)
		}
	case [][]float32:
		if t == Vector {
			p, err = ofVectors(x)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return nil, fmt.Errorf("rows of type %T", rows)
	case p.rows == 0 || p.size > math.MaxInt32:
		return nil, fmt.Errorf("a group of %d rows and %d bytes", p.rows, p.size)
	}
	return p, nil
}

func ofInts(x []int32) *page {
	return &page{rows: len(x), values: len(x), size: 4 * len(x), each: func(write func([]byte)) {
		for _, v := range x {
			write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
		}
	}}
}

func ofStrings(x []string) *page {
	p := &page{rows: len(x), values: len(x), each: func(write func([]byte)) {
		for _, s := range x {
			write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(s))), s...))
		}
	}}
	for _, s := range x {
		p.size += 4 + len(s)
	}
	return p
}

func ofVectors(x [][]float32) (*page, error) {
	p := &page{rows: len(x), each: func(write func([]byte)) {
		for _, row := range x {
			b := make([]byte, 0, 4*len(row))
			for _, v := range row {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			}
			write(b)
		}
	}}
	var begins []byte // 0 for a value that begins a row, 1 for others
	for i, row := range x {
		if len(row) == 0 {
			return nil, fmt.Errorf("row %d has no elements", i)
		}
		p.values += len(row)
		if begins = run(begins, 1, 0); len(row) > 1 {
			begins = run(begins, len(row)-1, 1)
		}
	}
	p.levels = append(counted(begins), counted(run(nil, p.values, 1))...) // and none is absent
	p.size = len(p.levels) + 4*p.values
	return p, nil
}

// run is count equal levels of one bit.
func run(b []byte, count int, level byte) []byte {
	return append(binary.AppendUvarint(b, uint64(count)<<1), level)
}

// counted is levels with their length before them.
func counted(levels []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
}
