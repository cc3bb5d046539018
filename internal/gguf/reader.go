package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

var le = binary.LittleEndian

// Limits of a header. Each limit is far above every published file and keeps the memory for a hostile file small:
// counts are compared with the limits, and with the bytes left, before any allocation or walk.
const (
	maxHeader     = 64 << 20 // bytes before the tensors' data; a vocabulary of 262,144 takes 16 MiB
	maxKeys       = 1 << 14
	maxTensors    = 1 << 16 // of all parts together
	maxKey        = 1 << 10 // bytes of a key; GGUF itself would allow 65,535
	maxName       = 63      // bytes of a tensor's name, ggml's limit
	maxString     = 16 << 20
	maxElements   = 1 << 22 // per array
	maxNesting    = 4       // arrays in arrays; ggml reads one level
	maxDimensions = 4
	maxAlignment  = 1 << 20
	minAlignment  = 8 // the format asks for a multiple of 8

	defaultAlignment = 32
)

// reader walks a header. The first error sticks; later reads return zero.
type reader struct {
	data []byte // as much of the file as a header may take
	size int    // of the file
	base int64  // of data[0] in the file
	off  int
	of   subject // the part of the file being read
	err  error
}

// subject is the part of a file that an error is about. Only an error makes the text.
type subject struct {
	kind string // header, key, tensor or end
	name string // of a key or a tensor; "" while unknown
	no   int    // number of the key or tensor, from 1
}

func (s subject) String() string {
	switch {
	case s.name != "":
		return fmt.Sprintf("%s %q", s.kind, s.name)
	case s.no > 0:
		return fmt.Sprintf("%s %d", s.kind, s.no)
	}
	return s.kind
}

// fail records an error at data[off], unless there is an error already. A nil declared or allowed is left out of the
// message.
func (r *reader) fail(off int, what string, declared, allowed any) {
	if r.err != nil {
		return
	}
	e := &Error{Name: r.of.String(), Offset: r.base + int64(off), What: what}
	if declared != nil {
		e.Declared = fmt.Sprint(declared)
	}
	if allowed != nil {
		e.Allowed = fmt.Sprint(allowed)
	}
	r.err = e
}

// failWith records an error of another package.
func (r *reader) failWith(off int, err error) {
	if r.err == nil {
		r.err = &Error{Name: r.of.String(), Offset: r.base + int64(off), What: err.Error(), Cause: err}
	}
}

// remaining returns the number of bytes still to read.
func (r *reader) remaining() int { return len(r.data) - r.off }

// failShort fails for want of n bytes at data[off].
func (r *reader) failShort(off int, what string, n uint64) {
	left := len(r.data) - off
	if len(r.data) < r.size && n <= uint64(r.size-off) {
		r.fail(off, what+" makes the header longer than is read", n, fmt.Sprintf("%d of %d bytes", left, maxHeader))
		return
	}
	r.failEnd(off, what+" runs past the end of the file", n, fmt.Sprintf("the %d bytes left", left), n)
}

// failEnd records an error of a file that ends before the n bytes at data[off].
func (r *reader) failEnd(off int, what string, declared, allowed any, n uint64) {
	if r.err != nil {
		return
	}
	r.fail(off, what, declared, allowed)
	if e := (*Error)(nil); errors.As(r.err, &e) {
		e.Size, e.Need, e.header = int64(r.size), r.base+int64(off)+int64(n), true
	}
}

// take returns the next n bytes, or nil where there are fewer.
func (r *reader) take(n uint64, what string) []byte {
	if r.err != nil {
		return nil
	}
	if n > uint64(r.remaining()) {
		r.failShort(r.off, what, n)
		return nil
	}
	b := r.data[r.off : r.off+int(n) : r.off+int(n)]
	r.off += int(n)
	return b
}

func (r *reader) u32(what string) uint32 {
	if b := r.take(4, what); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64(what string) uint64 {
	if b := r.take(8, what); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// count reads a number of things of at least size bytes each, at most limit.
func (r *reader) count(what string, limit, size int) int {
	at := r.off
	n := r.u64(what)
	if r.err != nil {
		return 0
	}
	if n > uint64(limit) {
		r.fail(at, what+" is too large", n, fmt.Sprintf("at most %d", limit))
		return 0
	}
	rest := r.size - r.off
	if n > uint64(rest/size) {
		r.failEnd(at, what+" cannot be in the bytes left", n, fmt.Sprintf("at most %d, in %d bytes", rest/size, rest),
			8+n*uint64(size))
		return 0
	}
	if n > uint64(r.remaining()/size) {
		r.failShort(at, what, n*uint64(size))
		return 0
	}
	return int(n)
}

// str reads a string of at most limit bytes; the result is a part of data.
func (r *reader) str(what string, limit int) []byte {
	at := r.off
	n := r.u64(what) // no other words: every token is read here
	if n > uint64(limit) {
		r.fail(at, what+" is too long", n, fmt.Sprintf("at most %d", limit))
		return nil
	}
	return r.take(n, what)
}

// label reads a key or a tensor's name, which must be printable text.
func (r *reader) label(what string, limit int) string {
	at := r.off
	s := string(r.str(what, limit))
	if r.err != nil {
		return ""
	}
	if bad := badLabel(s); bad != "" {
		r.fail(at, what+" "+bad, fmt.Sprintf("%q", s), nil)
	}
	return s
}

// badLabel describes the fault of a key or a tensor's name; "" means none.
// A control character (or a NUL, where ggml's name ends) would hide the truth.
func badLabel(s string) string {
	if s == "" {
		return "is empty"
	}
	if !utf8.ValidString(s) {
		return "is not UTF-8"
	}
	for _, c := range s {
		if !unicode.IsGraphic(c) {
			return "holds a control character"
		}
	}
	return ""
}
