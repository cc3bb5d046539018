//go:build !nogpu && (amd64 || arm64)

package gpu

import (
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/dx12"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// apis are the ways to reach GPUs, the best first.
var apis = []hal.Backend{vulkan.Backend{}, dx12.Backend{}}
