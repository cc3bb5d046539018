package simd

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"
)

// TestTilesUnasked: a process that KARAT_SIMD keeps from tiles does not ask for
// room to save them.
func TestTilesUnasked(t *testing.T) {
	const child = "KARAT_TEST_TILES" // is this test in a process of its own
	if os.Getenv(child) == "" {
		for _, name := range []string{"generic", "avx2", "avx512"} {
			c := exec.Command(os.Args[0], "-test.run=^TestTilesUnasked$")
			c.Env = append(os.Environ(), child+"=1", "KARAT_SIMD="+name)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("KARAT_SIMD=%s: %v\n%s", name, err, out)
			}
		}
		return
	}
	if Err() != nil {
		t.Skip(Err()) // the machine has not that level, and said which it has
	}
	const permitted, tileData = 0x1022, 18 // ARCH_GET_XCOMP_PERM
	var mask uint64
	if _, _, err := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, permitted, uintptr(unsafe.Pointer(&mask)), 0); err != 0 {
		t.Skip(err)
	}
	if mask>>tileData&1 != 0 {
		t.Error("tiles are asked for")
	}
}
