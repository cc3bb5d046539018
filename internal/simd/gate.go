package simd

// Curve is an activation.
type Curve uint8

const (
	SiluCurve    Curve = iota // Silu
	GeluCurve                 // Gelu
	GeluErfCurve              // geluErf
	SquareCurve               // square
	SigmoidCurve              // Sigmoid
	TanhCurve                 // Tanh: Softcap with c = 1
	ExpLessCurve              // expLess
)

// Apply sets dst[i] to c of x[i]. dst may be x.
func (c Curve) Apply(dst, x []float32) {
	switch c {
	case SiluCurve:
		silu(dst, x)
	case GeluCurve:
		gelu(dst, x)
	case GeluErfCurve:
		geluErf(dst, x)
	case SquareCurve:
		square(dst, x)
	case SigmoidCurve:
		Sigmoid(dst, x)
	case TanhCurve:
		Softcap(dst, x, 1)
	case ExpLessCurve:
		expLess(dst, x)
	}
}

// gateChunk is how many elements a Gate has on its stack.
const gateChunk = 64

// A Gate makes a value of a gate and a gated value. (Limit, Alpha and Plus as in gpt-oss: GptOssExperts in
// transformers/models/gpt_oss/modeling_gpt_oss.py.)
type Gate struct {
	Curve
	Limit float32 // the gate is Limit at most, up between -Limit and Limit; 0 for none
	Alpha float32 // the factor of the gate before the curve, and its divisor after the curve; 0 for 1
	Plus  float32 // is added to up
}

// Apply sets dst[i] to Curve(gate[i])*up[i], limited: min and max as in Go, a NaN staying NaN. dst may be gate or up.
//
//	a = min(gate[i], Limit)*Alpha; u = max(-Limit, min(up[i], Limit)) + Plus; dst[i] = (Curve(a)/Alpha)*u
func (g Gate) Apply(dst, gate, up []float32) {
	var a, u [gateChunk]float32
	for i := 0; i < len(gate); i += gateChunk {
		n := min(gateChunk, len(gate)-i)
		copy(a[:n], gate[i:i+n])
		copy(u[:n], up[i:i+n])
		if g.Limit > 0 {
			for j, v := range a[:n] {
				a[j], u[j] = min(v, g.Limit), max(-g.Limit, min(u[j], g.Limit))
			}
		}
		if g.Plus != 0 {
			for j := range u[:n] {
				u[j] += g.Plus
			}
		}
		if g.Alpha != 0 {
			Scale(a[:n], a[:n], g.Alpha)
		}
		g.Curve.Apply(a[:n], a[:n])
		if g.Alpha != 0 {
			Divide(a[:n], a[:n], g.Alpha)
		}
		Mul(dst[i:i+n], a[:n], u[:n])
	}
}

// Sigmoid sets dst[i] to 1/(1 + Exp(-x[i])). dst may be x.
func Sigmoid(dst, x []float32) {
	dst = dst[:len(x)]
	Scale(dst, x, -1)
	expSum(dst, dst, 0) // 0 for Exp of less than -64: nothing beside 1
	for i, e := range dst {
		dst[i] = 1 / (1 + e)
	}
}

// square sets dst[i] to max(x[i], 0)², NaN for NaN: the squared ReLU. (So et al. 2021,
// arXiv:2109.08668.) dst may be x.
func square(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		v = max(v, 0)
		dst[i] = float32(v * v)
	}
}

// expLess sets dst[i], x being x[i], to
//
//	0 for x > 0
//	(e^-1e-6 - 1) - x for x > -1e-6
//	x*x*p for x > -1, p being expLessQ's polynomial of x by Horner's rule, each step rounded
//	(Exp(x) - 1) - x for others, NaN for NaN
//
// dst may be x.
func expLess(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		switch {
		case v > 0:
			dst[i] = 0
		case v > -1e-6:
			dst[i] = -9.999995e-7 - v
		case v > -1:
			p := float32(0)
			for _, q := range expLessQ {
				p = float32(p*v) + q
			}
			dst[i] = float32(float32(v*v) * p)
		default:
			dst[i] = Exp(v) - 1 - v
		}
	}
}

// expLessQ are 1/n! from n = 11 down to 2.
var expLessQ = [...]float32{1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040, 1. / 720, 1. / 120,
	1. / 24, 1. / 6, 1. / 2}

// geluErf sets dst[i] to the Gaussian error linear unit x/2*(1 + erf(x/√2)) (Hendrycks and Gimpel 2016,
// arXiv:1606.08415). With a = |x|:
//
//	t = 2/(1 + g*a) - 1; p = q8, then p = p*t + q for q = q7 ... q0, each step rounded
//	e = Exp(a*a*-0.5), or 0 for an exponent below -64
//	max(x, 0) - a*(e*p)
//
// where e*p is the normal distribution's tail behind a, within 1e-6 of it; where e is 0, x > 0 is its own result. The
// result is NaN for -Inf. dst may be x.
func geluErf(dst, x []float32) {
	dst = dst[:len(x)]
	var e, a, t, p [erfChunk]float32
	for i := 0; i < len(x); i += erfChunk {
		part := x[i:min(i+erfChunk, len(x))]
		n := len(part)
		for j, v := range part {
			e[j] = float32(float32(v*v) * -0.5)
			a[j] = abs(v)
			t[j] = 2/(1+float32(geluErfG*a[j])) - 1
		}
		expSum(e[:n], e[:n], 0)
		copy(p[:n], geluErfRows[len(geluErfQ)-1][:])
		for k := len(geluErfQ) - 2; k >= 0; k-- {
			Mul(p[:n], p[:n], t[:n])
			Add(p[:n], p[:n], geluErfRows[k][:n])
		}
		for j, v := range part {
			y := float32(float32(v+a[j])*0.5) - float32(a[j]*float32(e[j]*p[j]))
			if e[j] == 0 && v > 0 {
				y = v
			}
			dst[i+j] = y
		}
	}
}

// erfChunk is how many elements geluErf has on its stack.
const erfChunk = 256

// geluErfRows are the polynomial's numbers, each as often as a chunk has elements.
var geluErfRows = func() (rows [len(geluErfQ)][erfChunk]float32) {
	for k, q := range geluErfQ {
		for j := range rows[k] {
			rows[k][j] = q
		}
	}
	return rows
}()

// The polynomial is e^(a²/2) times the tail of the normal distribution, for a up to 11.5
// (least squares of the relative error at Chebyshev's points: 2^-23).
const geluErfG = 0.3

var geluErfQ = [...]float32{0x1.c69886p-04, 0x1.8bd3c6p-03, 0x1.01282ep-03, 0x1.d438f6p-05, 0x1.e476c2p-07,
	-0x1.474962p-12, -0x1.8476cep-10, -0x1.005634p-13, 0x1.3b299ap-13}
