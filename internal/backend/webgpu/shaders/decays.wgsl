// decays computes the part of a scan that each row of a head has for itself: the logarithm of the decay, then Mamba 2's
// length of the step and weight of the input, or with Delta the share of the correction. An invocation takes a head of
// a row.
struct Params {
	heads: u32,
	most: f32, // of the share of a correction
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<vec3f>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // decays, biases{{if not .Delta}} and weights of inputs{{end}}, [heads] each
{{if .Delta}}@group(0) @binding(5) var<storage, read> beta: array<f32>;{{end}}

{{template "softplus.wgsl"}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.heads) {
		return;
	}
	let h = i % p.heads;
	let len = softplus(x[i] + weights[p.heads + h]);
	{{if .Delta}}out[i] = vec3f(weights[h] * len, p.most / (1.0 + exp_f(-beta[i])), 0.0);{{else}}out[i] = vec3f(weights[h] * len, len, weights[2u * p.heads + h]);{{end}}
}
