// turn turns the step's queries and keys as rope does, and puts keys and values into
// their slots as store does: two RoPE and a StoreKV.
struct Params {
	size: u32, // of a head
	queries: u32, // elements of a row of them
	width: u32, // and of keys
	pairs: u32, // that turn
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
@group(0) @binding(5) var<storage, read> q: array<f32>;
@group(0) @binding(6) var<storage, read> k: array<f32>;
@group(0) @binding(7) var<storage, read> v: array<f32>;
@group(0) @binding(8) var<storage, read> turns: array<f32>; // [rows, 2, pairs]
@group(0) @binding(9) var<storage, read> table: array<u32>; // see cache.go

fn size() -> u32 {
	return p.size;
}

{{template "turn" .}}
fn key(row: u32, i: u32) -> f32 {
	return turn(row, i, k[row * p.width + i], k[row * p.width + other(i)]);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let n = (wg.y * GX + wg.x) * 64u + lane;
{{- if .F16}}
	let words = (p.width + 1u) / 2u;
{{- else}}
	let words = p.width;
{{- end}}
	let row = n / (p.queries + words);
	let i = n % (p.queries + words);
	if (row >= step.rows) {
		return;
	}
	if (i < p.queries) {
		out[row * p.queries + i] = turn(row, i, q[row * p.queries + i], q[row * p.queries + other(i)]);
		return;
	}
	let at = i - p.queries;
	let to = table[4u * row] * words + at;
{{- if .F16}}
	var a = to_half(key(row, 2u * at));
	var b = to_half(v[row * p.width + 2u * at]);
	if (2u * at + 1u < p.width) {
		a |= to_half(key(row, 2u * at + 1u)) << 16u;
		b |= to_half(v[row * p.width + 2u * at + 1u]) << 16u;
	}
	keys[to] = a;
	values[to] = b;
{{- else}}
	keys[to] = bitcast<u32>(key(row, at));
	values[to] = bitcast<u32>(v[row * p.width + at]);
{{- end}}
}
{{define "turn"}}
// other is the number of the element that turns with number i of a row, or i if it stays.
fn other(i: u32) -> u32 {
	let e = i % size();
	let apart = size() / 2u;
	if (e < p.pairs) {
		return i + apart;
	}
	if (e >= apart && e < apart + p.pairs) {
		return i - apart;
	}
	return i;
}

// turn is element i of a row, whose value is x, and y that of the other.
fn turn(row: u32, i: u32, x: f32, y: f32) -> f32 {
	let j = other(i);
	if (j == i) {
		return x;
	}
	let at = row * 2u * p.pairs + min(i, j) % size();
	let z = y * turns[at + p.pairs];
	return fma(x, turns[at], select(z, -z, j > i));
}
{{end}}
