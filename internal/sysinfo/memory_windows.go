package sysinfo

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// available returns the free physical memory (GlobalMemoryStatusEx).
func available() int64 {
	var status struct {
		length, load                                                  uint32
		totalPhys, availPhys, totalPage, availPage, total, avail, ext uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")
	if ok, _, _ := call.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0
	}
	return int64(status.availPhys)
}
