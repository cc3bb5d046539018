package atomicfile

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

// unprivileged has this thread open files as a user who may not write everywhere, as root may.
func unprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	runtime.LockOSThread()
	if err := syscall.Setfsuid(65534); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Error(err)
		}
		runtime.UnlockOSThread()
	})
}
