package gpu

import (
	"os/exec"
	"runtime"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// TestBrowserWait is TestWait for the browser's half, under Node, with a device that is
// late.
func TestBrowserWait(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("a browser starts no programs")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		golden.Lacking(t, err)
	}
	if out, err := exec.Command(node, "testdata/wait.js", "gpu.js").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
