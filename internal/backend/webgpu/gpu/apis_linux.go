//go:build !nogpu && linux && !android && (amd64 || arm64)

package gpu

import (
	"syscall"
	"time"

	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// apis are the ways to reach GPUs, the best first.
var apis = []hal.Backend{vulkan.Backend{}}

// nap sleeps. The runtime's own timers may end a millisecond late.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // an interruption ends the sleep
}
