package engine_test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/karat-run/karat/internal/simd"
)

// TestTiers runs TestHashes, TestAdapterHashes and TestValues in a process for each instruction set that this
// machine has kernels for.
func TestTiers(t *testing.T) {
	if testing.Short() || runtime.GOOS == "js" {
		t.Skip("runs tests again, in processes of their own")
	}
	for _, tier := range simd.Tiers() {
		if tier == simd.Tier() {
			continue // this process
		}
		t.Run(tier, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^Test(Hashes|AdapterHashes|Values)$")
			cmd.Env = append(os.Environ(), "KARAT_SIMD="+tier)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
