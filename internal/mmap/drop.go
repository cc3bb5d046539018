package mmap

import (
	"os"
	"slices"
	"sync"
	"unsafe"
)

// files holds the mapped files: Drop may touch no other memory.
var files struct {
	sync.Mutex
	live [][]byte
}

func register(data []byte) {
	files.Lock()
	defer files.Unlock()
	files.live = append(files.live, data)
}

func unregister(data []byte) {
	files.Lock()
	defer files.Unlock()
	files.live = slices.DeleteFunc(files.live, func(d []byte) bool { return &d[0] == &data[0] })
}

// Drop gives the whole pages of b, a part of a File's Data, back to the system, and the process no longer counts them
// as its own. Reading b remains possible, and fetches the pages from the system's cache or the disk. For other memory,
// or on a system without such a request, Drop does nothing.
func Drop(b []byte) {
	from, to := span(b)
	files.Lock() // until the end: files in use stay mapped
	defer files.Unlock()
	if !slices.ContainsFunc(files.live, func(d []byte) bool {
		first, end := span(d)
		return first <= from && to <= end
	}) {
		return
	}
	page := uintptr(os.Getpagesize())
	head := -from & (page - 1) // bytes of b before its first whole page
	if size := to - from; head < size && size-head >= page {
		drop(b[head : head+(size-head)&^(page-1)])
	}
}

// span returns the address of b's first byte and the address after its last byte.
func span(b []byte) (from, to uintptr) {
	from = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return from, from + uintptr(len(b))
}
