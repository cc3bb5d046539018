// layernorm {{if .Above}}gives the excess over the mean and eps deviations: Above.
{{- else if .Match}}scales a vector to the root mean square of another: Match.
{{- else if .Mean}}subtracts a vector's mean and divides by the standard deviation: LayerNorm.
{{- else}}divides a vector by its length: L2Norm.{{end}} A workgroup takes one vector.
struct Params {
	vectors: u32, // of a row
	size: u32,
	eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
{{- if .Match}}
@group(0) @binding(4) var<storage, read> z: array<f32>;
{{- end}}
{{- if .Weight}}
@group(0) @binding(4) var<storage, read> weights: array<f32>; // {{if .Bias}}and the bias behind it{{else}}and no bias{{end}}
{{- end}}

var<workgroup> sums: array<f32, 64>;

// total is the sum of what the workgroup's invocations have.
fn total(lane: u32, s: f32) -> f32 {
	workgroupBarrier();
	sums[lane] = s;
	workgroupBarrier();
	var t = 0.0;
	for (var i = 0u; i < 64u; i++) {
		t += sums[i];
	}
	return t;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let v = wg.y * GX + wg.x;
	if (v >= step.rows * p.vectors) {
		return;
	}
	let at = v * p.size;
{{- if .Mean}}
	var s = 0.0;
	for (var i = lane; i < p.size; i += 64u) {
		s += x[at + i];
	}
	let mean = total(lane, s) / f32(p.size);
{{- end}}
	var q = 0.0;
	for (var i = lane; i < p.size; i += 64u) {
		let c = x[at + i]{{if .Mean}} - mean{{end}};
		q = fma(c, c, q);
	}
{{- if .Match}}
	var like = 0.0;
	for (var i = lane; i < p.size; i += 64u) {
		let c = z[v / p.vectors * p.size + i];
		like = fma(c, c, like);
	}
	let by = sqrt(total(lane, like) / f32(p.size));
	let r = 1.0 / sqrt(max(total(lane, q) / f32(p.size), p.eps));
	for (var i = lane; i < p.size; i += 64u) {
		out[at + i] = x[at + i] * by * r;
	}
{{- else if .Above}}
	let least = p.eps * sqrt(total(lane, q) / f32(p.size));
	for (var i = lane; i < p.size; i += 64u) {
		out[at + i] = max(0.0, x[at + i] - mean - least);
	}
{{- else}}
	let r = 1.0 / sqrt(total(lane, q){{if .Mean}} / f32(p.size){{end}} + p.eps);
	for (var i = lane; i < p.size; i += 64u) {
		out[at + i] = (x[at + i]{{if .Mean}} - mean{{end}}) * r{{if .Weight}} * weights[i]{{end}}{{if .Bias}} + weights[p.size + i]{{end}};
	}
{{- end}}
}
