// linear multiplies rows by the transpose of a weight: Linear, and the products of
// Experts. The weight lies as weight.go has laid it: word by word along its rows, the
// same word of all rows side by side.
//
// Units of 32 elements are dealt to {{.Slices}} slices, whose sums are added at the end, in
// order. So a row's order of summation depends on nothing but the weight.
struct Params {
	n: u32, // rows of the weight that lie here
	k: u32, // their length
	column: u32, // of the result, of the first of them
	stride: u32, // of the result's rows
	high: u32, // where the high bits of codes lie
	head: u32, // and where scales and minima do
{{- if .Experts}}
	first: u32, // expert whose matrix lies here
	count: u32, // of experts whose matrices do
	each: u32, // words of a matrix
	choices: u32, // experts of a row
	share: u32, // how many choices read one row of x
{{- end}}
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> w: array<u32>;
{{if .Experts}}@group(0) @binding(5) var<storage, read> routes: array<f32>;{{end}}

var<workgroup> sums: array<f32, {{mul 32 .Slices .Rows}}>;
{{if .Table}}
fn value(code: u32) -> f32 {
	var t = array<f32, 16>({{range .Table}}{{.}}.0, {{end}});
	return t[code];
}
{{else}}
fn value(code: u32) -> f32 {
	return f32(i32(code) - {{.Offset}});
}
{{end}}
// signed is byte i of a word.
fn signed(word: u32, i: u32) -> f32 {
	return f32(i32(word << (24u - 8u * i)) >> 24u);
}

@compute @workgroup_size(32, {{.Slices}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_id) id: vec3u) {
	let n = wg.x * 32u + id.x;
	let first = (wg.z * GX + wg.y) * {{.Rows}}u;
	var rows = step.rows;
	var base = 0u;
{{- if .Experts}}
	rows *= p.choices;
	let expert = u32(routes[2u * min(first, rows - 1u)]);
	if (expert < p.first || expert >= p.first + p.count) {
		return;
	}
	base = (expert - p.first) * p.each;
{{- end}}
	if (first >= rows) {
		return;
	}
	var at = array<u32, {{.Rows}}>();
	var acc = array<f32, {{.Rows}}>();
	for (var r = 0u; r < {{.Rows}}u; r++) {
		at[r] = min(first + r, rows - 1u){{if .Experts}} / p.share{{end}} * p.k;
	}
	if (n < p.n) {
		for (var u = id.y; u * 32u < p.k; u += {{.Slices}}u) {
{{- if .Bits}}
			let head = base + p.head + u / {{.Units}}u * {{.Head}}u * p.n + n;
			let word = w[head];
			let d = {{if .Bfloat}}bitcast<f32>(word << 16u){{else}}from_half(word & 0xffffu){{end}};
{{- if .Min}}
			let m = from_half(word >> 16u);
{{- end}}
			for (var g = 0u; g < {{div 32 .Group}}u; g++) {
{{- if eq .Units 8}}
				let i = u % 8u * {{div 32 .Group}}u + g;
				let scale = d * signed(w[head + (1u + i / 4u) * p.n], i % 4u);
{{- if .Min}}
				let low = -(m * signed(w[head + (1u + {{div 64 .Group}}u + i / 4u) * p.n], i % 4u));
{{- end}}
{{- else}}
				let scale = d;
{{- if .Min}}
				let low = m;
{{- end}}
{{- end}}
{{- if eq .High 1}}
				let h = w[base + p.high + u * p.n + n] >> (g * {{.Group}}u);
{{- else if eq .High 2}}
				let h = w[base + p.high + (u * 2u + g) * p.n + n];
{{- end}}
				var sum = array<f32, {{.Rows}}>();
{{- if .Min}}
				var all = array<f32, {{.Rows}}>();
{{- end}}
				for (var j = 0u; j < {{div (mul .Group .Bits) 32}}u; j++) {
					let codes = w[base + (u * {{.Bits}}u + g * {{div (mul .Group .Bits) 32}}u + j) * p.n + n];
					for (var t = 0u; t < {{div 32 .Bits}}u; t++) {
						let e = j * {{div 32 .Bits}}u + t;
						var code = (codes >> (t * {{.Bits}}u)) & {{mask .Bits}}u;
{{- if .High}}
						code |= ((h >> (e * {{.High}}u)) & {{mask .High}}u) << {{.Bits}}u;
{{- end}}
						let q = value(code);
						for (var r = 0u; r < {{.Rows}}u; r++) {
							let v = x[at[r] + u * 32u + g * {{.Group}}u + e];
							sum[r] += q * v;
{{- if .Min}}
							all[r] += v;
{{- end}}
						}
					}
				}
				for (var r = 0u; r < {{.Rows}}u; r++) {
					acc[r] += scale * sum[r]{{if .Min}} + low * all[r]{{end}};
				}
			}
{{- else}}
			for (var k = u * 32u; k < min(u * 32u + 32u, p.k); k++) {
{{- if eq .Plain "f32"}}
				let q = bitcast<f32>(w[base + k * p.n + n]);
{{- else}}
				let word = w[base + k / 2u * p.n + n] >> (k % 2u * 16u);
				let q = {{if eq .Plain "bf16"}}bitcast<f32>(word << 16u){{else}}from_half(word & 0xffffu){{end}};
{{- end}}
				for (var r = 0u; r < {{.Rows}}u; r++) {
					acc[r] += q * x[at[r] + k];
				}
			}
{{- end}}
		}
	}
	for (var r = 0u; r < {{.Rows}}u; r++) {
		sums[(id.y * {{.Rows}}u + r) * 32u + id.x] = acc[r];
	}
	workgroupBarrier();
	if (id.y > 0u || n >= p.n) {
		return;
	}
	for (var r = 0u; r < {{.Rows}}u; r++) {
		if (first + r < rows) {
			var s = sums[r * 32u + id.x];
			for (var i = 1u; i < {{.Slices}}u; i++) {
				s += sums[(i * {{.Rows}}u + r) * 32u + id.x];
			}
			out[(first + r) * p.stride + p.column + n] = s;
		}
	}
}
