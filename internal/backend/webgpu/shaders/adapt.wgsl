// adapt adds to a product what the rows' adapters make of their low numbers (low.wgsl):
// scale·B low, pair by pair.
struct Params {
	n: u32,
	k: u32,
	node: u32, // the product's number
	rows: u32, // where the table has the rows
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> low: array<f32>;
@group(0) @binding(4) var<storage, read> pairs: array<f32>;
@group(0) @binding(5) var<storage, read> table: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let row = wg.y;
	let n = wg.x * 64u + lane;
	if (row >= step.rows || n >= p.n) {
		return;
	}
	let blend = table[p.rows + row];
	if (blend == 0u) {
		return;
	}
	let list = table[blend + p.node];
	if (list == 0u) {
		return;
	}
	var y = out[row * p.n + n];
	var first = row * table[0];
	for (var i = 0u; i < table[list]; i++) {
		let pair = list + 1u + 3u * i;
		let rank = table[pair + 1u];
		let b = table[pair] + rank * (p.k + n);
		var s = 0.0;
		for (var j = 0u; j < rank; j++) {
			s = fma(pairs[b + j], low[first + j], s);
		}
		y = fma(s, bitcast<f32>(table[pair + 2u]), y);
		first += rank;
	}
	out[row * p.n + n] = y;
}
