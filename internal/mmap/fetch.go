package mmap

import (
	"os"
	"sync/atomic"
)

// Fetch reads b, a part of a File's Data, into memory, unless b is in memory already. Where the system supports it, all
// pages are mapped at once, which costs less than a fault for every few pages. A file that shrank faults, see Guard.
func Fetch(b []byte) {
	if len(b) == 0 || populate(b) {
		return
	}
	sum := uint32(0)
	for i := 0; i < len(b); i += os.Getpagesize() {
		sum += uint32(b[i])
	}
	fetched.Store(sum + uint32(b[len(b)-1]))
}

var fetched atomic.Uint32 // keeps Fetch's reads
