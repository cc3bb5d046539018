// top finds the likeliest tokens of each row: the step.top first in the order of falling
// logits, of equal ones the lower id. A workgroup takes a slice of {{if .First}}the logits{{else}}what the pass before
// has left{{end}} and leaves as many; when there is one slice, they are found.
//
// Logits are compared as integers, by their bits, so no rule about floats matters.
struct Params {
	size: u32, // logits of a row
	before: u32, // passes that were before this one
	tokens: u32, // logits of a row that are tokens'
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<vec2u>; // [rows, slices, top]: a token's id and the bits of its logit
@group(0) @binding(3) var<storage, read> x: array<{{if .First}}u32{{else}}vec2u{{end}}>;

const SLICE: u32 = 2048u;
const LANES: u32 = 64u;
const MINUS_INF: u32 = 0xff800000u; // no token

var<workgroup> keys: array<u32, 2048>; // of the slice
var<workgroup> counts: array<u32, 1024>; // of keys: of each digit, those of each lane
var<workgroup> sums: array<u32, 16>; // of each digit
var<workgroup> picked: array<u32, 256>; // places in the slice, rising

// key is larger the likelier a token is. NaN and +Inf, which are errors, are the
// likeliest, and -0 is 0.
fn key(bits: u32) -> u32 {
	let a = bits & 0x7fffffffu;
	if (a > 0x7f800000u || bits == 0x7f800000u) {
		return 0xffffffffu;
	}
	if (a == 0u) {
		return 0x80000000u;
	}
	return select(bits | 0x80000000u, ~bits, bits != a);
}

// count is how many of a row this pass has.
fn count() -> u32 {
	var n = p.size;
	for (var i = 0u; i < p.before; i++) {
		n = (n + SLICE - 1u) / SLICE * step.top;
	}
	return n;
}

// logit is one of a row, by its bits.
fn logit(row: u32, base: u32, i: u32) -> u32 {
	return {{if .First}}select(MINUS_INF, x[row + i], base + i < p.tokens){{else}}x[row + i].y{{end}};
}

// best does main's work where one is wanted.
fn best(row: u32, base: u32, n: u32, lane: u32, to: u32) {
	var most = 0u;
	var place = 0u;
	for (var i = lane; i < n; i += 8u * LANES) {
{{- range $e := 8}}
		let key{{$e}} = key(logit(row, base, min(i + {{$e}}u * LANES, n - 1u)));
{{- end}}
{{- range $e := 8}}
		if (key{{$e}} > most) { // the last place again is no more
			most = key{{$e}};
			place = min(i + {{$e}}u * LANES, n - 1u);
		}
{{- end}}
	}
	keys[lane] = most;
	picked[lane] = place;
	workgroupBarrier();
	for (var apart = LANES / 2u; apart > 0u; apart /= 2u) {
		if (lane < apart && (keys[lane + apart] > keys[lane] || (keys[lane + apart] == keys[lane] && picked[lane + apart] < picked[lane]))) {
			keys[lane] = keys[lane + apart];
			picked[lane] = picked[lane + apart];
		}
		workgroupBarrier();
	}
	if (lane == 0u) {
		out[to] = {{if .First}}vec2u(base + picked[0], logit(row, base, picked[0])){{else}}x[row + picked[0]]{{end}};
	}
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let total = count();
	let base = wg.x * SLICE;
	let n = min(total - base, SLICE);
	let keep = min(n, step.top);
	let row = wg.y * total + base;
	if (step.top == 1u) {
		best(row, base, n, lane, wg.y * ((total + SLICE - 1u) / SLICE) + wg.x);
		return;
	}
	for (var i = lane; i < n; i += LANES) {
		keys[i] = key(logit(row, base, i));
	}
	workgroupBarrier();

	// The least key that is kept, digit by digit, and how many of those that are equal.
	var least = 0u;
	var left = keep;
	for (var at = 28i; at >= 0i; at -= 4i) {
		for (var d = 0u; d < 16u; d++) {
			counts[d * LANES + lane] = 0u;
		}
		for (var i = lane; i < n; i += LANES) {
			let digits = keys[i] >> u32(at);
			if (digits >> 4u == least) {
				counts[(digits & 15u) * LANES + lane] += 1u;
			}
		}
		workgroupBarrier();
		if (lane < 16u) {
			var sum = 0u;
			for (var i = 0u; i < LANES; i++) {
				sum += counts[lane * LANES + i];
			}
			sums[lane] = sum;
		}
		workgroupBarrier();
		var digit = 15u;
		while (digit > 0u && sums[digit] < left) {
			left -= sums[digit];
			digit--;
		}
		least = (least << 4u) | digit;
	}

	// Where they are: a lane looks at places that follow each other.
	let first = lane * (SLICE / LANES);
	let end = min(first + SLICE / LANES, n);
	var above = 0u;
	var equal = 0u;
	for (var i = first; i < end; i++) {
		above += select(0u, 1u, keys[i] > least);
		equal += select(0u, 1u, keys[i] == least);
	}
	counts[lane] = above;
	counts[LANES + lane] = equal;
	workgroupBarrier();
	above = 0u;
	equal = 0u;
	for (var i = 0u; i < lane; i++) {
		above += counts[i];
		equal += counts[LANES + i];
	}
	for (var i = first; i < end; i++) {
		let same = keys[i] == least && equal < left;
		if (keys[i] > least || same) {
			picked[above + min(equal, left)] = i;
		}
		above += select(0u, 1u, keys[i] > least);
		equal += select(0u, 1u, keys[i] == least);
	}
	workgroupBarrier();

	let to = (wg.y * ((total + SLICE - 1u) / SLICE) + wg.x) * step.top;
	for (var i = lane; i < keep; i += LANES) {
		let place = picked[i];
		var rank = 0u;
		for (var j = 0u; j < keep; j++) {
			let other = keys[picked[j]];
			rank += select(0u, 1u, other > keys[place] || (other == keys[place] && j < i));
		}
		out[to + rank] = {{if .First}}vec2u(base + place, select(MINUS_INF, x[row + place], base + place < p.tokens)){{else}}x[row + place]{{end}};
	}
	for (var i = keep + lane; i < step.top; i += LANES) {
		out[to + i] = vec2u(0u, MINUS_INF);
	}
}
