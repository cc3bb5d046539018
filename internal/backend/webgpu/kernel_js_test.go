package webgpu

import "testing"

// TestKernels: the browser's compiler has nothing against any kernel.
func TestKernels(t *testing.T) {
	d := device(t)
	for _, k := range variants(t) {
		p, err := d.gpu.NewPipeline(k.name, k.wgsl, k.access)
		if err != nil {
			t.Error(err)
			continue
		}
		p.Release()
	}
}
