// route picks the best experts of each row: Route. Of equal scores the lower index is
// the better one, and a NaN is the lowest score. An invocation takes one row.
struct Params {
	experts: u32,
	choices: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, choices, 2]: index and weight
@group(0) @binding(3) var<storage, read> scores: array<f32>;
@group(0) @binding(4) var<storage, read> scale: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let row = (wg.y * GX + wg.x) * 64u + lane;
	if (row >= step.rows) {
		return;
	}
	let at = row * p.experts;
	let to = row * p.choices * 2u;
	var sum = 0.0;
	var top = 0.0;
	for (var j = 0u; j < p.choices; j++) {
		var best = p.experts; // none
		var value = 0.0;
		for (var e = 0u; e < p.experts; e++) {
			var taken = false;
			for (var t = 0u; t < j; t++) {
				taken = taken || u32(out[to + 2u * t]) == e;
			}
			let s = scores[at + e];
			if (!taken && (best == p.experts || s > value || (is_nan(value) && !is_nan(s)))) {
				best = e;
				value = s;
			}
		}
		if (j == 0u) {
			top = value;
		}
		let weight = exp_f(value - top);
		sum += weight;
		out[to + 2u * j] = f32(best);
		out[to + 2u * j + 1u] = weight;
	}
	for (var j = 0u; j < p.choices; j++) {
		out[to + 2u * j + 1u] = out[to + 2u * j + 1u] / sum * scale[u32(out[to + 2u * j])];
	}
}
