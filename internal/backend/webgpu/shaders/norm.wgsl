// norm divides vectors by their root mean square: RMSNorm. A workgroup takes one.
{{- if .Add}}
// It adds another vector{{if .Scale}}, multiplies the sum by a number{{end}}{{if .Next}}, and divides what it has by its own
// root mean square{{end}}: Add{{if .Scale}}, Mul{{end}}{{if .Next}} and RMSNorm{{end}}.
{{- end}}
struct Params {
	size: u32, // of a vector
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
{{- if .Weight}}
@group(0) @binding({{.Binding "w"}}) var<storage, read> w: array<{{.Of}}>;
{{- end}}
{{- if .Add}}
@group(0) @binding({{.Binding "more"}}) var<storage, read> more: array<{{.Of}}>;
{{- end}}
{{- if .Scale}}
@group(0) @binding({{.Binding "scale"}}) var<storage, read> scale: array<f32>;
{{- end}}
{{- if .Next}}
@group(0) @binding({{.Binding "out2"}}) var<storage, read_write> out2: array<{{.Of}}>;
@group(0) @binding({{.Binding "w2"}}) var<storage, read> w2: array<{{.Of}}>;
{{- end}}

{{template "rms.wgsl" .}}
@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let v = wg.y * GX + wg.x;
	if (v >= step.rows * p.vectors) {
		return;
	}
	let size = p.size{{if eq .Of "vec4f"}} >> 2u{{end}};
	let at = v * size;
	var s = 0.0;
	for (var i = lane; i < size; i += {{.Threads}}u) {
		s = square(x[at + i], s);
	}
	let r = rms(lane, s, p.size, p.eps);
{{- if .Next}}
	var t = 0.0;
{{- end}}
	for (var i = lane; i < size; i += {{.Threads}}u) {
		let e = x[at + i] * r{{if .Weight}} * ({{.Of}}(p.offset) + w[i]){{end}};
{{- if .Add}}
{{- if eq .Of "vec4f"}}
		let h = (more[at + i] + bitcast<vec4<f32>>(bitcast<vec4<u32>>(e) + vec4u(p.zero))){{if .Scale}} * scale[0]{{end}};
{{- else}}
		let h = (more[at + i] + bitcast<f32>(bitcast<u32>(e) + p.zero)){{if .Scale}} * scale[0]{{end}};
{{- end}}
		out[at + i] = h;
{{- if .Next}}
		t = square(h, t);
{{- end}}
{{- else}}
		out[at + i] = e;
{{- end}}
	}
{{- if .Next}}
	let r2 = rms(lane, t, p.size, p.next_eps);
	for (var i = lane; i < size; i += {{.Threads}}u) {
		out2[at + i] = out[at + i] * r2 * ({{.Of}}(p.next_offset) + w2[i]);
	}
{{- end}}
}
