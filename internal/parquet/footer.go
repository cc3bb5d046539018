package parquet

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Numbers of parquet.thrift (https://github.com/apache/parquet-format), by its names.
const (
	typeInt32, typeFloat, typeByteArray = 1, 4, 6
	required, repeated                  = 0, 2
	convertedUTF8, convertedList        = 0, 3
	logicalString, logicalList          = 1, 3 // fields of the union LogicalType
	plain, rle                          = 0, 3
	dataPage, uncompressed              = 0, 0
)

// header is the page's PageHeader.
func (p *page) header() []byte {
	var h, data thrift
	data.int(1, i32, int64(p.values))
	data.int(2, i32, plain)
	data.int(3, i32, rle) // of definition levels
	data.int(4, i32, rle) // of repetition levels
	h.int(1, i32, dataPage)
	h.int(2, i32, int64(p.size))
	h.int(3, i32, int64(p.size))
	h.record(5, data)
	return h.end()
}

// Close writes the footer, with notes as its metadata. It does not close the underlying writer.
func (w *Writer) Close(notes map[string]string) error {
	f := w.footer(notes)
	w.write(f)
	w.write(binary.LittleEndian.AppendUint32(nil, uint32(len(f))))
	w.write([]byte(magic))
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}

// footer is the FileMetaData.
func (w *Writer) footer(notes map[string]string) []byte {
	var f, root thrift
	rows := int64(0)
	for _, g := range w.groups {
		rows += int64(g.rows)
	}
	root.text(4, "schema")
	root.int(5, i32, int64(len(w.columns)))
	schema := [][]byte{root.end()}
	for _, c := range w.columns {
		schema = append(schema, c.schema()...)
	}
	var groups, pairs [][]byte
	for _, g := range w.groups {
		groups = append(groups, w.group(g))
	}
	for _, k := range slices.Sorted(maps.Keys(notes)) {
		var pair thrift
		pair.text(1, k)
		pair.text(2, notes[k])
		pairs = append(pairs, pair.end())
	}
	f.int(1, i32, 1) // the version that all readers take
	f.list(2, record, schema)
	f.int(3, i64, rows)
	f.list(4, record, groups)
	if len(pairs) > 0 {
		f.list(5, record, pairs)
	}
	return f.end()
}

// schema is a column's SchemaElements: of a list three.
func (c Column) schema() [][]byte {
	element := func(kind, repetition int64, name string, more func(x *thrift)) []byte {
		var x thrift
		if kind > 0 {
			x.int(1, i32, kind)
		}
		x.int(3, i32, repetition)
		x.text(4, name)
		if more != nil {
			more(&x)
		}
		return x.end()
	}
	logical := func(x *thrift, converted int64, field int) {
		var union thrift
		union.record(field, thrift{})
		x.int(6, i32, converted)
		x.record(10, union)
	}
	switch c.Type {
	case String:
		return [][]byte{element(typeByteArray, required, c.Name, func(x *thrift) { logical(x, convertedUTF8, logicalString) })}
	case Vector:
		return [][]byte{element(0, required, c.Name, func(x *thrift) { x.int(5, i32, 1); logical(x, convertedList, logicalList) }),
			element(0, repeated, "list", func(x *thrift) { x.int(5, i32, 1) }), element(typeFloat, required, "element", nil)}
	}
	return [][]byte{element(typeInt32, required, c.Name, nil)}
}

// group is a RowGroup.
func (w *Writer) group(g group) []byte {
	var x thrift
	var chunks [][]byte
	size := int64(0)
	for i, c := range g.chunks {
		chunks, size = append(chunks, w.columns[i].chunk(c)), size+c.size
	}
	x.list(1, record, chunks)
	x.int(2, i64, size)
	x.int(3, i64, int64(g.rows))
	return x.end()
}

// chunk is a ColumnChunk.
func (c Column) chunk(at chunk) []byte {
	kind, path := map[Type]int64{Int32: typeInt32, String: typeByteArray, Vector: typeFloat}[c.Type], []string{c.Name}
	if c.Type == Vector {
		path = append(path, "list", "element")
	}
	var x, meta thrift
	meta.int(1, i32, kind)
	meta.list(2, i32, [][]byte{number(plain), number(rle)})
	var names [][]byte
	for _, s := range path {
		names = append(names, text(s))
	}
	meta.list(3, binaryKind, names)
	meta.int(4, i32, uncompressed)
	meta.int(5, i64, at.values)
	meta.int(6, i64, at.size)
	meta.int(7, i64, at.size)
	meta.int(9, i64, at.at)
	x.int(2, i64, at.at)
	x.record(3, meta)
	return x.end()
}

// thrift is a struct in the compact protocol.
type thrift struct {
	b    []byte
	last int // field
}

// Kinds of fields.
const (
	i32        = 5
	i64        = 6
	binaryKind = 8
	list       = 9
	record     = 12
)

func (t *thrift) field(id int, kind byte, value []byte) {
	t.b = append(append(t.b, byte(id-t.last)<<4|kind), value...)
	t.last = id
}

func (t *thrift) int(id int, kind byte, v int64) { t.field(id, kind, number(v)) }
func (t *thrift) text(id int, s string)          { t.field(id, binaryKind, text(s)) }
func (t *thrift) record(id int, x thrift)        { t.field(id, record, x.end()) }

func (t *thrift) list(id int, kind byte, all [][]byte) {
	head := []byte{byte(min(len(all), 15))<<4 | kind}
	if len(all) >= 15 {
		head = binary.AppendUvarint(head, uint64(len(all)))
	}
	t.field(id, list, slices.Concat(append([][]byte{head}, all...)...))
}

func (t thrift) end() []byte { return append(t.b, 0) }

func number(v int64) []byte { return binary.AppendVarint(nil, v) } // zigzag

func text(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }
