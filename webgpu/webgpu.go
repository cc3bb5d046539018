// Package webgpu lets models run on GPUs. A program importing the package for its effect may set Options.Backend of
// package karat to "webgpu" for the first GPU, or to "webgpu:1" for the second:
//
//	import (
//		"github.com/karat-run/karat"
//		_ "github.com/karat-run/karat/webgpu"
//	)
//
// The import links a WebGPU implementation in Go for Vulkan, DX12 and Metal, without cgo. In a browser (GOOS=js) models
// use the browser's WebGPU. See docs/webgpu.md.
package webgpu

import (
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/webgpu"
)

func init() { numerics.Register(gpus{}) }

// gpus implements numerics.GPUs.
type gpus struct{}

func (gpus) Matrices(n int) bool { return webgpu.HasMatrices(n) }

func (gpus) Open(n int, o numerics.GPUOptions) (backend.Backend, error) {
	d, err := webgpu.Open(n)
	if err != nil {
		return nil, err
	}
	return webgpu.New(d, webgpu.Options{F32KV: o.KV == "f32", Narrow: o.KV == "q8_0", Own: true,
		Software: d.Adapter().Kind == "cpu", NoFuse: o.NoFuse, Matrices: o.Matrices}), nil
}
