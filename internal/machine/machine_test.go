package machine

import (
	"runtime"
	"testing"
)

func TestMemory(t *testing.T) {
	n := Memory()
	if runtime.GOOS == "linux" && (n < 1<<20 || n > 1<<50) {
		t.Errorf("%d bytes", n)
	}
}
