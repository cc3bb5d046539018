package simd

import (
	"sync"
	"syscall"
)

// amxAllowed asks Linux to save the tiles of the process's threads; without the request Linux does not (arch_prctl(2),
// since 5.16).
var amxAllowed = sync.OnceValue(func() bool {
	const (
		askPermission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData      = 18     // XFEATURE_XTILEDATA
	)
	_, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, askPermission, tileData, 0)
	return err == 0
})
