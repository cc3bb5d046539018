// embed reads the rows of a table that belong to the tokens that top has chosen: Embed. An
// invocation takes eight elements.
struct Params {
	n: u32, // rows of the table that lie here
	k: u32, // their length
	first: u32, // the first of them
	rows: u32, // of the whole table
	scale: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> chosen: array<vec2u>;
@group(0) @binding(4) var<storage, read> w: array<vec4u>;

{{template "weight.wgsl" .}}
{{template "pair" .}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let row = i / (4u * units());
	if (row >= step.rows) {
		return;
	}
	let token = min(chosen[row].x, p.rows - 1u);
	if (token < p.first || token >= p.first + p.n) {
		return;
	}
	let at = i % (4u * units());
	let n = token - p.first;
	let u = at >> 2u;
	let j = at & 3u;
	let v = pair(n, u, j{{if .Bits}}, scale(0u, n, u, {{if eq .Group 16}}j >> 1u{{else}}0u{{end}}){{end}});
{{- range $e := 8}}
	if (8u * at + {{$e}}u < p.k) {
		out[row * p.k + 8u * at + {{$e}}u] = v[{{div $e 4}}].{{slice "xyzwxyzw" $e (add $e 1)}} * p.scale;
	}
{{- end}}
}
