package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

// drop serves only read-only mappings of files: other memory would lose its contents.
func drop(b []byte) { unix.Madvise(b, unix.MADV_DONTNEED) }

func hugePages(b []byte) { unix.Madvise(b, unix.MADV_HUGEPAGE) }

func smallPages(b []byte) { unix.Madvise(b, unix.MADV_NOHUGEPAGE) }

// populate reports whether the system mapped b's pages; Linux before 5.14 cannot. The address is passed as a number,
// since the first page may begin before b.
func populate(b []byte) bool {
	from, to := span(b)
	from &^= uintptr(os.Getpagesize() - 1)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_POPULATE_READ)
	return errno == 0
}
