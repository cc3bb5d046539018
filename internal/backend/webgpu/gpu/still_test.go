//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"runtime"
	"testing"
	"unsafe"
)

// deep uses n KiB of the stack.
//
//go:noinline
func deep(n int) byte {
	var room [1 << 10]byte
	if n == 0 {
		return 0
	}
	room[n%len(room)] = deep(n-1) + 1
	return room[(n+1)%len(room)]
}

// TestStill: on a goroutine whose stack is small, what still runs finds its variables where they
// were, after calls that need 100 KiB and a collection; and it takes nothing from the heap.
func TestStill(t *testing.T) {
	moved := make(chan bool)
	go func() {
		var x byte
		at := func() uintptr { return uintptr(unsafe.Pointer(&x)) }
		var is bool
		err := runStill(func() error {
			before := at()
			deep(100)
			is = at() != before
			runtime.GC()
			is = is || at() != before
			return nil
		})
		moved <- is || err != nil
	}()
	if <-moved {
		t.Error("the stack was moved")
	}
	if n := testing.AllocsPerRun(10, func() { runStill(func() error { return nil }) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
