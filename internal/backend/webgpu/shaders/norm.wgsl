// norm divides vectors by their root mean square: RMSNorm. A workgroup takes one.
struct Params {
	size: u32, // of a vector
	vectors: u32, // of a row
	eps: f32,
	offset: f32, // is added to the weight
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
{{if .Weight}}@group(0) @binding(4) var<storage, read> w: array<f32>;{{end}}

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let v = wg.y * GX + wg.x;
	if (v >= step.rows * p.vectors) {
		return;
	}
	let at = v * p.size;
	var s = 0.0;
	for (var i = lane; i < p.size; i += 64u) {
		s += x[at + i] * x[at + i];
	}
	sums[lane] = s;
	for (var n = 32u; n > 0u; n /= 2u) {
		workgroupBarrier();
		if (lane < n) {
			sums[lane] += sums[lane + n];
		}
	}
	workgroupBarrier();
	let r = 1.0 / sqrt(sums[0] / f32(p.size) + p.eps);
	for (var i = lane; i < p.size; i += 64u) {
		out[at + i] = x[at + i] * r{{if .Weight}} * (p.offset + w[i]){{end}};
	}
}
