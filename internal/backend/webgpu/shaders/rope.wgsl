// rope turns the pairs (i, i + size/2) of each head by the angles of its row's
// position, whose cosines and sines the host has made: RoPE.
struct Params {
	size: u32, // of a head
	heads: u32,
	pairs: u32, // that turn
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> turns: array<f32>; // [rows, 2, pairs]

fn size() -> u32 {
	return p.size;
}

{{template "turn" .}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let width = p.heads * p.size;
	if (i >= step.rows * width) {
		return;
	}
	out[i] = turn(i / width, i, x[i], x[other(i)]);
}
