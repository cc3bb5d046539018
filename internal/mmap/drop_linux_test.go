package mmap

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestDropResident: dropped pages leave the process, all others stay.
func TestDropResident(t *testing.T) {
	page := os.Getpagesize()
	want := bytes.Repeat([]byte{7}, 64*page)
	f, err := Open(write(t, want))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := f.Data()
	if !bytes.Equal(data, want) || present(t, data, page) != 64 {
		golden.Lacking(t, "the system does not tell which pages are there")
	}
	Drop(data[page-1 : 33*page+1]) // pages 1 to 32 are whole
	if n, rest := present(t, data[page:33*page], page), present(t, data[33*page:], page); n != 0 || rest != 31 {
		t.Errorf("after Drop %d of 32 pages are there, and %d of the 31 that follow", n, rest)
	}
	if !bytes.Equal(data, want) {
		t.Error("Drop changed the contents")
	}
}

// TestSparseResident: no page is there before it is touched, nor another one with it.
func TestSparseResident(t *testing.T) {
	page := os.Getpagesize()
	a, err := Sparse(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if n := present(t, a.Data(), page); n != 0 {
		t.Errorf("%d pages are there before they are touched", n)
	}
	a.Data()[4<<20] = 1
	if n := present(t, a.Data(), page); n > 1 {
		t.Errorf("%d pages are there, one was touched", n)
	}
}

// TestFetchResident: all fetched pages are there.
func TestFetchResident(t *testing.T) {
	page := os.Getpagesize()
	f, err := Open(write(t, make([]byte, 256*page)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data := f.Data()
	if n := present(t, data, page); n != 0 {
		t.Fatalf("%d pages are there before they are read", n)
	}
	Fetch(data[65*page+1 : 191*page-1])
	if n := present(t, data[65*page:191*page], page); n != 126 {
		t.Errorf("%d of 126 pages are there", n)
	}
	Fetch(data[:0])
}

// TestFetchShrink: a file that shrank is a fault, not a crash.
func TestFetchShrink(t *testing.T) {
	path := write(t, make([]byte, 1<<20))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	if err := Guard(func() error { Fetch(f.Data()); return nil }); err == nil {
		t.Error("no error for a file that shrank")
	}
}

// present counts the pages of data that the process holds.
func present(t *testing.T, data []byte, page int) (n int) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		golden.Lacking(t, err)
	}
	defer f.Close()
	from, _ := span(data)
	entries := make([]byte, len(data)/page*8)
	if _, err := f.ReadAt(entries, int64(from)/int64(page)*8); err != nil {
		golden.Lacking(t, err)
	}
	for e := range len(entries) / 8 {
		n += int(binary.LittleEndian.Uint64(entries[8*e:]) >> 63)
	}
	return n
}
