//go:build !nogpu && (amd64 || arm64)

package gpu

import (
	"time"

	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/metal"
)

// apis are the ways to reach GPUs, the best first.
var apis = []hal.Backend{metal.Backend{}}

// memoryOf returns 0, unknown: Metal shares the machine's memory.
func memoryOf(hal.Adapter) int64 { return 0 }

// matricesOf returns nil: the library's Metal has no matrix units.
func matricesOf(hal.Adapter, uint32, uint32) *Matrices { return nil }

// openUnits opens an adapter.
func openUnits(e hal.ExposedAdapter) (hal.OpenDevice, error) {
	return e.Adapter.Open(e.Features, e.Capabilities.Limits)
}

// nap sleeps.
func nap(d time.Duration) { time.Sleep(d) }
