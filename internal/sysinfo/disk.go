package sysinfo

import (
	"fmt"
	"path/filepath"
)

// FreeDisk calls Disk. Tests replace it.
var FreeDisk = Disk

// CheckDisk returns an error if the disk of a file or folder is known to have no room for bytes.
func CheckDisk(path string, bytes int64) error {
	if free := FreeDisk(filepath.Dir(filepath.Clean(path))); free > 0 && bytes > free {
		return fmt.Errorf("%s: it needs %d bytes, and the disk has %d free", path, bytes, free)
	}
	return nil
}
