package jpeg

import "errors"

// huffman is a table of codes.
type huffman struct {
	fast   [256]uint16 // by the next 8 bits: length<<8 | symbol, 0 for a longer code
	limit  [17]int32   // by length: the first code that is longer, -1 for no code of the length
	offset [17]int32   // by length: the place of a code's symbol less the code
	values []byte
}

// readHuffman returns the table of codes at the beginning of b, B.2.4.2, without its first byte, and the bytes behind.
func readHuffman(b []byte) (h *huffman, rest []byte, err error) {
	n := 0
	if len(b) >= 16 {
		for _, k := range b[:16] {
			n += int(k)
		}
	}
	if n > 256 || len(b) < 16+n {
		return nil, nil, errors.New("a broken table of codes")
	}
	h = &huffman{values: b[16 : 16+n]}
	code, at := int32(0), int32(0)
	for length := 1; length <= 16; length++ {
		h.offset[length], h.limit[length] = at-code, -1
		for range b[length-1] {
			if code >= 1<<length {
				return nil, nil, errors.New("a table of codes has more codes than bits")
			}
			if length <= 8 {
				for i := range int32(1) << (8 - length) {
					h.fast[code<<(8-length)|i] = uint16(length)<<8 | uint16(h.values[at])
				}
			}
			code, at = code+1, at+1
			h.limit[length] = code
		}
		code <<= 1
	}
	return h, b[16+n:], nil
}

// bits reads entropy-coded data. Behind the data's end, at a marker, all bits are 0, and over counts them.
type bits struct {
	data []byte
	acc  uint64
	n    int // bits in acc
	over int // bits made up
}

// fill takes bytes until at least 32 bits are there.
func (b *bits) fill() {
	for b.n <= 32 {
		var c byte
		switch {
		case len(b.data) > 0 && b.data[0] != 0xff:
			c, b.data = b.data[0], b.data[1:]
		case len(b.data) > 1 && b.data[1] == 0: // a stuffed byte
			c, b.data = 0xff, b.data[2:]
		default:
			b.over += 8
		}
		b.acc, b.n = b.acc<<8|uint64(c), b.n+8
	}
}

// take returns the next n bits, at most 16.
func (b *bits) take(n int) int32 {
	if b.n < n {
		b.fill()
	}
	b.n -= n
	return int32(b.acc>>b.n) & (1<<n - 1)
}

// symbol returns the next symbol of a table.
func (b *bits) symbol(h *huffman) (byte, error) {
	if b.n < 16 {
		b.fill()
	}
	if x := h.fast[b.acc>>(b.n-8)&255]; x != 0 {
		b.n -= int(x >> 8)
		return byte(x), nil
	}
	for length := 9; length <= 16; length++ {
		code := int32(b.acc>>(b.n-length)) & (1<<length - 1)
		if code < h.limit[length] {
			b.n -= length
			return h.values[code+h.offset[length]], nil
		}
	}
	return 0, errors.New("a code that no table has")
}

// extend returns the signed value of n bits, F.2.2.1.
func (b *bits) extend(n int) int32 {
	v := b.take(n)
	if n > 0 && v < 1<<(n-1) {
		v += -1<<n + 1
	}
	return v
}
