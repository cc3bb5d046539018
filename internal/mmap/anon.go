package mmap

import "fmt"

// Anon is memory outside Go's heap, for large data that lives long: the garbage collector neither scans nor counts it.
type Anon struct{ mapping }

// Anonymous returns n > 0 bytes of zeros, in large pages where the system has them.
func Anonymous(n int) (*Anon, error) { return anonymous(n, hugePages) }

// Sparse returns what Anonymous does in small pages, none of which takes memory before it is touched.
func Sparse(n int) (*Anon, error) { return anonymous(n, smallPages) }

func anonymous(n int, advise func([]byte)) (*Anon, error) {
	if n <= 0 {
		return nil, fmt.Errorf("%d bytes of memory", n)
	}
	data, unmap, err := mapMemory(n)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	advise(data)
	return &Anon{mapping{data: data, unmap: unmap}}, nil
}

// Data returns the memory, which may be written. It is valid until Close.
func (a *Anon) Data() []byte { return a.data }

// Close gives the memory back. Nothing that shares memory with Data may be used after it. A second Close does nothing
// and returns what the first did.
func (a *Anon) Close() error { return a.close() }
