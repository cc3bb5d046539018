//go:build !nogpu && ((linux && !android) || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"encoding/binary"

	"github.com/gogpu/naga"
)

// spirv compiles WGSL for Vulkan.
//
// The compiler lets the first invocation of each workgroup set the workgroup's memory to zeros, word by word: longer
// than many a kernel. Karat's kernels write workgroup memory before reading, so these stores are left out.
func spirv(wgsl string) ([]uint32, error) {
	wgsl, shape := standIns(wgsl)
	o := naga.DefaultOptions()
	if shape != (Shape{}) {
		o.Debug, o.Capabilities = true, naga.CapShaderFloat16 // with names
	}
	data, err := naga.CompileWithOptions(wgsl, o)
	if err != nil {
		return nil, err
	}
	words := make([]uint32, len(data)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(data[4*i:])
	}
	const (
		header                       = 5
		nop, null, variable, storeOp = 0, 46, 59, 62
		workgroup                    = 4
	)
	shared, zero := map[uint32]bool{}, map[uint32]bool{}
	for at := header; at < len(words); {
		size, op := int(words[at]>>16), words[at]&0xffff
		if size == 0 || at+size > len(words) {
			break // not SPIR-V: the driver says so
		}
		switch {
		case op == null:
			zero[words[at+2]] = true
		case op == variable && words[at+3] == workgroup:
			shared[words[at+2]] = true
		case op == storeOp && shared[words[at+1]] && zero[words[at+2]]:
			for i := range size {
				words[at+i] = 1<<16 | nop
			}
		}
		at += size
	}
	if shape != (Shape{}) {
		words = withUnits(words, shape)
	}
	return words, nil
}
