package sysinfo

import (
	"path/filepath"
	"runtime"
	"testing"
)

func TestDisk(t *testing.T) {
	if n := Disk(t.TempDir()); n <= 0 && (runtime.GOOS == "linux" || runtime.GOOS == "darwin" || runtime.GOOS == "windows") {
		t.Errorf("%d bytes are free", n)
	}
	if n := Disk(filepath.Join(t.TempDir(), "none")); n != 0 {
		t.Errorf("%d bytes are free where there is nothing", n)
	}
}
