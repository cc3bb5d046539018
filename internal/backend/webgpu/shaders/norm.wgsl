// norm divides vectors by their root mean square: RMSNorm. A workgroup takes one.
struct Params {
	size: u32, // of a vector
	vectors: u32, // of a row
	eps: f32,
	offset: f32, // is added to the weight
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<{{.Of}}>;
@group(0) @binding(3) var<storage, read> x: array<{{.Of}}>;
{{if .Weight}}@group(0) @binding(4) var<storage, read> w: array<{{.Of}}>;{{end}}

var<workgroup> sums: array<f32, {{.Threads}}>;

@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let v = wg.y * GX + wg.x;
	if (v >= step.rows * p.vectors) {
		return;
	}
	let size = p.size{{if eq .Of "vec4f"}} >> 2u{{end}};
	let at = v * size;
	var s = 0.0;
	for (var i = lane; i < size; i += {{.Threads}}u) {
		let e = x[at + i];
{{- if eq .Of "vec4f"}}
		s = fma(e.w, e.w, fma(e.z, e.z, fma(e.y, e.y, fma(e.x, e.x, s))));
{{- else}}
		s = fma(e, e, s);
{{- end}}
	}
	sums[lane] = s;
	for (var n = {{div .Threads 2}}u; n > 0u; n >>= 1u) {
		workgroupBarrier();
		if (lane < n) {
			sums[lane] += sums[lane + n];
		}
	}
	workgroupBarrier();
	let r = 1.0 / sqrt(sums[0] / f32(p.size) + p.eps);
	for (var i = lane; i < size; i += {{.Threads}}u) {
		out[at + i] = x[at + i] * r{{if .Weight}} * ({{.Of}}(p.offset) + w[i]){{end}};
	}
}
