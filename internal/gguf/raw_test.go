package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
)

// spec is a file put together by hand, by the format's description, so that it
// can also be wrong. It shares nothing with the writer.
type spec struct {
	magic             string // GGUF if ""
	version           uint32 // 3 if 0
	keyCount, tensors *uint64
	keys              [][]byte
	entries           [][]byte
	alignment         int // 32 if 0
	data              []byte
	noPadding         bool // the file ends with the header
}

// build returns the file, and where each key and each tensor's entry begins.
func (s spec) build() (file []byte, keyAt, entryAt []int) {
	if s.magic == "" {
		s.magic = "GGUF"
	}
	if s.version == 0 {
		s.version = 3
	}
	if s.alignment == 0 {
		s.alignment = 32
	}
	count := func(n *uint64, actual int) []byte {
		if n != nil {
			return u64(*n)
		}
		return u64(uint64(actual))
	}
	file = join([]byte(s.magic), u32(s.version), count(s.tensors, len(s.entries)), count(s.keyCount, len(s.keys)))
	for _, k := range s.keys {
		keyAt = append(keyAt, len(file))
		file = append(file, k...)
	}
	for _, e := range s.entries {
		entryAt = append(entryAt, len(file))
		file = append(file, e...)
	}
	if s.noPadding {
		return file, keyAt, entryAt
	}
	for len(file)%s.alignment != 0 {
		file = append(file, 0)
	}
	return append(file, s.data...), keyAt, entryAt
}

func (s spec) bytes() []byte {
	file, _, _ := s.build()
	return file
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func u8(x uint8) []byte    { return []byte{x} }
func u16(x uint16) []byte  { return binary.LittleEndian.AppendUint16(nil, x) }
func u32(x uint32) []byte  { return binary.LittleEndian.AppendUint32(nil, x) }
func u64(x uint64) []byte  { return binary.LittleEndian.AppendUint64(nil, x) }
func f32(x float32) []byte { return u32(math.Float32bits(x)) }
func f64(x float64) []byte { return u64(math.Float64bits(x)) }
func str(x string) []byte  { return append(u64(uint64(len(x))), x...) }

// key is a metadata entry; typ has the format's number.
func key(name string, typ uint32, body ...[]byte) []byte {
	return join(str(name), u32(typ), join(body...))
}

// array is an array's body: the type of its elements, their number, and they.
func array(typ uint32, n uint64, elements ...[]byte) []byte {
	return join(u32(typ), u64(n), join(elements...))
}

// entry is a tensor's entry; ne has GGUF's order, the fastest dimension first.
func tensorEntry(name string, id uint32, offset uint64, ne ...uint64) []byte {
	b := join(str(name), u32(uint32(len(ne))))
	for _, n := range ne {
		b = append(b, u64(n)...)
	}
	return join(b, u32(id), u64(offset))
}

func ptr(n uint64) *uint64 { return &n }

// count is a slice of n bytes that differ from their neighbours.
func counting(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	return b
}

// valid is a small correct file with a value of every type, nested arrays and
// tensors of four types.
func valid() spec {
	return spec{
		keys: [][]byte{
			key("general.architecture", 8, str("llama")),
			key("t.u8", 0, u8(200)),
			key("t.i8", 1, u8(0xff)),
			key("t.u16", 2, u16(60000)),
			key("t.i16", 3, u16(0xfffe)),
			key("t.u32", 4, u32(4000000000)),
			key("t.i32", 5, u32(0xfffffffd)),
			key("t.f32", 6, f32(0.5)),
			key("t.bool", 7, u8(1)),
			key("t.u64", 10, u64(1<<63)),
			key("t.i64", 11, u64(1<<63)),
			key("t.f64", 12, f64(1e300)),
			key("t.strings", 9, array(8, 3, str("a"), str(""), str("ключ"))),
			key("t.bools", 9, array(7, 3, u8(1), u8(0), u8(1))),
			key("t.i32s", 9, array(5, 2, u32(7), u32(0xffffffff))),
			key("t.u8s", 9, array(0, 3, u8(1), u8(2), u8(255))),
			key("t.u64s", 9, array(10, 2, u64(5), u64(1<<62))),
			key("t.f32s", 9, array(6, 2, f32(-1.5), f32(2))),
			key("t.f64s", 9, array(12, 1, f64(0.1))),
			key("t.empty", 9, array(8, 0)),
			key("t.nested", 9, array(9, 2, array(4, 2, u32(1), u32(2)), array(8, 1, str("x")))),
		},
		entries: [][]byte{
			tensorEntry("a.weight", 0, 0, 3, 2),      // 24 bytes
			tensorEntry("b.weight", 8, 32, 32, 1, 2), // 68 bytes
			tensorEntry("c.bias", 1, 128, 5),         // 10 bytes
			tensorEntry("d", 30, 160),                // no dimensions: one number, 2 bytes
		},
		data: counting(192),
	}
}
