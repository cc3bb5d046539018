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

// silu sets dst[i] to x/(1 + Exp(-x)), x being x[i]. (Elfwing et al. 2017, arXiv:1702.03118.) The result is -0 below
// -88.7, where Exp overflows, and NaN for -Inf. dst may be x.
func silu(dst, x []float32) {
	n := wideLength(len(x))
	if n > 0 {
		siluVec(dst[:n], x[:n])
	}
	for i := n; i < len(x); i++ {
		dst[i] = silu1(x[i])
	}
}

// gelu sets dst[i] to the tanh form of the Gaussian error linear unit, x/2*(1 + tanh(√(2/π)*(x + 0.044715x³)))
// (Hendrycks and Gimpel 2016, arXiv:1606.08415), also x/(1 + e^-2u), u being tanh's argument:
//
//	t = fma(x*x, g3, g1); x/(1 + Exp(x*t))
//
// with g1 = -2√(2/π) and g3 = 0.044715*g1. The result is NaN for -Inf. dst may be x.
func gelu(dst, x []float32) {
	n := wideLength(len(x))
	if n > 0 {
		geluVec(dst[:n], x[:n])
	}
	for i := n; i < len(x); i++ {
		dst[i] = gelu1(x[i])
	}
}

// SwiGLU sets dst[i] to silu(gate[i])*up[i]. (Shazeer 2020, arXiv:2002.05202.)
// dst may be gate or up.
func SwiGLU(dst, gate, up []float32) {
	n := wideLength(len(gate))
	if n > 0 {
		swigluVec(dst[:n], gate[:n], up[:n])
	}
	for i := n; i < len(gate); i++ {
		dst[i] = float32(silu1(gate[i]) * up[i])
	}
}

// GeGLU sets dst[i] to gelu(gate[i])*up[i]. dst may be gate or up.
func GeGLU(dst, gate, up []float32) {
	n := wideLength(len(gate))
	if n > 0 {
		gegluVec(dst[:n], gate[:n], up[:n])
	}
	for i := n; i < len(gate); i++ {
		dst[i] = float32(gelu1(gate[i]) * up[i])
	}
}

// Softcap sets dst[i] to c*tanh(x[i]/c), a number between -c and c. dst may be x.
func Softcap(dst, x []float32, c float32) {
	n := wideLength(len(x))
	if n > 0 {
		softcapVec(dst[:n], x[:n], c)
	}
	for i := n; i < len(x); i++ {
		dst[i] = float32(c * tanh(x[i]/c))
	}
}

// expSum sets dst[i] to weight(x[i]-top), and returns their 16 partial sums.
func expSum(dst, x []float32, top float32) (sums [lanes]float32) {
	n := wideLength(len(x))
	if n > 0 {
		expSumVec(&sums, dst[:n], x[:n], top)
	}
	for i, v := range x[n:] { // n is a multiple of 16
		e := weight(v - top)
		dst[n+i] = e
		sums[i%lanes] += e
	}
	return sums
}

// leastExponent is the exponent of the smallest weight: weights below e^-64 are 0. Next to the largest, 1, smaller
// weights are nothing, but subnormal numbers would make processors more than a hundred times slower.
const leastExponent = -64

// weight returns Exp(x), or 0 for x < leastExponent.
func weight(x float32) float32 {
	if x < leastExponent {
		return 0
	}
	return Exp(x)
}
