{{$last := pick (or .Add .Gate) 6 (add 4 .Outs) -}}
// What the kernels of products read and write.
struct Params {
	n: u32, // rows of the weight that lie here
	k: u32, // their length
{{- if gt .Outs 1}}
	second: u32, // row of the weight with which the second result begins
	third: u32, // and the third
{{- else}}
	column: u32, // of the result, of the first of them
	stride: u32, // of the result's rows
{{- end}}
{{- if .Gate}}
	pitch: u32, // of the rows of more
	begin: u32, // of what is read of them
{{- end}}
{{- if .Halves}}
	up: f32, // what weights are multiplied by, a power of two
	down: f32, // its inverse
{{- end}}
{{- if .Chain.Quads}}
	zero: u32, // see norm.wgsl
	eps: f32,
	offset: f32,
	next_eps: f32,
	next_offset: f32,
{{- end}}
{{- if .Experts}}
	first: u32, // expert whose matrix lies here
	count: u32, // of experts whose matrices do
	each: u32, // words of a matrix
	choices: u32, // experts of a row
	share: u32, // how many choices read one row of x
{{- end}}
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<{{if .Halves}}{{pick .Views "f16" "vec4u"}}{{else if .Odd}}f32{{else}}vec4f{{end}}>;
@group(0) @binding(4) var<storage, read> w: array<vec4u>;
{{- if .Experts}}
@group(0) @binding(5) var<storage, read> routes: array<f32>;
{{- if .Biased}}
@group(0) @binding(6) var<storage, read> bias: array<f32>; // [experts, n]
{{- end}}
{{- end}}
{{- if or .Add .Gate}}
@group(0) @binding(5) var<storage, read> more: array<f32>;
{{- end}}
{{- if gt .Outs 1}}
@group(0) @binding(5) var<storage, read_write> out2: array<f32>;
{{- end}}
{{- if gt .Outs 2}}
@group(0) @binding(6) var<storage, read_write> out3: array<f32>;
{{- end}}
{{- if .Chain.Quads}}
@group(0) @binding({{$last}}) var<storage, read> weights: array<vec4f>; // of the chain
{{- if .Chain.Add}}
@group(0) @binding({{add $last 1}}) var<storage, read> other: array<vec4f>;
@group(0) @binding({{add $last 2}}) var<storage, read_write> carried: array<vec4f>; // its sum
{{- end}}
{{- end}}

{{if not .Halves}}
// quad is 4 elements of a row of activations, which begins at element row.
fn quad(row: u32, q: u32) -> vec4f {
{{- if .Chain.Quads}}
	return normed[q];
{{- else if .Odd}}
	let at = row + 4u * q;
	var v = vec4f(0.0);
	if (4u * q < p.k) { v.x = x[at]; }
	if (4u * q + 1u < p.k) { v.y = x[at + 1u]; }
	if (4u * q + 2u < p.k) { v.z = x[at + 2u]; }
	if (4u * q + 3u < p.k) { v.w = x[at + 3u]; }
	return v;
{{- else if .Plain}}
	if (4u * q >= p.k) {
		return vec4f(0.0);
	}
	return x[(row >> 2u) + q];
{{- else}}
	return x[(row >> 2u) + q];
{{- end}}
}
{{end}}
