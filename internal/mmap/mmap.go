// Package mmap maps files into memory for reading, and provides memory outside Go's heap.
//
// On Unix and Windows a file's pages come from the operating system's file cache on first touch. Elsewhere (js/wasm)
// the file is read into memory.
//
// Files in reading order: anon.go, fetch.go, mmap.go, for each system map_unix.go, map_windows.go, map_other.go,
// memory_linux.go, memory_other.go, and drop.go.
package mmap

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/karat-run/karat/internal/patherr"
)

// File is the contents of a file. Several goroutines may call its methods at once.
type File struct{ mapping }

// mapping is the common part of File and Anon.
type mapping struct {
	data  []byte
	unmap func([]byte) error // nil where there is nothing to give back
	once  sync.Once
	err   error // result of the single unmap
}

func (m *mapping) close() error {
	m.once.Do(func() {
		if m.unmap == nil {
			return
		}
		if err := m.unmap(m.data); err != nil {
			m.err = fmt.Errorf("close: %w", err)
		}
	})
	return m.err
}

// Open maps the regular file at path, following symbolic links. A folder, a pipe, a device or a socket is an error,
// found without opening or waiting.
func Open(path string) (*File, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // a mapping outlives its descriptor
	if size == 0 {
		return &File{}, nil // an empty mapping is an error to the operating systems
	}
	data, unmap, err := mapFile(f, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if unmap == nil {
		return &File{mapping{data: data}}, nil
	}
	register(data)
	return &File{mapping{data: data, unmap: func(data []byte) error {
		unregister(data)
		return unmap(data)
	}}}, nil
}

// ReadFile reads the regular file at path, of at most so many bytes. Like Open, ReadFile never waits for a pipe or a
// device.
func ReadFile(path string, most int64) ([]byte, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if int64(size) > most {
		return nil, fmt.Errorf("%s: %d bytes, expected at most %d", path, size, most)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Data returns the file's contents, read-only: a write ends the program. The contents are valid until Close; a read
// beyond the end of a file that shrank after Open faults, see Guard.
func (f *File) Data() []byte { return f.data }

// Close gives the mapping back. Memory shared with Data must not be used afterwards. A second Close does nothing and
// returns the first result.
func (f *File) Close() error { return f.close() }

var errGone = errors.New("the mapped file shrank or cannot be read")

// Guard calls read and returns its error. Where read touches mapped memory that has vanished (the file shrank, or its
// disk failed), Guard returns an error instead of ending the program. Guard sees only faults of the calling goroutine;
// every other panic goes on.
func Guard(read func() error) (err error) {
	if runtime.GOOS == "js" {
		return read() // nothing is mapped
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if _, fault := p.(interface {
			runtime.Error
			Addr() uintptr
		}); !fault {
			panic(p)
		}
		err = errGone // where memory lies is nobody's business
	}()
	return read()
}

// openRegular opens path and returns its size. The kind of file is checked before opening, since opening a device can
// have effects, and again afterwards.
func openRegular(path string) (*os.File, int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, patherr.Plain(err)
	}
	if err := checkRegular(path, info); err != nil {
		return nil, 0, err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, 0, patherr.Plain(err)
	}
	if info, err = f.Stat(); err == nil {
		err = checkRegular(path, info)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, int(info.Size()), nil
}

func checkRegular(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: not a regular file (%v)", path, info.Mode().Type())
	}
	if size := info.Size(); size < 0 || size > math.MaxInt {
		return fmt.Errorf("%s: %d bytes are more than this machine can address", path, size)
	}
	return nil
}
