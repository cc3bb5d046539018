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
	let size = p.size{{if eq .Of "vec4f"}} >> 2u{{end}};
	let at = n * size;
	var s = 0.0;
	for (var i = lane; i < size; i += {{.Threads}}u) {
		s = square(x[at + i], s);
	}
	let r = rms(lane, s, p.size, p.eps);
	for (var i = lane; i < size; i += {{.Threads}}u) {
		keep(i, x[at + i] * r{{if .Weight}} * ({{.Of}}(p.offset) + w[i]){{end}});
	}
	workgroupBarrier();
{{- if not .Store}}
	for (var i = lane; i < p.size; i += {{.Threads}}u) {
		out[n * p.size + i] = turned(row, i);
	}
}
{{- else}}
	let words = p.size{{if .F16}} >> 1u{{end}};
	let to = (table[4u * row] * p.heads + n % p.heads) * words;
	for (var i = lane; i < words; i += {{.Threads}}u) {
		keys[to + i] = {{if .F16}}to_half(turned(row, 2u * i)) | (to_half(turned(row, 2u * i + 1u)) << 16u){{else}}bitcast<u32>(turned(row, i)){{end}};
	}
	workgroupBarrier();
{{- if .Values}}
	var z = 0.0;
	for (var i = lane; i < size; i += {{.Threads}}u) {
		z = square(v[at + i], z);
	}
	let by = rms(lane, z, p.size, p.value_eps);
{{- end}}
	for (var i = lane; i < size; i += {{.Threads}}u) {
		keep(i, v[at + i]{{if .Values}} * by{{end}});
	}
	workgroupBarrier();
	for (var i = lane; i < words; i += {{.Threads}}u) {
		values[to + i] = {{if .F16}}to_half(head[2u * i]) | (to_half(head[2u * i + 1u]) << 16u){{else}}bitcast<u32>(head[i]){{end}};
	}
}
{{- end}}
