// conv is a causal convolution of each channel over its last inputs: Conv. An invocation
// takes a channel through all rows; its state is the inputs before the page, the oldest first.
struct Params {
	size: u32, // channels
	inputs: u32, // that a result is made of
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, inputs-1, size]
@group(0) @binding(4) var<storage, read_write> kept: array<f32>; // [page, 64, size]
@group(0) @binding(5) var<storage, read> rows: array<vec4u>; // slot, page, flags and position
@group(0) @binding(6) var<storage, read> x: array<f32>;
@group(0) @binding(7) var<storage, read> weights: array<f32>; // [size, inputs]{{if .Bias}}, then the bias{{end}}

{{template "pieces.wgsl"}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let c = (wg.y * GX + wg.x) * 64u + lane;
	if (c >= p.size) {
		return;
	}
	let before = p.inputs - 1u;
	for (var t = 0u; t < step.rows; t++) {
		let r = rows[t];
		let at = r.x * before * p.size + c;
		let page = r.y * 64u * p.size + c;
		let place = r.w % 64u;
		for (var j = 0u; j < before && (r.z & ENDS) != 0u; j++) {
			state[at + j * p.size] = kept[page + (64u - before + j) * p.size];
		}
		kept[page + place * p.size] = x[t * p.size + c];
		var y = 0.0;
		for (var j = 0u; j < p.inputs; j++) {
			var v = 0.0;
			if (place + j >= before) {
				v = kept[page + (place + j - before) * p.size];
			} else if (r.w >= 64u) {
				v = state[at + (place + j) * p.size];
			}
			y = fma(weights[c * p.inputs + j], v, y);
		}
		out[t * p.size + c] = y{{if .Bias}} + weights[p.size * p.inputs + c]{{end}};
	}
}
