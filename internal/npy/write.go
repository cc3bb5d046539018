package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// Write writes an array as numpy.save does, in version 1 of the format.
func Write(w io.Writer, a *Array) error {
	want := sizes[a.Type]
	dims := make([]string, len(a.Shape))
	for i, d := range a.Shape {
		want *= d
		dims[i] = fmt.Sprint(d)
	}
	if sizes[a.Type] == 0 || want != len(a.Data) {
		return fmt.Errorf("write: shape %v of %q: %d bytes, want %d", a.Shape, a.Type, len(a.Data), want)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	header := fmt.Sprintf("{'descr': '<%s', 'fortran_order': False, 'shape': (%s), }", a.Type, shape)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	_, err := w.Write(append(binary.LittleEndian.AppendUint16([]byte(magic+"\x01\x00"), uint16(len(header))),
		header...))
	if err == nil {
		_, err = w.Write(a.Data)
	}
	return err
}
