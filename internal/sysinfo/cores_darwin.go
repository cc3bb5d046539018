package sysinfo

import "golang.org/x/sys/unix"

// cores returns the number of physical cores, of the fast kind if there are two; 0 if unknown.
func cores() int {
	for _, name := range []string{"hw.perflevel0.physicalcpu", "hw.physicalcpu"} {
		if n, err := unix.SysctlUint32(name); err == nil {
			return int(n)
		}
	}
	return 0
}
