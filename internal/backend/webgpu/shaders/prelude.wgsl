// What all kernels share. Kernels are Go templates with few parameters: what differs
// between variants; sizes are in Params.
//
// WGSL lets a compiler assume that there are no NaNs and infinities, and gives exp,
// tanh and the conversions to 16 bits wide bounds. So NaNs are told by their bits, and
// these functions are our own, within 2 units in the last place.

// GX is how many workgroups a dispatch has along x when it needs more than that.
const GX: u32 = 32768u;

// Step is what a step has of rows, or of outputs for the nodes behind Rows.
struct Step {
	rows: u32,
	top: u32, // how many of the likeliest tokens are wanted of each
}

fn is_nan(x: f32) -> bool {
	return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// exp_f is e^x. Results below 2^-126 are 0.
fn exp_f(x: f32) -> f32 {
	if (x > 88.8) {
		return bitcast<f32>(0x7f800000u | (bitcast<u32>(x) & 0u));
	}
	if (x < -87.33) {
		return 0.0;
	}
	let n = round(x * 1.44269504);
	let r = fma(n, 2.12194440e-4, x - n * 0.693359375);
	var p = fma(1.9875691500e-4, r, 1.3981999507e-3);
	p = fma(p, r, 8.3334519073e-3);
	p = fma(p, r, 4.1665795894e-2);
	p = fma(p, r, 1.6666665459e-1);
	p = fma(p, r, 5.0000001201e-1);
	p = fma(p * r, r, r) + 1.0;
	// 2^n in two factors, since n may be 128
	let half_n = i32(n) / 2;
	let rest = i32(n) - half_n;
	return p * bitcast<f32>(u32(half_n + 127) << 23u) * bitcast<f32>(u32(rest + 127) << 23u);
}

fn tanh_f(x: f32) -> f32 {
	let a = abs(x);
	if (a < 0.625) {
		let z = x * x;
		var p = fma(-5.70498872745e-3, z, 2.06390887954e-2);
		p = fma(p, z, -5.37397155531e-2);
		p = fma(p, z, 1.33314422036e-1);
		p = fma(p, z, -3.33332819422e-1);
		return fma(x * z, p, x);
	}
	let t = 1.0 - 2.0 / (exp_f(2.0 * a) + 1.0);
	return select(t, -t, x < 0.0);
}

// exp_less is e^min(x, -1e-6) - 1 - x, and 0 for positive x, also where the GPU takes subnormal numbers for 0.
fn exp_less(x: f32) -> f32 {
	let bits = bitcast<i32>(x);
	if (bits > 0 && bits <= 0x7f800000) {
		return 0.0;
	}
	if (x > -1e-6) {
		return -9.999995e-7 - x;
	}
	if (x > -1.0) {
		var p = fma(2.5052108e-8, x, 2.7557319e-7);
		p = fma(p, x, 2.7557319e-6);
		p = fma(p, x, 2.4801587e-5);
		p = fma(p, x, 1.9841270e-4);
		p = fma(p, x, 1.3888889e-3);
		p = fma(p, x, 8.3333333e-3);
		p = fma(p, x, 4.1666667e-2);
		p = fma(p, x, 1.6666667e-1);
		return x * x * fma(p, x, 0.5);
	}
	return exp_f(x) - 1.0 - x;
}

fn silu(x: f32) -> f32 {
	return x / (1.0 + exp_f(-x));
}

// gelu_tanh is x/2·(1 + tanh(u)), which is x·sigmoid(2u).
fn gelu_tanh(x: f32) -> f32 {
	let u = 0.7978845608 * fma(0.044715 * x * x, x, x);
	return x / (1.0 + exp_f(-2.0 * u));
}

// gelu_erf is max(x, 0) - |x|·(the normal distribution's tail behind |x|), the tail being
// e^(-x²/2) times a polynomial, as in simd.GeluErf.
fn gelu_erf(x: f32) -> f32 {
	let a = min(abs(x), 20.0);
	let t = 2.0 / fma(0.3, a, 1.0) - 1.0;
	var p = fma(1.50281194e-4, t, -1.22230878e-4);
	p = fma(p, t, -1.48187287e-3);
	p = fma(p, t, -3.12124874e-4);
	p = fma(p, t, 1.47846648e-2);
	p = fma(p, t, 5.71560673e-2);
	p = fma(p, t, 1.25564918e-1);
	p = fma(p, t, 1.9327502e-1);
	p = fma(p, t, 1.10985301e-1);
	let y = max(x, 0.0) - a * (exp_f(-0.5 * a * a) * p);
	return select(y, x * exp_f(-abs(x)), is_nan(x) || x == bitcast<f32>(0xff800000u | (bitcast<u32>(x) & 0u)));
}

fn relu_squared(x: f32) -> f32 {
	let y = select(max(x, 0.0), x, is_nan(x));
	return y * y;
}

fn sigmoid(x: f32) -> f32 {
	return 1.0 / (1.0 + exp_f(-x));
}

// from_half is the value of the binary16 in the low bits of h.
fn from_half(h: u32) -> f32 {
	let e = (h >> 10u) & 31u;
	let m = h & 1023u;
	var v = bitcast<f32>(((e + 112u) << 23u) | (m << 13u));
	if (e == 0u) {
		v = f32(m) * 5.9604644775390625e-8;
	}
	if (e == 31u) {
		v = bitcast<f32>(0x7f800000u | (m << 13u));
	}
	return select(v, -v, (h & 0x8000u) != 0u);
}

// halves is from_half of both halves of a word.
fn halves(word: u32) -> vec2f {
	let a = vec2u(word << 13u, word >> 3u) & vec2u(0x0fffe000u);
	var v = bitcast<vec2<f32>>(a + vec2u(0x38000000u));
	v = select(v, bitcast<vec2<f32>>(a + vec2u(0x38800000u)) - vec2f(6.103515625e-5), a < vec2u(0x00800000u));
	v = select(v, bitcast<vec2<f32>>(a | vec2u(0x7f800000u)), a >= vec2u(0x0f800000u));
	return bitcast<vec2<f32>>(bitcast<vec2<u32>>(v) | (vec2u(word << 16u, word) & vec2u(0x80000000u)));
}

// to_half rounds to the nearest binary16, of two the even one.
fn to_half(x: f32) -> u32 {
	let b = bitcast<u32>(x);
	let sign = (b >> 16u) & 0x8000u;
	let a = b & 0x7fffffffu;
	if (a > 0x7f800000u) {
		return sign | 0x7e00u;
	}
	if (a >= 0x477ff000u) {
		return sign | 0x7c00u;
	}
	if (a < 0x38800000u) {
		return sign | u32(round(bitcast<f32>(a) * 16777216.0));
	}
	return sign | ((a + 0xfffu + ((a >> 13u) & 1u) - 0x38000000u) >> 13u);
}
