package sysinfo

import "golang.org/x/sys/windows"

// Disk returns the bytes left for this user on the disk of a folder; 0 if unknown.
func Disk(dir string) int64 {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0
	}
	var free uint64
	if windows.GetDiskFreeSpaceEx(name, &free, nil, nil) != nil || free > 1<<62 {
		return 0
	}
	return max(int64(free), 1)
}
