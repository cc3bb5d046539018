package simd

const (
	geluG1 = -0x1.988454p+0
	geluG3 = -0x1.2444f2p-4
)

func silu(x float32) float32 { return x / (1 + Exp(-x)) }

func gelu(x float32) float32 {
	t := fma32(float32(x*x), geluG3, geluG1)
	return x / (1 + Exp(float32(x*t)))
}

func siluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = silu(v)
	}
}

func geluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = gelu(v)
	}
}

func swigluGeneric(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = float32(silu(v) * up[i])
	}
}

func gegluGeneric(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = float32(gelu(v) * up[i])
	}
}

func softcapGeneric(dst, x []float32, c float32) {
	for i, v := range x {
		dst[i] = float32(c * Tanh(v/c))
	}
}
