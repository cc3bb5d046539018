// combine sums what a row's experts have made{{if .Weighed}} by their weights{{end}}, in their order: the
// end of Experts.
struct Params {
	size: u32, // of a row
	choices: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> made: array<f32>; // [rows, choices, size]
{{- if .Weighed}}
@group(0) @binding(4) var<storage, read> routes: array<f32>;
{{- end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.size) {
		return;
	}
	let first = i / p.size * p.choices;
	var s = 0.0;
	for (var j = 0u; j < p.choices; j++) {
		s += {{if .Weighed}}routes[2u * (first + j) + 1u] * {{end}}made[(first + j) * p.size + i % p.size];
	}
	out[i] = s;
}
