// pick copies a part of each row: View; with Gather, of the rows whose logits are
// wanted: Rows.
struct Params {
	size: u32, // of the part
	width: u32, // of the input's rows
	offset: u32, // of the part in them
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
{{if .Gather}}@group(0) @binding(4) var<storage, read> rows: array<u32>;{{end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.size) {
		return;
	}
	out[i] = x[{{if .Gather}}rows[i / p.size]{{else}}i / p.size{{end}} * p.width + p.offset + i % p.size];
}
