// pool makes one row of several: {{if .Mean}}their mean{{else if .Woven}}each feature of all{{else}}the first, or all{{end}}. Pool.
struct Params {
	size: u32, // of a row
	width: u32, // of a row of x
	count: u32, // rows woven
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<vec2u>; // the first row and the last

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.size) {
		return;
	}
	let span = spans[i / p.size];
	let j = i % p.size;
{{- if .Woven}}
	out[i] = x[(span.x + j % p.count) * p.width + j / p.count];
{{- else}}
	var y = x[span.x * p.width + j];
{{- if .Mean}}
	for (var r = span.x + 1u; r <= span.y; r++) {
		y += x[r * p.size + j];
	}
	y /= f32(span.y - span.x + 1u);
{{- end}}
	out[i] = y;
{{- end}}
}
