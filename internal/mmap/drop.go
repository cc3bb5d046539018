package mmap

import (
	"os"
	"slices"
	"sync"
	"unsafe"
)

// files are the mapped files, so that Drop knows which memory it may touch.
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

// Drop says that b, a part of a File's Data, is not needed for now: the process no longer counts its whole pages as its
// own. b may be read as before, which brings them back from the system's cache or the disk. Where b is any other
// memory, or the system has no such request, Drop does nothing.
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
	head := -from & (page - 1) // b's bytes before its first whole page
	if size := to - from; head < size && size-head >= page {
		drop(b[head : head+(size-head)&^(page-1)])
	}
}

// span returns the addresses of b's first byte and of the one after its last.
func span(b []byte) (from, to uintptr) {
	from = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return from, from + uintptr(len(b))
}
