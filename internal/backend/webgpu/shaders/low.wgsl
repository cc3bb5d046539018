// low multiplies rows by the first halves of their adapters' pairs: A x. A workgroup makes a
// number of a row. The table is as tabulate makes it.
struct Params {
	k: u32,
	node: u32, // the product's number
	rows: u32, // where the table has the rows
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, table[0]], a row's pairs one after another
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> pairs: array<f32>;
@group(0) @binding(5) var<storage, read> table: array<u32>;

var<workgroup> sums: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let row = wg.y;
	if (row >= step.rows) {
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
	var i = wg.x;
	var pair = list + 1u;
	let end = pair + 3u * table[list];
	while (pair < end && i >= table[pair + 1u]) {
		i -= table[pair + 1u];
		pair += 3u;
	}
	if (pair == end) {
		return;
	}
	let a = table[pair] + i * p.k;
	var s = 0.0;
	for (var j = lane; j < p.k; j += 64u) {
		s = fma(pairs[a + j], x[row * p.k + j], s);
	}
	sums[lane] = s;
	for (var n = 32u; n > 0u; n >>= 1u) {
		workgroupBarrier();
		if (lane < n) {
			sums[lane] += sums[lane + n];
		}
	}
	if (lane == 0u) {
		out[row * table[0] + wg.x] = sums[0];
	}
}
