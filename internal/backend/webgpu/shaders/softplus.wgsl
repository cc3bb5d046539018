// softplus is log(1 + e^x), as simd.Softplus.
fn softplus(x: f32) -> f32 {
	let u = exp_f(-abs(x));
	let s = u / (2.0 + u);
	let z = s * s;
	var q = fma(1.0 / 17.0, z, 1.0 / 15.0);
	q = fma(q, z, 1.0 / 13.0);
	q = fma(q, z, 1.0 / 11.0);
	q = fma(q, z, 1.0 / 9.0);
	q = fma(q, z, 1.0 / 7.0);
	q = fma(q, z, 1.0 / 5.0);
	q = fma(q, z, 1.0 / 3.0);
	q = fma(q, z, 1.0);
	return max(x, 0.0) + 2.0 * s * q;
}
