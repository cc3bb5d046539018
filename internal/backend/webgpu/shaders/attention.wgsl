// attention lets a head of a row attend to its sequence, page by page of 64
// positions, with a running maximum and sum: Attention. A workgroup takes one head of
// one row, so what a head computes follows from its position alone.
struct Params {
	heads: u32,
	kv_heads: u32,
	window: u32, // positions that are seen, the row's included; 0 for all
	scale: f32,
}

const DIM: u32 = {{.Dim}}u;
const PAGE: u32 = 64u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read> keys: array<u32>;
@group(0) @binding(5) var<storage, read> values: array<u32>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go

var<workgroup> query: array<f32, {{.Dim}}>;
var<workgroup> weights: array<f32, 64>;

fn key(i: u32) -> f32 {
	return {{if .F16}}from_half((keys[i / 2u] >> (i % 2u * 16u)) & 0xffffu){{else}}bitcast<f32>(keys[i]){{end}};
}

fn val(i: u32) -> f32 {
	return {{if .F16}}from_half((values[i / 2u] >> (i % 2u * 16u)) & 0xffffu){{else}}bitcast<f32>(values[i]){{end}};
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = wg.y * GX + wg.x;
	if (i >= step.rows * p.heads) {
		return;
	}
	let row = i / p.heads;
	let head = i % p.heads * p.kv_heads / p.heads * DIM;
	let width = {{if .F16}}(p.kv_heads * DIM + 1u) / 2u * 2u{{else}}p.kv_heads * DIM{{end}};
	let pages = table[4u * row + 1u];
	let from_page = table[4u * row + 2u];
	let pos = table[4u * row + 3u];
	for (var d = lane; d < DIM; d += 64u) {
		query[d] = q[i * DIM + d];
	}
	var first = 0u;
	if (p.window > 0u && pos + 1u > p.window) {
		first = pos + 1u - p.window;
	}
	var acc = array<f32, {{ceil .Dim 64}}>();
	var top = -3.402823466e38;
	var sum = 0.0;
	for (var b = first / PAGE; b <= pos / PAGE; b++) {
		workgroupBarrier();
		let slot = table[pages + b - from_page] * PAGE;
		let begin = max(first, b * PAGE) - b * PAGE;
		let end = min(pos - b * PAGE + 1u, PAGE);
		if (lane >= begin && lane < end) {
			var s = 0.0;
			for (var d = 0u; d < DIM; d++) {
				s += query[d] * key((slot + lane) * width + head + d);
			}
			weights[lane] = s * p.scale;
		}
		workgroupBarrier();
		var highest = top;
		for (var j = begin; j < end; j++) {
			highest = max(highest, weights[j]);
		}
		workgroupBarrier();
		if (lane >= begin && lane < end) {
			weights[lane] = exp_f(weights[lane] - highest);
		}
		workgroupBarrier();
		let shrink = exp_f(top - highest);
		top = highest;
		sum *= shrink;
		for (var c = 0u; c < {{ceil .Dim 64}}u; c++) {
			acc[c] *= shrink;
		}
		for (var j = begin; j < end; j++) {
			let weight = weights[j];
			sum += weight;
			for (var c = 0u; c < {{ceil .Dim 64}}u; c++) {
				let d = c * 64u + lane;
				if (d < DIM) {
					acc[c] += weight * val((slot + j) * width + head + d);
				}
			}
		}
	}
	for (var c = 0u; c < {{ceil .Dim 64}}u; c++) {
		let d = c * 64u + lane;
		if (d < DIM) {
			out[i * DIM + d] = acc[c] / sum;
		}
	}
}
