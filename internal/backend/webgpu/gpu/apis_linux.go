//go:build !nogpu && linux && !android && (amd64 || arm64)

package gpu

import (
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// apis are the ways to reach GPUs, the best first.
var apis = []hal.Backend{vulkan.Backend{}}
