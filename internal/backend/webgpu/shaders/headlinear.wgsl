// headlinear multiplies each head by the transpose of its own matrix: HeadLinear.
struct Params {
	heads: u32,
	size: u32, // of a head of the result
	k: u32, // of a head of x
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> w: array<f32>; // [heads, size, k]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let width = p.heads * p.size;
	if (i >= step.rows * width) {
		return;
	}
	let first = i / p.size * p.k;
	let row = i % width * p.k;
	var y = vec4f(0.0);
	for (var j = 0u; j < p.k; j++) {
		y[j & 3u] = fma(w[row + j], x[first + j], y[j & 3u]);
	}
	out[i] = (y.x + y.y) + (y.z + y.w);
}
