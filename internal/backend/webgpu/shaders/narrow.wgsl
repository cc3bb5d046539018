// narrow rounds rows to binary16, each times a power of two that takes its largest element
// to 2^13 or above: nothing is then too large, and what is small keeps its bits. {{.M}} rows of y lie in
// blocks of {{.M}} by {{.K}} elements: the inverses of the rows' factors, 16 bytes each, and the elements, with zeros up to a multiple of
// {{pad}}; of eight neighbours in the order of which matrix.wgsl has those of weights. A workgroup takes a row.
struct Params {
	k: u32, // length of a row
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> y: array<vec4u>;
@group(0) @binding(3) var<storage, read> x: array<vec4f>;

var<workgroup> largest: array<u32, 256>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let row = wg.y * GX + wg.x;
	if (row >= step.rows) {
		return;
	}
	let quads = p.k >> 2u;
	var most = 0u;
	for (var i = t; i < quads; i += 256u) {
		let b = bitcast<vec4<u32>>(x[row * quads + i]) & vec4u(0x7fffffffu);
		most = max(max(most, max(b.x, b.y)), max(b.z, b.w));
	}
	largest[t] = most;
	workgroupBarrier();
	for (var n = 128u; n > 0u; n >>= 1u) {
		if (t < n) {
			largest[t] = max(largest[t], largest[t + n]);
		}
		workgroupBarrier();
	}
	// the exponents of the factor and of its inverse; a row of zeros, or with one that is
	// not finite, stays as it is
	let e = largest[0] >> 23u;
	var up = 1.0;
	var down = 1.0;
	if (e > 0u && e < 255u) {
		up = bitcast<f32>((267u - max(e, 14u)) << 23u);
		down = bitcast<f32>((max(e, 14u) - 13u) << 23u);
	}
	let eights = (p.k + {{add pad -1}}u) / {{pad}}u * {{div pad 8}}u;
	let block = row / {{.M}}u * (1u + eights / {{div .K 8}}u) * {{div (mul .M .K) 8}}u;
	if (t == 0u) {
		y[block + row % {{.M}}u] = vec4u(bitcast<u32>(down), 0u, 0u, 0u); // whole: another row's must not share it
	}
	for (var i = t; i < eights; i += 256u) {
		var v = vec4u(0u);
		if (2u * i < quads) {
			let e = mat2x4<f32>(x[row * quads + 2u * i] * up, x[row * quads + 2u * i + 1u] * up);
			v = vec4u(
{{- range $i := 4}}{{if $i}}, {{end}}to_half(e{{index $.Spots (mul 2 $i)}}) | (to_half(e{{index $.Spots (add 1 (mul 2 $i))}}) << 16u){{end}});
		}
		y[block + (1u + i / {{div .K 8}}u) * {{div (mul .M .K) 8}}u + row % {{.M}}u * {{div .K 8}}u + i % {{div .K 8}}u] = v;
	}
}
