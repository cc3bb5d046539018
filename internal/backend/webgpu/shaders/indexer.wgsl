// indexer finds the positions with the largest scores of each row: Choose. A workgroup takes one row, and goes through
// all positions five times: to find the least chosen score, 8 bits at a time, and to write the positions, in order.
// Scores are computed anew each time, at one place, so all times alike.
struct Params {
	heads: u32,
	dim: u32,
	choices: u32,
	skip: u32, // first positions, seen by no row behind
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, choices]
@group(0) @binding(3) var<storage, read> q: array<f32>; // [rows, heads, dim]
@group(0) @binding(4) var<storage, read> weights: array<f32>; // [rows, heads]
@group(0) @binding(5) var<storage, read> keys: array<u32>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go

const THREADS: u32 = 256u;
var<workgroup> counts: array<atomic<u32>, 256>; // of scores by their next 8 bits
var<workgroup> kinds: array<u32, 256>; // of a position: 1 equal to the least, 2 larger

// key is element d of the key at a slot.
fn key(slot: u32, d: u32) -> f32 {
{{- if .F16}}
	return halves(keys[slot * ((p.dim + 1u) / 2u) + d / 2u])[d & 1u];
{{- else}}
	return bitcast<f32>(keys[slot * p.dim + d]);
{{- end}}
}

fn score(row: u32, slot: u32) -> f32 {
	var sum = 0.0;
	for (var h = 0u; h < p.heads; h++) {
		let head = (row * p.heads + h) * p.dim;
		var x = 0.0;
		for (var d = 0u; d < p.dim; d++) {
			x = fma(q[head + d], key(slot, d), x);
		}
		if (x > 0.0 || is_nan(x)) {
			sum = fma(weights[row * p.heads + h], x, sum);
		}
	}
	return sum;
}

// ordered is a number with the order of scores, 0 for NaN.
fn ordered(s: f32) -> u32 {
	let bits = bitcast<u32>(s);
	if (is_nan(s)) {
		return 0u;
	}
	if ((bits & 0x7fffffffu) == 0u) {
		return 0x80000000u;
	}
	return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let row = wg.y * GX + wg.x;
	if (row >= step.rows) {
		return;
	}
	let pages = table[4u * row + 1u];
	let from_page = table[4u * row + 2u];
	let end = table[4u * row + 3u] + 1u;
	let first = min(p.skip, end - 1u);
	if (end - first <= p.choices) {
		for (var i = t; i < p.choices; i += THREADS) {
			out[row * p.choices + i] = select(-1.0, f32(first + i), first + i < end);
		}
		return;
	}
	var least = 0u;
	var want = p.choices; // as large as the least
	var skip = 0u; // of these, the earlier ones
	var written = 0u;
	for (var turn = 0u; turn < 5u; turn++) {
		let shift = 24u - 8u * min(turn, 3u);
		workgroupBarrier();
		atomicStore(&counts[t], 0u);
		workgroupBarrier();
		for (var base = first; base < end; base += THREADS) {
			let at = base + t;
			var o = 0u;
			if (at < end) {
				o = ordered(score(row, table[pages + at / 64u - from_page] * 64u + at % 64u));
			}
			if (turn < 4u) {
				if (at < end && (turn == 0u || (o >> min(shift + 8u, 31u)) == (least >> min(shift + 8u, 31u)))) {
					atomicAdd(&counts[(o >> shift) & 255u], 1u);
				}
			} else {
				workgroupBarrier();
				kinds[t] = select(select(0u, 1u, o == least), 2u, o > least) * u32(at < end);
				workgroupBarrier();
				var equal = 0u;
				var chosen = 0u;
				for (var j = 0u; j < THREADS; j++) {
					let taken = kinds[j] == 2u || (kinds[j] == 1u && equal >= skip);
					if (j == t && taken) {
						out[row * p.choices + written + chosen] = f32(at);
					}
					equal += u32(kinds[j] == 1u);
					chosen += u32(taken);
				}
				skip -= min(skip, equal);
				written += chosen;
			}
		}
		workgroupBarrier();
		if (turn < 4u) {
			var digit = 255u;
			for (; digit > 0u && want > atomicLoad(&counts[digit]); digit--) {
				want -= atomicLoad(&counts[digit]);
			}
			skip = atomicLoad(&counts[digit]) - want;
			least |= digit << shift;
		}
	}
}
