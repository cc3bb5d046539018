package sysinfo

import "golang.org/x/sys/unix"

// available returns all memory that is installed: the system does not tell more without C.
func available() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
