// eachscan computes the rows of a scan whose keys' elements decay by themselves: Mamba 1's SSMScan, and with Delta
// DeltaScan. An invocation takes a number of a head through all rows of the step, with its column of the state: from the
// state at the page's start through the page's rows of earlier steps, and then through the step's.
struct Params {
	heads: u32,
	size: u32, // of a head
	groups: u32, // of queries and keys
	row: u32, // numbers of a row kept
}

const N = {{.N}}u; // of a group
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, heads, n, size]
@group(0) @binding(4) var<storage, read_write> kept: array<f32>; // [page, 64, a row]: keys, then values, then what a row has for itself
@group(0) @binding(5) var<storage, read> rows: array<vec4u>; // slot, page, flags and position
@group(0) @binding(6) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> keys: array<f32>;
@group(0) @binding(8) var<storage, read> steps: array<{{if .Delta}}f32{{else}}vec3f{{end}}>; // see eachstep
@group(0) @binding(9) var<storage, read> values: array<f32>; // {{if .Delta}}of heads{{else}}rates of decays, [heads, n]{{end}}

{{template "pieces.wgsl"}}
// key returns a number of a key, of the step or kept.
fn key(old: bool, at: u32) -> f32 {
	if (old) {
		return kept[at];
	}
	return keys[at];
}
{{if .Delta}}
// decay returns a decay of the step, or kept, or the share of a correction.
fn decay(old: bool, at: u32) -> f32 {
	if (old) {
		return kept[at];
	}
	return steps[at];
}

// advance takes a row into a column: its value, its key and its decays from there on.
fn advance(s: ptr<function, array<f32, N>>, v: f32, old: bool, k: u32, at: u32) {
	var held = 0.0;
	for (var j = 0u; j < N; j++) {
		(*s)[j] *= decay(old, at + j);
		held = fma((*s)[j], key(old, k + j), held);
	}
	let by = decay(old, at + N) * (v - held);
	for (var j = 0u; j < N; j++) {
		(*s)[j] = fma(key(old, k + j), by, (*s)[j]);
	}
}
{{else}}
// advance takes a row into a head's state: the length of its step, its weighed input, and its key from there on.
fn advance(s: ptr<function, array<f32, N>>, h: u32, length: f32, x: f32, old: bool, k: u32) {
	for (var j = 0u; j < N; j++) {
		(*s)[j] = fma(x, key(old, k + j), (*s)[j] * exp_f(values[h * N + j] * length));
	}
}
{{end}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	let h = i / p.size;
	if (h >= p.heads) {
		return;
	}
	let c = i % p.size;
	let g = h * p.groups / p.heads * N;
	let value = p.groups * N + i;
	let own = p.groups * N + p.heads * p.size{{if .Delta}} + h * (N + 1u){{else}} + h{{end}};
	var s = array<f32, N>();
	for (var t = 0u; t < step.rows; t++) {
		let r = rows[t];
		let place = r.w % 64u;
		let base = r.y * 64u * p.row;
		let at = (r.x * p.heads + h) * N * p.size + c;
		let ends = (r.z & ENDS) != 0u;
		if (t == 0u || rows[t - 1u].x != r.x) {
			let before = select(place, 64u, ends);
			let has = r.w > 64u || r.w == 64u && !ends;
			for (var j = 0u; j < N; j++) {
				s[j] = 0.0;
				if (has) {
					s[j] = state[at + j * p.size];
				}
			}
			for (var b = 0u; b < before; b++) {
				let line = base + b * p.row;
				{{if .Delta}}advance(&s, kept[line + value], true, line + g, line + own);{{else}}advance(&s, h, kept[line + own], kept[line + value], true, line);{{end}}
			}
		}
		for (var j = 0u; j < N && ends; j++) {
			state[at + j * p.size] = s[j];
		}
		let line = base + place * p.row;
		let ask = t * p.groups * N + g;
		{{- if .Delta}}
		let v = values[t * p.heads * p.size + i];
		kept[line + value] = v;
		advance(&s, v, false, ask, (t * p.heads + h) * (N + 1u));
		var y = 0.0;
		{{- else}}
		let mine = steps[t * p.heads + h];
		kept[line + value] = mine.y;
		kept[line + own] = mine.x;
		advance(&s, h, mine.x, mine.y, false, ask);
		var y = mine.z;
		{{- end}}
		for (var j = 0u; j < N; j++) {
			y = fma(s[j], queries[ask + j], y);
		}
		out[t * p.heads * p.size + i] = y;
	}
}
