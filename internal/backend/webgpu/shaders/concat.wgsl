// concat puts vectors of x and y side by side: Concat.
struct Params {
	size: u32, // of a vector of the result
	first: u32, // of one of x
	vectors: u32, // of a row
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> y: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.vectors * p.size) {
		return;
	}
	let v = i / p.size;
	let j = i % p.size;
	if (j < p.first) {
		out[i] = x[v * p.first + j];
	} else {
		out[i] = y[v * (p.size - p.first) + j - p.first];
	}
}
