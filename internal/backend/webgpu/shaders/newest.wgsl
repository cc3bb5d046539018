// newest puts the step's keys{{if not .Latent}} and values{{end}} into their pages where older pages have 8 bits: StoreKV. Runs of a
// head are turned by a Hadamard matrix. A word has two elements in binary16.
struct Params {
	width: u32, // elements of a row's keys: heads·dim
	size: u32, // elements of a run
	unit: u32, // words of a page of keys in 8 bits
{{- if not .Latent}}
	wide: u32, // the same of values
	run: u32,
	room: u32,
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

fn key(row: u32, i: u32) -> f32 {
	let first = row * p.width + i / p.size * p.size;
	var s = 0.0;
	for (var j = 0u; j < p.size; j++) {
		s += select(k[first + j], -k[first + j], (countOneBits(j & (i % p.size)) & 1u) == 1u);
	}
	return s / sqrt(f32(p.size));
}
{{- if not .Latent}}

fn value(row: u32, i: u32) -> f32 {
	let first = row * p.wide + i / p.run * p.run;
	var s = 0.0;
	for (var j = 0u; j < p.run; j++) {
		s += select(v[first + j], -v[first + j], (countOneBits(j & (i % p.run)) & 1u) == 1u);
	}
	return s / sqrt(f32(p.run));
}
{{- end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let most = {{if .Latent}}p.width{{else}}max(p.width, p.wide){{end}} / 2u;
	if (i >= step.rows * most) {
		return;
	}
	let row = i / most;
	let at = i % most;
	let slot = table[4u * row];
	if (at < p.width / 2u) {
		keys[(slot >> 6u) * p.unit + (slot & 63u) * (p.width / 2u) + at] = to_half(key(row, 2u * at)) | (to_half(key(row, 2u * at + 1u)) << 16u);
	}
{{- if not .Latent}}
	if (at < p.wide / 2u) {
		values[(slot >> 6u) * p.room + (slot & 63u) * (p.wide / 2u) + at] = to_half(value(row, 2u * at)) | (to_half(value(row, 2u * at + 1u)) << 16u);
	}
{{- end}}
}
