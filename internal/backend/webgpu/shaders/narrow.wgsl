// narrow rounds rows to binary16, each times a power of two that takes its largest element
// to 2^13 or above: nothing is then too large, and what is small keeps its bits. A row of y is
// that factor's inverse, in a word of four, and the elements, with zeros up to a multiple of
// {{.Pad}}. A workgroup takes a row.
struct Params {
	k: u32, // length of a row
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> y: array<vec4u>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;

var<workgroup> largest: array<u32, 256>;

fn halves_of(v: vec4f) -> vec2u {
	return vec2u(to_half(v.x) | (to_half(v.y) << 16u), to_half(v.z) | (to_half(v.w) << 16u));
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let row = wg.y * GX + wg.x;
	if (row >= step.rows) {
		return;
	}
	let quads = p.k >> 2u;
	var most = 0u;
	for (var i = t; i < quads; i += 256u) {
		let b = bitcast<vec4<u32>>(x[row * quads + i]) & vec4u(0x7fffffffu);
		most = max(max(most, max(b.x, b.y)), max(b.z, b.w));
	}
	largest[t] = most;
	workgroupBarrier();
	for (var n = 128u; n > 0u; n >>= 1u) {
		if (t < n) {
			largest[t] = max(largest[t], largest[t + n]);
		}
		workgroupBarrier();
	}
	// the exponents of the factor and of its inverse; a row of zeros, or with one that is
	// not finite, stays as it is
	let e = largest[0] >> 23u;
	var up = 1.0;
	var down = 1.0;
	if (e > 0u && e < 255u) {
		up = bitcast<f32>((267u - max(e, 14u)) << 23u);
		down = bitcast<f32>((max(e, 14u) - 13u) << 23u);
	}
	let stride = 1u + (p.k + {{add .Pad -1}}u) / {{.Pad}}u * {{div .Pad 8}}u;
	if (t == 0u) {
		y[row * stride] = vec4u(bitcast<u32>(down), 0u, 0u, 0u);
	}
	for (var i = t; i < stride - 1u; i += 256u) {
		var v = vec4u(0u);
		if (2u * i < quads) {
			let a = halves_of(x[row * quads + 2u * i] * up);
			let b = halves_of(x[row * quads + 2u * i + 1u] * up);
			v = vec4u(a.x, a.y, b.x, b.y);
		}
		y[row * stride + 1u + i] = v;
	}
}
