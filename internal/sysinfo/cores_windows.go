package sysinfo

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

// cores returns the number of physical cores of the process's processor group (GetLogicalProcessorInformation); 0 if
// unknown.
func cores() (n int) {
	type information struct {
		processors   uintptr
		relationship uint32 // 0 for the processors of a core
		_            [2]uint64
	}
	call := windows.NewLazySystemDLL("kernel32.dll").NewProc("GetLogicalProcessorInformation")
	list := make([]information, 4096)
	size := uint32(len(list)) * uint32(unsafe.Sizeof(list[0]))
	if ok, _, _ := call.Call(uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&size))); ok == 0 {
		return 0
	}
	for _, i := range list[:min(int(size/uint32(unsafe.Sizeof(list[0]))), len(list))] {
		if i.relationship == 0 {
			n++
		}
	}
	return n
}
