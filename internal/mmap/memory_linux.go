package mmap

import "golang.org/x/sys/unix"

// drop is right only for read-only mappings of files: other memory would lose
// its contents.
func drop(b []byte) { unix.Madvise(b, unix.MADV_DONTNEED) }

func hugePages(b []byte) { unix.Madvise(b, unix.MADV_HUGEPAGE) }

func smallPages(b []byte) { unix.Madvise(b, unix.MADV_NOHUGEPAGE) }
