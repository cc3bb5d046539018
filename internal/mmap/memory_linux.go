package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// drop is right only for read-only mappings of files: other memory would lose
// its contents.
func drop(b []byte) { unix.Madvise(b, unix.MADV_DONTNEED) }

func hugePages(b []byte) { unix.Madvise(b, unix.MADV_HUGEPAGE) }

func smallPages(b []byte) { unix.Madvise(b, unix.MADV_NOHUGEPAGE) }

// populate reports whether the system mapped b's pages; it cannot before Linux 5.14.
func populate(b []byte) bool {
	from, to := span(b)
	head := from & uintptr(os.Getpagesize()-1)
	b = unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(head))), to-from+head) // whole pages of the mapping
	return unix.Madvise(b, unix.MADV_POPULATE_READ) == nil
}
