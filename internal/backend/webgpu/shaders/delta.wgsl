// delta is the scan of the gated delta rule: DeltaScan. An invocation takes a number of
// a head through all rows, with its column of the state.
struct Params {
	heads: u32,
	size: u32, // of a head
	groups: u32, // of q and k
	n: u32, // of a group
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, heads, n, size]
@group(0) @binding(4) var<storage, read> rows: array<u32>; // the decays and biases of heads, then slot and position of each row
@group(0) @binding(5) var<storage, read> q: array<f32>;
@group(0) @binding(6) var<storage, read> k: array<f32>;
@group(0) @binding(7) var<storage, read> v: array<f32>;
@group(0) @binding(8) var<storage, read> a: array<f32>;
@group(0) @binding(9) var<storage, read> beta: array<f32>;

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
		let slot = rows[2u * (p.heads + t)];
		let fresh = rows[2u * (p.heads + t) + 1u] == 0u;
		let one = t * p.heads + h;
		let decay = exp_f(bitcast<f32>(rows[h]) * softplus(a[one] + bitcast<f32>(rows[p.heads + h])));
		let by = 1.0 / (1.0 + exp_f(-beta[one]));
		let at = (slot * p.heads + h) * p.n * p.size + i % p.size;
		let first = (t * p.groups + g) * p.n;
		var kept = 0.0;
		for (var j = 0u; j < p.n; j++) {
			if (fresh) {
				state[at + j * p.size] = 0.0;
			}
			let s = state[at + j * p.size] * decay;
			state[at + j * p.size] = s;
			kept = fma(s, k[first + j], kept);
		}
		let d = by * (v[t * width + i] - kept);
		var y = 0.0;
		for (var j = 0u; j < p.n; j++) {
			let s = fma(k[first + j], d, state[at + j * p.size]);
			state[at + j * p.size] = s;
			y = fma(s, q[first + j], y);
		}
		out[t * width + i] = y;
	}
}
