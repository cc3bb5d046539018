// rotate is rope for a part of each head: its pairs are (i, i + apart){{if .Interleaved}}, or as here neighbours{{end}}.
struct Params {
	size: u32, // of a head
	heads: u32,
	pairs: u32, // that turn
	apart: u32, // half of the features that pairs are made of
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> turns: array<f32>; // [rows, 2, pairs]

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let width = p.heads * p.size;
	if (i >= step.rows * width) {
		return;
	}
	let e = i % p.size;
{{- if .Interleaved}}
	let pair = e / 2u;
	let second = (e & 1u) == 1u;
	let by = 1u;
{{- else}}
	let second = e >= p.apart;
	let pair = select(e, e - p.apart, second);
	let by = p.apart;
{{- end}}
	if (e >= 2u * p.apart || pair >= p.pairs) {
		out[i] = x[i];
		return;
	}
	let at = i / width * 2u * p.pairs + pair;
	let z = x[select(i + by, i - by, second)] * turns[at + p.pairs];
	out[i] = fma(x[i], turns[at], select(-z, z, second));
}
