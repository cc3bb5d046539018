package mmap

import (
	"bytes"
	"math"
	"sync"
	"testing"
)

func TestAnonymous(t *testing.T) {
	for _, n := range []int{1, 4096, 5<<20 + 1} {
		a, err := Anonymous(n)
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		data := a.Data()
		if len(data) != n || bytes.Count(data, []byte{0}) != n {
			t.Errorf("%d bytes: %d, of which %d are 0", n, len(data), bytes.Count(data, []byte{0}))
		}
		data[0], data[n-1] = 1, 2
		Drop(data) // is of files only
		if data[n-1] != 2 {
			t.Errorf("%d bytes: Drop emptied memory that is no file's", n)
		}
		for range 2 {
			if err := a.Close(); err != nil {
				t.Errorf("%d bytes: Close: %v", n, err)
			}
		}
	}
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt, math.MaxInt - 4095} {
		if a, err := Anonymous(n); err == nil {
			t.Errorf("%d bytes: no error, %d bytes", n, len(a.Data()))
		}
	}
}

// TestDrop: the contents stay, whatever part is dropped, in whatever order files are closed.
func TestDrop(t *testing.T) {
	want := bytes.Repeat([]byte{1, 2, 3}, 50_000)
	var open []*File
	for range 3 {
		f, err := Open(write(t, want))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, f)
	}
	for _, f := range []*File{open[1], open[0], open[2]} {
		data := f.Data()
		for _, part := range [][2]int{{0, 0}, {0, 1}, {1, 4096}, {1, 4097}, {100, 20_000}, {0, len(data)}, {len(data), len(data)}} {
			Drop(data[part[0]:part[1]])
			if !bytes.Equal(data, want) {
				t.Errorf("Drop(%v) changed the contents", part)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	heap := bytes.Clone(want)
	Drop(heap)
	Drop(nil)
	if !bytes.Equal(heap, want) {
		t.Error("Drop changed the heap")
	}
	if len(files.live) != 0 {
		t.Errorf("%d closed files are still known", len(files.live))
	}
}

func TestDropConcurrent(t *testing.T) {
	want := bytes.Repeat([]byte{7}, 1<<18)
	path := write(t, want)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				f, err := Open(path)
				if err != nil {
					t.Error(err)
					return
				}
				Drop(f.Data())
				if !bytes.Equal(f.Data(), want) {
					t.Error("Drop changed the contents")
				}
				f.Close()
			}
		})
	}
	wg.Wait()
}
