// map computes each element from those at the same place of one or two inputs:
// Add, Mul, Scale, GLU, Act and Softcap. The second one may be a weight of period
// elements that is repeated over the rows. With Split the inputs are the halves of
// rows of 2·period; with Interleaved they are there by turns.
struct Params {
	size: u32, // elements of a row
	period: u32, // 0: the second input is like the first
	value: f32,
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> x: array<f32>;
{{if .Binary}}@group(0) @binding(4) var<storage, read> y: array<f32>;{{end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i >= step.rows * p.size) {
		return;
	}
{{- if .Split}}
	let at = i / p.period * 2u * p.period + i % p.period;
	let a = x[at];
	let b = x[at + p.period];
{{- else if .Interleaved}}
	let a = x[2u * i];
	let b = x[2u * i + 1u];
{{- else}}
	let a = x[i];
{{- if .Binary}}
	var at = i;
	if (p.period > 0u) {
		at = i % p.period;
	}
	let b = y[at];
{{- end}}
{{- end}}
	out[i] = {{.Is}};
}
