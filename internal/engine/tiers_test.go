package engine_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/simd"
)

// TestTiers runs TestHashes and TestAdapterHashes in a process for each instruction set that this machine has kernels for,
// and TestValues, which follows from equal hashes, in the long ring.
func TestTiers(t *testing.T) {
	if testing.Short() || runtime.GOOS == "js" {
		t.Skip("runs tests again, in processes of their own")
	}
	for _, tier := range simd.Tiers() {
		if tier == simd.Tier() {
			continue // this process
		}
		t.Run(tier, func(t *testing.T) {
			run := "-test.run=^Test(Hashes|AdapterHashes)$"
			if golden.Slow() {
				run = "-test.run=^Test(Hashes|AdapterHashes|Values)$"
			}
			cmd := exec.Command(os.Args[0], run)
			cmd.Env = append(os.Environ(), "KARAT_SIMD="+tier)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
