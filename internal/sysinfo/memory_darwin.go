package sysinfo

import "golang.org/x/sys/unix"

// available returns the installed memory: macOS reports no more without C.
func available() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
