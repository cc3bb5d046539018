// keep keeps numbers of a step's rows, as keys, in the last page of each sequence, for later steps. An invocation takes a number
// of a row.
struct Params {
	keys: u32, // numbers of a row's keys
	row: u32, // numbers of a row kept
	first: u32, // of the keys in the row
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> kept: array<f32>;
@group(0) @binding(3) var<storage, read> rows: array<vec4u>; // slot, page, flags and position
@group(0) @binding(4) var<storage, read> keys: array<f32>;

{{template "pieces.wgsl"}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.keys) {
		return;
	}
	let r = rows[i / p.keys];
	if ((r.z & LAST) != 0u) {
		kept[(r.y * 64u + r.w % 64u) * p.row + p.first + i % p.keys] = keys[i];
	}
}
