// read reads a buffer, as fast as can be: what the GPU's memory gives.
struct Params {
	quads: u32, // of the buffer
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<storage, read> x: array<vec4u>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let at = wg.x * 2048u + lane;
	var s = vec4u(0u);
{{- range $i := 8}}
	s ^= x[min(at + {{mul 256 $i}}u, p.quads - 1u)];
{{- end}}
	if ((s.x ^ s.y ^ s.z ^ s.w) == 0x9e3779b9u) { // hardly ever
		out[0] = s.x;
	}
}
