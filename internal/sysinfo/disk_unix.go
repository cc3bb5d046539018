//go:build darwin || linux

package sysinfo

import "golang.org/x/sys/unix"

// Disk returns the bytes left for this user on the disk of a folder; 0 if unknown.
func Disk(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Bavail > 1<<62/uint64(max(st.Bsize, 1)) {
		return 0
	}
	return max(int64(st.Bavail)*int64(st.Bsize), 1)
}
