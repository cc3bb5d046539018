// eachstep computes the part of a scan whose keys' elements decay by themselves that rows have for themselves: of Mamba
// 1 the length of a step, the weighed input and the skipped input of a row's head; with Delta the decays of each element
// of a head's key, and then the share of the correction. An invocation takes a number, or a head of Mamba 1.
struct Params {
	heads: u32,
	n: u32, // of a key
	most: f32, // of the share of a correction
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<{{if .Delta}}f32{{else}}vec3f{{end}}>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
@group(0) @binding(4) var<storage, read> weights: array<f32>; // decays, biases{{if not .Delta}} and weights of inputs{{end}}
@group(0) @binding(5) var<storage, read> other: array<f32>; // {{if .Delta}}beta{{else}}inputs{{end}}

{{template "softplus.wgsl"}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
{{- if .Delta}}
	let numbers = p.n + 1u;
	if (i >= step.rows * p.heads * numbers) {
		return;
	}
	let head = i / numbers;
	let j = i % numbers;
	let h = head % p.heads;
	if (j == p.n) {
		out[i] = p.most / (1.0 + exp_f(-other[head]));
		return;
	}
	out[i] = exp_f(weights[h] * softplus(x[head * p.n + j] + weights[p.heads + h * p.n + j]));
{{- else}}
	if (i >= step.rows * p.heads) {
		return;
	}
	let bias = p.heads * p.n + i % p.heads;
	let len = softplus(x[i] + weights[bias]);
	out[i] = vec3f(len, len * other[i], weights[bias + p.heads] * other[i]);
{{- end}}
}
