// store puts the step's keys and values into their slots: StoreKV. A slot has {{.What}}
// for each element of all heads.
struct Params {
	width: u32, // elements of a row: heads·dim
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> values: array<u32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
{{- if .F16}}
	let words = (p.width + 1u) / 2u;
{{- else}}
	let words = p.width;
{{- end}}
	if (i >= step.rows * words) {
		return;
	}
	let row = i / words;
	let at = i % words;
	let to = table[4u * row] * words + at;
{{- if .F16}}
	var key = to_half(k[row * p.width + 2u * at]);
	var val = to_half(v[row * p.width + 2u * at]);
	if (2u * at + 1u < p.width) {
		key |= to_half(k[row * p.width + 2u * at + 1u]) << 16u;
		val |= to_half(v[row * p.width + 2u * at + 1u]) << 16u;
	}
	keys[to] = key;
	values[to] = val;
{{- else}}
	keys[to] = bitcast<u32>(k[row * p.width + at]);
	values[to] = bitcast<u32>(v[row * p.width + at]);
{{- end}}
}
