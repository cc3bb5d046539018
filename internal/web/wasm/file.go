//go:build js

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall/js"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/jsasync"
)

// most is how much is asked of a file at once.
const most = 16 << 20

// file is a model's file given by JavaScript: an object with its name, and either bytes or size and read(offset,
// length), which returns bytes or a promise of bytes.
type file struct {
	source js.Value
	name   string
	size   int64
}

// newFiles returns the files of a model, given as an object or an array.
func newFiles(source js.Value) (files []*file, err error) {
	if source.Type() != js.TypeObject || !source.InstanceOf(js.Global().Get("Array")) {
		f, err := newFile(source)
		return []*file{f}, err
	}
	for i := range source.Length() {
		f, err := newFile(source.Index(i))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, errors.New("load: no files")
	}
	return files, nil
}

func newFile(source js.Value) (*file, error) {
	if source.Type() != js.TypeObject || source.Get("name").Type() != js.TypeString {
		return nil, fmt.Errorf("load: the source has no name")
	}
	f := &file{source: source, name: source.Get("name").String()}
	switch bytes, size := source.Get("bytes"), source.Get("size"); {
	case bytes.Type() == js.TypeObject:
		f.size = int64(bytes.Get("byteLength").Float())
	case size.Type() == js.TypeNumber && source.Get("read").Type() == js.TypeFunction:
		f.size = int64(size.Float())
	default:
		return nil, fmt.Errorf("load: %s has neither bytes nor size and read", f.name)
	}
	if f.size < 0 || f.size > 1<<50 {
		return nil, fmt.Errorf("load: %s has %d bytes", f.name, f.size)
	}
	return f, nil
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, at int64) (n int, err error) {
	if at < 0 || at > f.size {
		return 0, fmt.Errorf("%s: byte %d of %d", f.name, at, f.size)
	}
	for n < len(b) && at+int64(n) < f.size {
		want := int(min(int64(len(b)-n), most, f.size-at-int64(n)))
		piece, err := f.piece(at+int64(n), want)
		if err != nil {
			return n, fmt.Errorf("%s: %d bytes at %d: %w", f.name, want, at+int64(n), err)
		}
		n += js.CopyBytesToGo(b[n:n+want], piece)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// piece returns length bytes of the file, as a Uint8Array.
func (f *file) piece(at int64, n int) (js.Value, error) {
	if bytes := f.source.Get("bytes"); bytes.Type() == js.TypeObject {
		return bytes.Call("subarray", at, at+int64(n)), nil
	}
	v, err := jsasync.Call(f.source, "read", at, n)
	if err == nil {
		v, err = jsasync.Await(v)
	}
	if err != nil {
		return v, err
	}
	if !v.InstanceOf(js.Global().Get("Uint8Array")) || v.Length() != n {
		return v, fmt.Errorf("read gave no Uint8Array of that length")
	}
	return v, nil
}

// maxSize bounds the size of a model's files where the CPU computes. The panels of its weights have about this size, in
// a memory of 4 GiB.
const maxSize = 2 << 30

// sources returns files in Karat's form, read by pieces.
func sources(files []*file, onCPU bool) (list []gguf.Source, err error) {
	var size int64
	for _, f := range files {
		size += f.size
		list = append(list, gguf.Source{Name: f.name, At: &window{file: f}, Size: f.size})
	}
	if onCPU && size > maxSize {
		return nil, fmt.Errorf("%s has %d bytes: %w: without a GPU at most %d have room", files[0].name, size,
			gpu.ErrMemory, maxSize)
	}
	return list, nil
}

// window reads a file, and small pieces close to the piece before from a copy of their surroundings: a panel takes a
// little of each row.
type window struct {
	file *file
	mu   sync.Mutex
	data []byte
	at   int64 // of data
	last int64 // the end of the piece before
	shut bool  // no copies
}

const (
	windowSize = 1 << 20
	windowNear = windowSize / 16 // distance between close pieces
)

// ReadAt implements io.ReaderAt.
func (w *window) ReadAt(b []byte, at int64) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	near, end := at > w.last-windowNear && at < w.last+windowNear, at+int64(len(b))
	if w.last = end; w.shut || !near || len(b) > windowNear {
		return w.file.ReadAt(b, at)
	}
	if at < w.at || end > w.at+int64(len(w.data)) {
		from := max(0, at-windowNear)
		size := max(0, min(windowSize, w.file.size-from))
		w.at, w.data = from, slices.Grow(w.data[:0], int(size))[:size]
		if n, err := w.file.ReadAt(w.data, from); n < len(w.data) {
			w.data = w.data[:0]
			return 0, err
		}
	}
	if at > w.at+int64(len(w.data)) {
		return 0, io.EOF
	}
	n := copy(b, w.data[at-w.at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// close ends copies: rows of a table are few, and far from each other.
func (w *window) close() {
	w.mu.Lock()
	w.data, w.shut = nil, true
	w.mu.Unlock()
}
