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
	let size = {{.Quads}}u;
	let at = v * size;
	var s = 0.0;
{{- range $k := seq .Per}}
	let i{{$k}} = lane + {{mul $k $.Threads}}u;
	var x{{$k}} = {{$.Of}}(0.0); // all is read before invocations wait for each other
{{- range $b := $.Others}}
	var {{$b}}_{{$k}} = {{$.Of}}(0.0);
{{- end}}
	if (i{{$k}} < size) {
		x{{$k}} = x[at + i{{$k}}];
{{- range $b := $.Others}}
		{{$b}}_{{$k}} = {{$b}}[{{if eq $b "more"}}at + {{end}}i{{$k}}];
{{- end}}
	}
	s = square(x{{$k}}, s);
{{- end}}
	let r = rms(lane, s, p.size, p.eps);
{{- if .Next}}
	var t = 0.0;
{{- end}}
{{- range $k := seq .Per}}
	let e{{$k}} = x{{$k}} * r{{if $.Weight}} * ({{$.Of}}(p.offset) + w_{{$k}}){{end}};
{{- if $.Add}}
	let h{{$k}} = (more_{{$k}} + {{if eq $.Of "vec4f"}}bitcast<vec4<f32>>(bitcast<vec4<u32>>(e{{$k}}) + vec4u(p.zero)){{else}}bitcast<f32>(bitcast<u32>(e{{$k}}) + p.zero){{end}}){{if $.Scale}} * scale[0]{{end}};
{{- end}}
	if (i{{$k}} < size) {
		out[at + i{{$k}}] = {{if $.Add}}h{{else}}e{{end}}{{$k}};
{{- if $.Next}}
		t = square(h{{$k}}, t);
{{- end}}
	}
{{- end}}
{{- if .Next}}
	let r2 = rms(lane, t, p.size, p.next_eps);
{{- range $k := seq .Per}}
	if (i{{$k}} < size) {
		out2[at + i{{$k}}] = h{{$k}} * r2 * ({{$.Of}}(p.next_offset) + w2_{{$k}});
	}
{{- end}}
{{- end}}
}
