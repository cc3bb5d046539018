// conv is a causal convolution of each channel over its last inputs: Conv. An invocation
// takes a channel through all rows; its state is the inputs before, the oldest first.
struct Params {
	size: u32, // channels
	inputs: u32, // that a result is made of
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, inputs-1, size]
@group(0) @binding(4) var<storage, read> rows: array<vec2u>; // slot and position
@group(0) @binding(5) var<storage, read> x: array<f32>;
@group(0) @binding(6) var<storage, read> weights: array<f32>; // [size, inputs]{{if .Bias}}, then the bias{{end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let c = (wg.y * GX + wg.x) * 64u + lane;
	if (c >= p.size) {
		return;
	}
	let kept = p.inputs - 1u;
	for (var t = 0u; t < step.rows; t++) {
		let at = rows[t].x * kept * p.size + c;
		let v = x[t * p.size + c];
		var y = 0.0;
		for (var j = 0u; j < kept; j++) {
			if (rows[t].y == 0u) {
				state[at + j * p.size] = 0.0;
			}
			y = fma(weights[c * p.inputs + j], state[at + j * p.size], y);
		}
		y = fma(weights[c * p.inputs + kept], v, y);
		for (var j = 1u; j < kept; j++) {
			state[at + (j - 1u) * p.size] = state[at + j * p.size];
		}
		state[at + (kept - 1u) * p.size] = v;
		out[t * p.size + c] = y{{if .Bias}} + weights[p.size * p.inputs + c]{{end}};
	}
}
