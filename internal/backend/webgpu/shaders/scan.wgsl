// scan computes the rows of a scan: SSMScan, and with Delta DeltaScan. A workgroup takes 64 numbers of a head through all
// rows of the step, each with its column of the state. A row's sums are of the state at its page's start and of the
// page's rows; the keys of earlier steps are in kept, of this step in keys.
struct Params {
	heads: u32,
	size: u32, // of a head
	groups: u32, // of queries and keys
	n: u32, // of a group
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read_write> state: array<f32>; // [slot, heads, n, size]
@group(0) @binding(4) var<storage, read_write> kept: array<f32>; // [page, 64, a row]: keys, then values, then logs of workgroups
@group(0) @binding(5) var<storage, read> rows: array<vec4u>; // slot, page, flags and position
@group(0) @binding(6) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> keys: array<f32>;
@group(0) @binding(8) var<storage, read> values: array<f32>;
@group(0) @binding(9) var<storage, read> steps: array<vec3f>; // by row and head, see decays

{{template "pieces.wgsl"}}
var<workgroup> logs: array<f32, 64>; // of the page's rows: minus the sum of the decays' logarithms
var<workgroup> asked: array<f32, 64>; // their weights for the row
var<workgroup> held: array<f32, 64>; // and for what the row keeps

// key returns where number j of a group's keys is, of the row back rows before row t, the i-th of a page at base.
fn key(t: u32, back: u32, first: u32, g: u32, at: u32, j: u32) -> f32 {
	if (t - first >= back) {
		return keys[((t - back) * p.groups + g) * p.n + j];
	}
	return kept[at + g * p.n + j];
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let parts = (p.size + 63u) / 64u;
	let unit = wg.y * GX + wg.x;
	let h = unit / parts;
	if (h >= p.heads) {
		return;
	}
	let c = unit % parts * 64u + lane;
	let g = h * p.groups / p.heads;
	let row = p.groups * p.n + p.heads * (p.size + parts);
	let value = p.groups * p.n + h * p.size + c; // its place in a row
	let log = p.groups * p.n + p.heads * p.size + unit;
	var first = 0u; // row of the sequence in the step
	for (var t = 0u; t < step.rows; t++) {
		let r = rows[t];
		let place = r.w % 64u;
		let base = r.y * 64u * row;
		let at = (r.x * p.heads + h) * p.n * p.size + c;
		if (t == 0u || rows[t - 1u].x != r.x) {
			first = t;
			workgroupBarrier();
			logs[lane] = kept[base + lane * row + log];
		}
		workgroupBarrier();
		if ((r.z & ENDS) != 0u) {
			let last = logs[63];
			asked[lane] = exp_f(logs[lane] - last);
			workgroupBarrier();
			if (c < p.size) {
				for (var j = 0u; j < p.n; j++) {
					var s = 0.0;
					if ((r.z & SECOND) == 0u) {
						s = state[at + j * p.size] * exp_f(-last);
					}
					for (var i = 0u; i < 64u; i++) {
						let on = base + i * row;
						s = fma(kept[on + value], asked[i] * key(t, 64u - i, first, g, on, j), s);
					}
					state[at + j * p.size] = s;
				}
			}
			workgroupBarrier();
		}
		let by = steps[t * p.heads + h];
		var sum = -by.x;
		if (place > 0u) {
			sum += logs[place - 1u];
		}
		workgroupBarrier();
		if (lane == place) {
			logs[place] = sum;
			kept[base + place * row + log] = sum;
		}
		let query = (t * p.groups + g) * p.n;
		if (lane <= place) {
			var decay = 1.0;
			if (lane < place) {
				decay = exp_f(logs[lane] - sum);
			}
			var a = 0.0;
			var k = 0.0;
			for (var j = 0u; j < p.n; j++) {
				let x = key(t, place - lane, first, g, base + lane * row, j);
				a = fma(x, queries[query + j], a);
				k = fma(x, keys[query + j], k);
			}
			asked[lane] = a * decay;
			held[lane] = k * decay;
		}
		workgroupBarrier();
		if (c < p.size) {
			let v = values[(t * p.heads + h) * p.size + c];
			var y = 0.0;
			var s = 0.0;
			if ((r.z & FIRST) == 0u) {
				for (var j = 0u; j < p.n; j++) {
					let x = state[at + j * p.size];
					y = fma(x, queries[query + j], y);
					s = fma(x, keys[query + j], s);
				}
				y *= exp_f(-sum);
				s *= exp_f(-sum);
			}
			for (var i = 0u; i < place; i++) {
				let x = kept[base + i * row + value];
				y = fma(x, asked[i], y);
				s = fma(x, held[i], s);
			}
			{{if .Delta}}let keep = by.y * (v - s);{{else}}let keep = by.y * v;{{end}}
			kept[base + place * row + value] = keep;
			out[(t * p.heads + h) * p.size + c] = fma(keep, asked[place], y){{if not .Delta}} + by.z * v{{end}};
		}
	}
}
