package mmap

import "fmt"

// Anon is memory outside Go's heap, for large data that lives long: the garbage collector neither scans nor counts the
// memory.
type Anon struct{ mapping }

// Anonymous returns n > 0 bytes of zeros, in large pages where the system supports them.
func Anonymous(n int) (*Anon, error) { return anonymous(n, hugePages) }

// Sparse returns zeros like Anonymous, in small pages. A page takes memory when it is touched.
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

// Data returns the memory, which may be written. The memory is valid until Close.
func (a *Anon) Data() []byte { return a.data }

// Close gives the memory back. Memory shared with Data must not be used afterwards. A second Close does nothing and
// returns the first result.
func (a *Anon) Close() error { return a.close() }
