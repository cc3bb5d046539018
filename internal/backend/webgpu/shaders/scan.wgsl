// scan computes the rows of a scan: SSMScan, and with Delta DeltaScan. A workgroup takes 64 numbers of a head through all
// rows of the step, each with its column of the state, up to Tile rows of a page together. A row's sums are of the state
// at its page's start and of the page's rows; the keys of earlier steps are in kept, of this step in keys.
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
@group(0) @binding(4) var<storage, read_write> kept: array<f32>; // [page, 64, a row]: keys, then values, then logs and rests of workgroups
@group(0) @binding(5) var<storage, read> rows: array<vec4u>; // slot, page, flags and position
@group(0) @binding(6) var<storage, read> queries: array<f32>;
@group(0) @binding(7) var<storage, read> keys: array<f32>;
@group(0) @binding(8) var<storage, read> values: array<f32>;
@group(0) @binding(9) var<storage, read> steps: array<vec3f>; // by row and head, see decays

{{template "pieces.wgsl"}}
const TILE = {{.Tile}}u;

var<workgroup> logs: array<vec2f, 64>; // of the page's rows: minus the sum of the decays' logarithms, and its rest
var<workgroup> asked: array<f32, {{mul .Tile 64}}>; // their weights for each row of the tile
{{if .Delta}}var<workgroup> held: array<f32, {{mul .Tile 64}}>; // and for what the row keeps
{{end}}
// follow returns the logs of a row behind a row with logs, as simd.Chunk.Follow does; where a compiler reorders sums the
// rest is 0.
fn follow(logs: vec2f, log: f32) -> vec2f {
	let sum = logs.x - log;
	let added = sum - logs.x;
	let lost = (logs.x - (sum - added)) - (log + added);
	return vec2f(sum, select(0.0, logs.y + lost, abs(sum) < 1e30));
}

// decay returns the share of a row with these logs remaining at a row with others.
fn decay(from: vec2f, to: vec2f) -> f32 {
	let w = exp_f(from.x - to.x);
	return w + fma(w, -to.y, w * from.y);
}

// key returns number j of the i-th key of a page at base. Row t of the step has the given place in the page, or after it.
fn key(t: u32, place: u32, first: u32, g: u32, base: u32, row: u32, i: u32, j: u32) -> f32 {
	if (t + i >= first + place) {
		return keys[((t + i - place) * p.groups + g) * p.n + j];
	}
	return kept[base + i * row + g * p.n + j];
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
	let row = p.groups * p.n + p.heads * (p.size + 2u * parts);
	let value = p.groups * p.n + h * p.size + c; // its place in a row
	let log = p.groups * p.n + p.heads * p.size + 2u * unit;
	var first = 0u; // row of the sequence in the step
	var m = 0u; // rows of the tile
	for (var t = 0u; t < step.rows; t += m) {
		let r = rows[t];
		let place = r.w % 64u;
		for (m = 1u; m < TILE && t + m < step.rows && place + m < 64u; m++) {
			if (rows[t + m].x != r.x) {
				break;
			}
		}
		let base = r.y * 64u * row;
		let at = (r.x * p.heads + h) * p.n * p.size + c;
		if (t == 0u || rows[t - 1u].x != r.x) {
			first = t;
			workgroupBarrier();
			logs[lane] = vec2f(kept[base + lane * row + log], kept[base + lane * row + log + 1u]);
		}
		workgroupBarrier();
		if ((r.z & ENDS) != 0u) {
			let last = logs[63];
			asked[lane] = decay(logs[lane], last);
			workgroupBarrier();
			if (c < p.size) {
				for (var j = 0u; j < p.n; j++) {
					var s = 0.0;
					if (r.w > 64u) {
						s = state[at + j * p.size] * decay(vec2f(), last);
					}
					for (var i = 0u; i < 64u; i++) {
						let k = asked[i] * key(t, 64u, first, g, base, row, i, j);
						s = fma(kept[base + i * row + value], k, s);
					}
					state[at + j * p.size] = s;
				}
			}
			workgroupBarrier();
		}
		var sums = array<vec2f, {{.Tile}}>();
		var sum = vec2f();
		if (place > 0u) {
			sum = logs[place - 1u];
		}
		for (var q = 0u; q < TILE; q++) {
			sum = follow(sum, steps[min(t + q, step.rows - 1u) * p.heads + h].x);
			sums[q] = sum;
		}
		workgroupBarrier();
		let query = (t * p.groups + g) * p.n;
		let next = p.groups * p.n;
		for (var q = 0u; q < TILE; q++) {
			if (lane == place + q && q < m) {
				logs[lane] = sums[q];
				kept[base + lane * row + log] = sums[q].x;
				kept[base + lane * row + log + 1u] = sums[q].y;
			}
		}
		if (lane < place + m) {
			var a = array<f32, {{.Tile}}>();
			{{if .Delta}}var k = array<f32, {{.Tile}}>();{{end}}
			for (var j = 0u; j < p.n; j++) {
				let x = key(t, place, first, g, base, row, lane, j);
				for (var q = 0u; q < TILE; q++) {
					let ask = query + min(q, m - 1u) * next + j;
					a[q] = fma(x, queries[ask], a[q]);
					{{if .Delta}}k[q] = fma(x, keys[ask], k[q]);{{end}}
				}
			}
			for (var q = 0u; q < TILE; q++) {
				var by = 1.0;
				if (lane < place + q) {
					by = decay(logs[lane], sums[q]);
				}
				asked[q * 64u + lane] = a[q] * by;
				{{if .Delta}}held[q * 64u + lane] = k[q] * by;{{end}}
			}
		}
		workgroupBarrier();
		if (c < p.size) {
			var y = array<f32, {{.Tile}}>();
			{{if .Delta}}var s = array<f32, {{.Tile}}>();{{end}}
			if (r.w >= 64u) {
				for (var j = 0u; j < p.n; j++) {
					let x = state[at + j * p.size];
					for (var q = 0u; q < TILE; q++) {
						let ask = query + min(q, m - 1u) * next + j;
						y[q] = fma(x, queries[ask], y[q]);
						{{if .Delta}}s[q] = fma(x, keys[ask], s[q]);{{end}}
					}
				}
				for (var q = 0u; q < TILE; q++) {
					let left = decay(vec2f(), sums[q]);
					y[q] *= left;
					{{if .Delta}}s[q] *= left;{{end}}
				}
			}
			for (var i = 0u; i < place; i++) {
				let x = kept[base + i * row + value];
				for (var q = 0u; q < TILE; q++) {
					y[q] = fma(x, asked[q * 64u + i], y[q]);
					{{if .Delta}}s[q] = fma(x, held[q * 64u + i], s[q]);{{end}}
				}
			}
			for (var q = 0u; q < TILE; q++) {
				if (q < m) {
					let i = place + q;
					let by = steps[(t + q) * p.heads + h];
					let v = values[((t + q) * p.heads + h) * p.size + c];
					let keep = by.y * {{if .Delta}}(v - s[q]){{else}}v{{end}};
					kept[base + i * row + value] = keep;
					out[((t + q) * p.heads + h) * p.size + c] = fma(keep, asked[q * 64u + i], y[q]){{if not .Delta}} + by.z * v{{end}};
					for (var w = q + 1u; w < TILE; w++) {
						y[w] = fma(keep, asked[w * 64u + i], y[w]);
						{{if .Delta}}s[w] = fma(keep, held[w * 64u + i], s[w]);{{end}}
					}
				}
			}
		}
	}
}
