// slice copies a part of each vector: Slice.
struct Params {
	size: u32, // of the part
	vectors: u32, // of a row
	width: u32, // of a vector of the input
	offset: u32, // of the part in it
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.vectors * p.size) {
		return;
	}
	out[i] = x[i / p.size * p.width + p.offset + i % p.size];
}
