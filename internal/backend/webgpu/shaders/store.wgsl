// store puts the step's keys{{if not .Latent}} and values{{end}} into their slots: StoreKV. A slot has {{.What}}
// for each element of all heads.
struct Params {
	width: u32, // elements of a row's keys: heads·dim
{{- if not .Latent}}
	wide: u32, // and of its values
{{- end}}
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read> table: array<u32>; // see cache.go
@group(0) @binding(4) var<storage, read> k: array<f32>;
{{- if not .Latent}}
@group(0) @binding(5) var<storage, read_write> values: array<u32>;
@group(0) @binding(6) var<storage, read> v: array<f32>;
{{- end}}

// words are those of a row of so many elements.
fn words(width: u32) -> u32 {
	return {{if .F16}}(width + 1u) / 2u{{else}}width{{end}};
}

fn key(row: u32, i: u32) -> u32 {
{{- template "word" (word .F16 "k" "width")}}
}
{{- if not .Latent}}

fn value(row: u32, i: u32) -> u32 {
{{- template "word" (word .F16 "v" "wide")}}
}
{{- end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let most = words({{if .Latent}}p.width{{else}}max(p.width, p.wide){{end}});
	if (i >= step.rows * most) {
		return;
	}
	let row = i / most;
	let at = i % most;
	let slot = table[4u * row];
	if (at < words(p.width)) {
		keys[slot * words(p.width) + at] = key(row, at);
	}
{{- if not .Latent}}
	if (at < words(p.wide)) {
		values[slot * words(p.wide) + at] = value(row, at);
	}
{{- end}}
}
{{define "word"}}
{{- if .F16}}
	let first = row * p.{{.Width}} + 2u * i;
	var word = to_half({{.Of}}[first]);
	if (2u * i + 1u < p.{{.Width}}) {
		word |= to_half({{.Of}}[first + 1u]) << 16u;
	}
	return word;
{{- else}}
	return bitcast<u32>({{.Of}}[row * p.{{.Width}} + i]);
{{- end}}
{{- end}}
