package simd

const (
	geluG1 = -0x1.988454p+0
	geluG3 = -0x1.2444f2p-4
)

func silu1(x float32) float32 { return x / (1 + Exp(-x)) }

func gelu1(x float32) float32 {
	t := fma32(float32(x*x), geluG3, geluG1)
	return x / (1 + Exp(float32(x*t)))
}

func siluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = silu1(v)
	}
}

func geluGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] = gelu1(v)
	}
}

func swigluGeneric(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = float32(silu1(v) * up[i])
	}
}

func gegluGeneric(dst, gate, up []float32) {
	for i, v := range gate {
		dst[i] = float32(gelu1(v) * up[i])
	}
}

func softcapGeneric(dst, x []float32, c float32) {
	for i, v := range x {
		dst[i] = float32(c * Tanh(v/c))
	}
}
