// What the kernels of attention read and write, and what all of them compute alike. A
// page of 64 positions is a whole: its scores are taken relative to their own maximum, and
// what it gives is joined to what the pages before it gave, in order of position. A score
// is the sum of chains of fma over {{.Chunk}} elements of a head; what a page's values and its
// weights give, that of four chains over 16 positions each. So what a head computes follows
// from its position alone, whatever the kernel but flash.
struct Params {
	heads: u32,
	kv_heads: u32,
	window: u32, // positions that are seen, the row's included; 0 for all
	scale: f32,
{{- if .Capped}}
	cap: f32, // of scores
{{- end}}
{{- if .Chosen}}
	choices: u32, // of a row, at most
{{- end}}
{{- if or .Head.Quads .Turn}}
	size: u32, // these are as head.wgsl has them
	pairs: u32,
{{- end}}
{{- if .Head.Quads}}
	eps: f32,
	offset: f32,
{{- end}}
}

const DIM: u32 = {{.Dim}}u;
const VALUE_DIM: u32 = {{.ValueDim}}u; // elements of a head's values
const VALUE_STEP: u32 = {{pick .Latent .Dim .ValueDim}}u; // from those of one head to the next one's{{if .Latent}}: keys begin with them{{end}}
const PAGE: u32 = 64u;
const NONE: f32 = -3.402823466e38; // less than any score

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<{{pick .Vectors "vec4f" "f32"}}>;
@group(0) @binding(3) var<storage, read> q: array<{{pick .Vectors "vec4f" "f32"}}>;
@group(0) @binding(4) var<storage, {{pick .Turn "read_write" "read"}}> keys: array<{{pick (or .Vectors (eq (mod .Dim 8) 0)) "vec4u" "u32"}}>;
@group(0) @binding(5) var<storage, {{pick .Turn "read_write" "read"}}> values: array<{{pick .Vectors "vec4u" "u32"}}>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go
{{- if or .Head.Quads .Turn}}
@group(0) @binding(7) var<storage, read> turns: array<f32>; // [rows, 2, pairs]
{{- end}}
{{- if .Head.Quads}}
@group(0) @binding(8) var<storage, read> w: array<vec4f>;
{{- else if .Turn}}
@group(0) @binding(8) var<storage, read> k: array<f32>; // the row's
@group(0) @binding(9) var<storage, read> v: array<f32>;
{{- end}}
{{- if .Chosen}}
@group(0) @binding(7) var<storage, read> chosen: array<f32>; // [rows, choices]: positions, and -1 behind the last
{{- end}}
{{- if .Sinks}}
@group(0) @binding(7) var<storage, read> sinks: array<f32>; // a score more by head, without a value
{{- end}}

{{template "lowest" .}}
{{- if .Ahead}}
// newest is the last position that a row at position pos sees, of a sequence whose last is end.
fn newest(pos: u32, end: u32) -> u32 {
	return min(end, select(end, pos + p.window - 1u, p.window > 0u));
}
{{- end}}
// bounds is the first and the last position that a row sees.
fn bounds(row: u32) -> vec2u {
	let pos = table[4u * row + 3u];
{{- if .Ahead}}
	let last = newest(pos, table[table[4u * row + 1u] - 1u]);
{{- else}}
	let last = pos;
{{- end}}
{{- if .Grouped}}
	let group = 4u * step.rows + 2u * row;
	if (table[group + 1u] > 0u) {
		return vec2u({{if .Ahead}}table[group]{{else}}lowest(pos){{end}}, table[group + 1u] - 1u);
	}
{{- end}}
	return vec2u(lowest(pos), last);
}
{{- define "lowest"}}
// lowest is the first position that a row at position pos sees.
fn lowest(pos: u32) -> u32 {
{{- if .Chunked}}
	return pos - pos % p.window;
{{- else}}
	return select({{if .Skip}}min({{.Skip}}u, pos){{else}}0u{{end}}, pos + 1u - p.window, p.window > 0u && pos + 1u > p.window);
{{- end}}
}
{{end}}
