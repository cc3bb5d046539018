package simd

// softplus returns log(1 + e^x), within 4 ulp of the exact value: with u = Exp(-|x|)
// and s = u/(2 + u)
//
//	max(x, 0) + 2s·(1 + z/3 + z²/5 + ... + z⁸/17), z = s*s
//
// where the sum is Horner's, each step an fma, and 2s·sum a product of two roundings.
func softplus(x float32) float32 {
	if x != x {
		return x
	}
	u := Exp(-abs(x))
	s := u / (2 + u)
	z := float32(s * s)
	p := float32(1.0 / 17)
	for _, c := range [...]float32{1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1} {
		p = fma32(p, z, c)
	}
	return max(x, 0) + float32(2*s*p)
}

// Decay returns t = softplus(x + bias) and Exp(a*t), each step rounded: the length of a scan's step and the share of
// the state remaining after the step.
func Decay(a, x, bias float32) (t, decay float32) {
	t = softplus(x + bias)
	return t, Exp(float32(a * t))
}

// Conv sets y to a row of a causal convolution of len(y) channels. The last input is x, the input j rows before is
// s[len(s)-j·stride:]. w holds a row of weights for each input, the oldest first, stride apart as in s; bias may be
// nil.
//
//	y[c] = ((w0·x0 + w1·x1) + ...) + bias[c]
//
// each product and each sum rounded. Conv then drops the oldest input from s, and keeps x. tmp is as long as y.
func Conv(y, s, x, w, bias, tmp []float32, stride int) {
	n := len(y)
	inputs := (len(s) + stride - 1) / stride
	for j := range inputs + 1 {
		in := x
		if j < inputs {
			in = s[j*stride:][:n]
		}
		if j == 0 {
			Mul(y, in, w[:n])
			continue
		}
		Mul(tmp, in, w[j*stride:][:n])
		Add(y, y, tmp)
	}
	if bias != nil {
		Add(y, y, bias)
	}
	for j := range inputs - 1 {
		copy(s[j*stride:][:n], s[(j+1)*stride:])
	}
	copy(s[(inputs-1)*stride:][:n], x)
}

// SSM computes a row of a head of Mamba 2's scan: x and y are [dim], b and c [n], s [dim, n].
//
//	s = fma(b, t*x[p], s*decay), then y[p] = dotF32(s, c) + d*x[p]
//
// each other step rounded. (Dao and Gu 2024, arXiv:2405.21060)
func SSM(y, s, x, b, c []float32, t, decay, d float32) {
	n := len(b)
	for p, v := range x {
		row := s[p*n : (p+1)*n]
		Scale(row, row, decay)
		AddScaled(row, b, float32(t*v))
		y[p] = dotF32(row, c) + float32(d*v)
	}
}

// Delta computes a row of a head of the gated delta rule: q and k are [n], v and y [dim], s [n, dim], and held has room
// for dim numbers.
//
//	s = s*decay; held = Σ fma(s[j], k[j], held) for j in order
//	held = (v - held)*beta
//	s[j] = fma(held, k[j], s[j]); y = Σ fma(s[j], q[j], y) for j in order
//
// (Yang, Kautz and Hatamizadeh 2024, arXiv:2412.06464)
func Delta(y, s, q, k, v, held []float32, decay, beta float32) {
	d := len(v)
	held = held[:d]
	clear(held)
	clear(y)
	for j, kj := range k {
		row := s[j*d : (j+1)*d]
		Scale(row, row, decay)
		AddScaled(held, row, kj)
	}
	for p, x := range v {
		held[p] = float32((x - held[p]) * beta)
	}
	for j, kj := range k {
		row := s[j*d : (j+1)*d]
		AddScaled(row, held, kj)
		AddScaled(y, row, q[j])
	}
}
