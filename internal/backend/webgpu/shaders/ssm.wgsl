// ssm is Mamba 2's selective scan: SSMScan. An invocation takes a number of a head
// through all rows, with its row of the state.
struct Params {
	heads: u32,
	size: u32, // of a head
	groups: u32, // of b and c
	n: u32, // of a group
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, heads, size, n]
@group(0) @binding(4) var<storage, read> rows: array<vec2u>; // slot and position
@group(0) @binding(5) var<storage, read> x: array<f32>;
@group(0) @binding(6) var<storage, read> dt: array<f32>;
@group(0) @binding(7) var<storage, read> b: array<f32>;
@group(0) @binding(8) var<storage, read> c: array<f32>;
@group(0) @binding(9) var<storage, read> weights: array<f32>; // a, the bias of dt and d, [heads] each

{{template "softplus.wgsl"}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let width = p.heads * p.size;
	if (i >= width) {
		return;
	}
	let h = i / p.size;
	let g = h * p.groups / p.heads;
	for (var t = 0u; t < step.rows; t++) {
		let v = x[t * width + i];
		let len = softplus(dt[t * p.heads + h] + weights[p.heads + h]);
		let decay = exp_f(weights[h] * len);
		let at = (rows[t].x * width + i) * p.n;
		let first = (t * p.groups + g) * p.n;
		var y = 0.0;
		for (var j = 0u; j < p.n; j++) {
			var s = 0.0;
			if (rows[t].y > 0u) {
				s = state[at + j];
			}
			s = fma(len * v, b[first + j], s * decay);
			state[at + j] = s;
			y = fma(s, c[first + j], y);
		}
		out[t * width + i] = y + weights[2u * p.heads + h] * v;
	}
}
