package mmap

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// TestDropResident: the pages of what is dropped leave the process, all others stay.
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
		t.Skip("the system does not tell which pages are there")
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

// present counts the pages of data that the process holds.
func present(t *testing.T, data []byte, page int) (n int) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err)
	}
	defer f.Close()
	from, _ := span(data)
	entries := make([]byte, len(data)/page*8)
	if _, err := f.ReadAt(entries, int64(from)/int64(page)*8); err != nil {
		t.Skip(err)
	}
	for e := range len(entries) / 8 {
		n += int(binary.LittleEndian.Uint64(entries[8*e:]) >> 63)
	}
	return n
}
