// order copies rows with their columns in the order of a weight's codes{{if .Experts}}: for each choice, of
// the expert's matrix{{end}}.
struct Params {
	k: u32, // length of a row
{{- if .Experts}}
	choices: u32, // experts of a row
	share: u32, // how many choices read one row of x
{{- end}}
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> columns: array<u32>; // {{if .Experts}}[experts, k]{{else}}[k]{{end}}
{{- if .Experts}}
@group(0) @binding(5) var<storage, read> routes: array<f32>;
{{- end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let row = i / p.k;
	if (row >= step.rows{{if .Experts}} * p.choices{{end}}) {
		return;
	}
{{- if .Experts}}
	let at = u32(routes[2u * row]) * p.k + i % p.k;
	out[i] = x[row / p.share * p.k + columns[at]];
{{- else}}
	out[i] = x[row * p.k + columns[i % p.k]];
{{- end}}
}
