// norm divides vectors by their root mean square: RMSNorm. A workgroup takes one.
{{- if .Add}}
// It adds another vector{{if .Scale}}, multiplies the sum by a number{{end}}{{if .Next}}, and divides what it has by its own
// root mean square{{end}}: Add{{if .Scale}}, Mul{{end}}{{if .Next}} and RMSNorm{{end}}.
{{- end}}
struct Params {
	vectors: u32, // of a row
	zero: u32, // which a compiler does not know: what it is added to is rounded
	eps: f32,
	offset: f32, // is added to the weight
	next_eps: f32,
	next_offset: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<{{.Of}}>;
@group(0) @binding(3) var<storage, read> x: array<{{.Of}}>;
{{- if .Weights}}
@group(0) @binding(4) var<storage, read> weights: array<{{.Of}}>; // of the norm, of the next one, and the scale
{{- end}}
{{- if .Add}}
@group(0) @binding({{if .Weights}}5{{else}}4{{end}}) var<storage, read> other: array<{{.Of}}>;
{{- end}}
{{- if .Next}}
@group(0) @binding(6) var<storage, read_write> out2: array<{{.Of}}>;
{{- end}}

{{template "chain.wgsl" .}}
@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let v = wg.y * GX + wg.x;
	if (v >= step.rows * p.vectors) {
		return;
	}
	let at = v * {{.Quads}}u;
{{- template "chain" .}}
{{- range $k := (ceil .Quads .Threads)}}
	if (i{{$k}} < {{$.Quads}}u) {
		out[at + i{{$k}}] = sum{{$k}};
{{- if $.Next}}
		out2[at + i{{$k}}] = next{{$k}};
{{- end}}
	}
{{- end}}
}
