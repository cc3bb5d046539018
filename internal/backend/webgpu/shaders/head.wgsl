// head divides heads by their root mean square and turns them as rope does: RMSNorm and
// RoPE{{if .Store}}, of keys, and StoreKV of these and of values{{if .Values}}, which are divided, too{{end}}{{end}}. A workgroup takes a head.
struct Params {
	size: u32, // of a head
	heads: u32, // of a row
	pairs: u32, // that turn
	eps: f32,
	offset: f32, // is added to the weight
	value_eps: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
{{- if .Store}}
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<u32>;
@group(0) @binding(4) var<storage, read> x: array<{{.Of}}>;
@group(0) @binding(5) var<storage, read> turns: array<f32>; // [rows, 2, pairs]
@group(0) @binding(6) var<storage, read> v: array<{{.Of}}>;
@group(0) @binding(7) var<storage, read> table: array<u32>; // see cache.go
{{- if .Weight}}
@group(0) @binding(8) var<storage, read> w: array<{{.Of}}>;
{{- end}}
{{- else}}
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<{{.Of}}>;
@group(0) @binding(4) var<storage, read> turns: array<f32>; // [rows, 2, pairs]
{{- if .Weight}}
@group(0) @binding(5) var<storage, read> w: array<{{.Of}}>;
{{- end}}
{{- end}}

{{template "rms.wgsl" .}}
var<workgroup> head: array<f32, {{.Dim}}>;

fn size() -> u32 {
	return p.size;
}

{{template "turn" .}}
// turned is element i of a row's head.
fn turned(row: u32, i: u32) -> f32 {
	return turn(row, i, head[i], head[other(i)]);
}

// keep puts {{if eq .Of "f32"}}an element{{else}}a quad{{end}} where the whole head is seen.
fn keep(i: u32, e: {{.Of}}) {
{{- if eq .Of "f32"}}
	head[i] = e;
{{- else}}
	head[4u * i] = e.x;
	head[4u * i + 1u] = e.y;
	head[4u * i + 2u] = e.z;
	head[4u * i + 3u] = e.w;
{{- end}}
}

@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let n = wg.y * GX + wg.x;
	let row = n / p.heads;
	if (row >= step.rows) {
		return;
	}
	let size = {{.Quads}}u;
	let at = n * size;
	var s = 0.0;
{{- if .Values}}
	var z = 0.0;
{{- end}}
{{- range $k := (ceil .Quads .Threads)}}
	let i{{$k}} = lane + {{mul $k $.Threads}}u;
	var x{{$k}} = {{$.Of}}(0.0); // all is read before invocations wait for each other
{{- if $.Weight}}
	var w{{$k}} = {{$.Of}}(0.0);
{{- end}}
{{- if $.Store}}
	var v{{$k}} = {{$.Of}}(0.0);
{{- end}}
	if (i{{$k}} < size) {
		x{{$k}} = x[at + i{{$k}}];
{{- if $.Weight}}
		w{{$k}} = w[i{{$k}}];
{{- end}}
{{- if $.Store}}
		v{{$k}} = v[at + i{{$k}}];
{{- end}}
	}
	s = square(x{{$k}}, s);
{{- if $.Values}}
	z = square(v{{$k}}, z);
{{- end}}
{{- end}}
	let r = rms(lane, s, p.size, p.eps);
{{- range $k := (ceil .Quads .Threads)}}
	if (i{{$k}} < size) {
		keep(i{{$k}}, x{{$k}} * r{{if $.Weight}} * ({{$.Of}}(p.offset) + w{{$k}}){{end}});
	}
{{- end}}
	workgroupBarrier();
{{- if not .Store}}
{{- range $k := (ceil .Dim .Threads)}}
	if (lane + {{mul $k $.Threads}}u < p.size) {
		out[n * p.size + lane + {{mul $k $.Threads}}u] = turned(row, lane + {{mul $k $.Threads}}u);
	}
{{- end}}
}
{{- else}}
	let words = p.size{{if .F16}} >> 1u{{end}};
	let to = (table[4u * row] * p.heads + n % p.heads) * words;
	for (var i = lane; i < words; i += {{.Threads}}u) {
		keys[to + i] = {{if .F16}}to_half(turned(row, 2u * i)) | (to_half(turned(row, 2u * i + 1u)) << 16u){{else}}bitcast<u32>(turned(row, i)){{end}};
	}
	workgroupBarrier();
{{- if .Values}}
	let by = rms(lane, z, p.size, p.value_eps);
{{- end}}
{{- range $k := (ceil .Quads .Threads)}}
	if (i{{$k}} < size) {
		keep(i{{$k}}, v{{$k}}{{if $.Values}} * by{{end}});
	}
{{- end}}
	workgroupBarrier();
	for (var i = lane; i < words; i += {{.Threads}}u) {
		values[to + i] = {{if .F16}}to_half(head[2u * i]) | (to_half(head[2u * i + 1u]) << 16u){{else}}bitcast<u32>(head[i]){{end}};
	}
}
{{- end}}
