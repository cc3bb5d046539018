//go:build !(darwin || linux || windows)

package sysinfo

// Disk returns 0: the room on a disk is unknown here.
func Disk(string) int64 { return 0 }
