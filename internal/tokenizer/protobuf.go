package tokenizer

import (
	"encoding/binary"
	"fmt"
)

// A protoField is a field of a protobuf message: bytes for the wire type of strings and messages, value for the
// numbers.
type protoField struct {
	number uint64
	value  uint64
	bytes  []byte
	offset int // of its content, from the beginning of the file
}

// protoFields calls yield for each field of a message that begins at offset base
// (protobuf.dev/programming-guides/encoding).
func protoFields(b []byte, base int, yield func(protoField) error) error {
	for i := 0; i < len(b); {
		at := base + i
		tag, n := binary.Uvarint(b[i:])
		if n <= 0 || tag>>3 == 0 {
			return fmt.Errorf("offset %d: no protobuf field", at)
		}
		i += n
		f := protoField{number: tag >> 3, offset: base + i}
		switch wire := tag & 7; wire {
		case 0:
			if f.value, n = binary.Uvarint(b[i:]); n <= 0 {
				return fmt.Errorf("offset %d: no varint", at)
			}
			i += n
		case 1, 5:
			n = 8
			if wire == 5 {
				n = 4
			}
			if len(b)-i < n {
				return fmt.Errorf("offset %d: a number of %d bytes, %d are left", at, n, len(b)-i)
			}
			for k := range n {
				f.value |= uint64(b[i+k]) << (8 * k)
			}
			i += n
		case 2:
			size, n := binary.Uvarint(b[i:])
			if n <= 0 || size > uint64(len(b)-i-n) {
				return fmt.Errorf("offset %d: a field of %d bytes, %d are left", at, size, len(b)-i)
			}
			i += n
			f.offset, f.bytes = base+i, b[i:i+int(size)]
			i += int(size)
		default:
			return fmt.Errorf("offset %d: wire type %d", at, wire)
		}
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}
