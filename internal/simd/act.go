package simd

// Silu sets dst[i] to x/(1 + Exp(-x)), x being x[i]. (Elfwing et al. 2017,
// arXiv:1702.03118.) Below -88.7, where Exp overflows, it is -0, and NaN for
// -Inf. dst may be x.
func Silu(dst, x []float32) { silu(dst, x) }

// Gelu sets dst[i] to the tanh form of the Gaussian error linear unit,
// x/2*(1 + tanh(√(2/π)*(x + 0.044715x³))) (Hendrycks and Gimpel 2016,
// arXiv:1606.08415), which is also x/(1 + e^-2u), u being tanh's argument:
//
//	t = fma(x*x, g3, g1); x/(1 + Exp(x*t))
//
// with g1 = -2√(2/π) and g3 = 0.044715*g1. NaN for -Inf. dst may be x.
func Gelu(dst, x []float32) { gelu(dst, x) }

// SwiGLU sets dst[i] to Silu(gate[i])*up[i]. (Shazeer 2020, arXiv:2002.05202.)
// dst may be gate or up.
func SwiGLU(dst, gate, up []float32) { swiglu(dst, gate, up) }

// GeGLU sets dst[i] to Gelu(gate[i])*up[i]. dst may be gate or up.
func GeGLU(dst, gate, up []float32) { geglu(dst, gate, up) }

// Softcap sets dst[i] to c*Tanh(x[i]/c), which keeps it between -c and c.
// dst may be x.
func Softcap(dst, x []float32, c float32) { softcap(dst, x, c) }
