package gguf

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// What a header may hold. Each limit is far above every published file and keeps
// the memory for a hostile one small: everything is checked against them, and
// against the bytes that are left, before it is allocated or walked.
const (
	maxHeader     = 64 << 20 // bytes before the tensors' data; a vocabulary of 262,144 takes 16 MiB
	maxKeys       = 1 << 14
	maxTensors    = 1 << 16 // of all parts together
	maxKey        = 1 << 10 // bytes of a key; GGUF itself would allow 65,535
	maxName       = 63      // bytes of a tensor's name, ggml's limit
	maxString     = 16 << 20
	maxElements   = 1 << 22 // of one array
	maxNesting    = 4       // arrays in arrays; ggml reads one level
	maxDimensions = 4
	maxAlignment  = 1 << 20
	minAlignment  = 8 // the format asks for a multiple of 8

	defaultAlignment = 32
)

// reader walks a header. Its first error sticks; what it reads after that is zero.
type reader struct {
	data []byte // as much of the file as a header may take
	size int    // of the file
	base int64  // of data[0] in the file
	off  int
	of   subject // the part of the file being read
	err  error
}

// subject is what an error is about. Its text is made only for an error.
type subject struct {
	kind string // header, key, tensor or end
	name string // of a key or a tensor, "" while it is not known
	no   int    // which one it is, from 1
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

// fail records an error at data[off], unless there is one already. A nil
// declared or allowed is left out of the message.
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

// failed is fail for an error of another package.
func (r *reader) failed(off int, err error) {
	if r.err == nil {
		r.err = &Error{Name: r.of.String(), Offset: r.base + int64(off), What: err.Error(), Cause: err}
	}
}

// left is the number of bytes that are left to read.
func (r *reader) left() int { return len(r.data) - r.off }

// short fails for want of n bytes at data[off].
func (r *reader) short(off int, what string, n uint64) {
	left := len(r.data) - off
	if len(r.data) < r.size && n <= uint64(r.size-off) {
		r.fail(off, what+" makes the header longer than is read", n, fmt.Sprintf("%d of %d bytes", left, maxHeader))
		return
	}
	r.ends(off, what+" runs past the end of the file", n, fmt.Sprintf("the %d bytes left", left), n)
}

// ends is fail for a file that ends before the n bytes at data[off].
func (r *reader) ends(off int, what string, declared, allowed any, n uint64) {
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
	if n > uint64(r.left()) {
		r.short(r.off, what, n)
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
		r.ends(at, what+" cannot be in the bytes left", n, fmt.Sprintf("at most %d, in %d bytes", rest/size, rest), 8+n*uint64(size))
		return 0
	}
	if n > uint64(r.left()/size) {
		r.short(at, what, n*uint64(size))
		return 0
	}
	return int(n)
}

// str reads a string of at most limit bytes; the result is a part of data.
func (r *reader) str(what string, limit int) []byte {
	at := r.off
	n := r.u64(what) // no other words: this is called for every token
	if n > uint64(limit) {
		r.fail(at, what+" is too long", n, fmt.Sprintf("at most %d", limit))
		return nil
	}
	return r.take(n, what)
}

// label reads a key or a tensor's name. It will be printed, so it must be text.
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
