// mix sums the vectors of each row by the row's own weights: Mix. An invocation takes a number of a sum.
struct Params {
	sums: u32,
	vectors: u32, // of a row
	size: u32, // of a vector
	plus: f32, // added to each weight
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>; // [rows, sums, vectors]
@group(0) @binding(4) var<storage, read> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.sums * p.size) {
		return;
	}
	let at = i / p.size * p.vectors; // of the sum's weights
	let first = i / (p.size * p.sums) * p.vectors * p.size + i % p.size;
	var y = 0.0;
	for (var j = 0u; j < p.vectors; j++) {
		y = fma(x[first + j * p.size], weights[at + j] + p.plus, y);
	}
	out[i] = y;
}
