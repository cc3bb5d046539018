// choose is route by other rules: {{.Weigh}} for weights{{if .Normalize}}, divided by their sum{{end}}{{if .Bias}}, and a bias that the choice alone sees{{end}}.
{{- if .Groups}}
// Experts are in {{.Groups}} runs, and those of the best runs come first.
{{- end}}
struct Params {
	experts: u32,
	choices: u32,
	factor: f32,
{{- if eq .Weigh "sparse_mixer"}}
	near: f32,
{{- end}}
{{- if .Groups}}
	kept: u32, // groups that are chosen from
	best: u32, // experts of a group that are summed up
{{- end}}
}

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>; // [rows, choices, 2]: index and weight
@group(0) @binding(3) var<storage, read> scores: array<f32>;
{{- if .Scale}}
@group(0) @binding(4) var<storage, read> scale: array<f32>;
{{- end}}
{{- if .Bias}}
@group(0) @binding({{if .Scale}}5{{else}}4{{end}}) var<storage, read> bias: array<f32>;
{{- end}}

{{- $top := eq .Weigh "softmax_all"}}

// weigh is what a score weighs, before weights are divided by their sum.
fn weigh(s: f32{{if $top}}, top: f32, all: f32{{end}}) -> f32 {
{{- if $top}}
	return exp_f(s - top) / all;
{{- else if eq .Weigh "sigmoid"}}
	return sigmoid(s);
{{- else}}
	return s;
{{- end}}
}

// by is what expert e of the row whose scores begin with number at is chosen by.
fn by(at: u32, e: u32{{if $top}}, top: f32, all: f32{{end}}) -> f32 {
	return {{if .Weighed}}weigh(scores[at + e]{{if $top}}, top, all{{end}}){{else}}scores[at + e]{{end}}{{if .Bias}} + bias[e]{{end}};
}

// better reports whether x comes before y, of which that of NaNs or of equals has come first.
fn better(x: f32, y: f32) -> bool {
	return x > y || (is_nan(y) && !is_nan(x));
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let row = (wg.y * GX + wg.x) * 64u + lane;
	if (row >= step.rows) {
		return;
	}
	let at = row * p.experts;
	let to = row * p.choices * 2u;
{{- if eq .Weigh "softmax_all"}}
	var top = -3.402823466e38;
	var all = 0.0;
	for (var e = 0u; e < p.experts; e++) {
		top = max(top, scores[at + e]);
	}
	for (var e = 0u; e < p.experts; e++) {
		all += exp_f(scores[at + e] - top);
	}
{{- end}}
{{- if .Groups}}
	let size = p.experts / {{.Groups}}u;
	var sums = array<f32, {{.Groups}}>();
	var taken = array<bool, {{.Groups}}>();
	for (var g = 0u; g < {{.Groups}}u; g++) {
		var last = p.experts; // the one before, none at first
		var below = 0.0;
		for (var j = 0u; j < p.best; j++) {
			var next = p.experts;
			var value = 0.0;
			for (var e = g * size; e < (g + 1u) * size; e++) {
				let s = by(at, e{{if $top}}, top, all{{end}});
				let left = last == p.experts || better(below, s) || (!better(s, below) && e > last);
				if (left && (next == p.experts || better(s, value))) {
					next = e;
					value = s;
				}
			}
			sums[g] += value;
			last = next;
			below = value;
		}
	}
	for (var j = 0u; j < p.kept; j++) {
		var best = {{.Groups}}u;
		for (var g = 0u; g < {{.Groups}}u; g++) {
			if (!taken[g] && (best == {{.Groups}}u || better(sums[g], sums[min(best, {{add .Groups -1}}u)]))) {
				best = g;
			}
		}
		taken[best] = true;
	}
{{- end}}
	var sum = 0.0;
	for (var j = 0u; j < p.choices; j++) {
		var best = p.experts; // none
		var value = 0.0;
{{- if .Groups}}
		var among = false; // the groups that are chosen from
{{- end}}
		for (var e = 0u; e < p.experts; e++) {
			var before = false;
			for (var t = 0u; t < j; t++) {
				before = before || u32(out[to + 2u * t]) == e;
			}
			let s = by(at, e{{if $top}}, top, all{{end}});
{{- if .Groups}}
			let kept = taken[e / size];
			if (!before && (best == p.experts || (kept && !among) || (kept == among && better(s, value)))) {
				among = kept;
{{- else}}
			if (!before && (best == p.experts || better(s, value))) {
{{- end}}
				best = e;
				value = s;
			}
		}
		let weight = weigh(scores[at + best]{{if $top}}, top, all{{end}});
{{- if eq .Weigh "softmax_chosen"}}
		out[to + 2u * j + 1u] = weight;
{{- else}}
		sum += weight;
		out[to + 2u * j + 1u] = weight;
{{- end}}
		out[to + 2u * j] = f32(best);
	}
{{- if eq .Weigh "softmax_chosen"}}
	var first = out[to + 1u];
	for (var j = 1u; j < p.choices; j++) {
		first = max(first, out[to + 2u * j + 1u]);
	}
	for (var j = 0u; j < p.choices; j++) {
		let w = exp_f(out[to + 2u * j + 1u] - first);
		sum += w;
		out[to + 2u * j + 1u] = w;
	}
{{- end}}
{{- if eq .Weigh "sparse_mixer"}}
	for (var j = 0u; j < p.choices; j++) { // the softmax of what lies near, among those left
		let most = out[to + 2u * j + 1u];
		var all = 0.0;
		for (var e = 0u; e < p.experts; e++) {
			var before = false;
			for (var t = 0u; t < j; t++) {
				before = before || u32(out[to + 2u * t]) == e;
			}
			let s = scores[at + e];
			if (!before && !(most - s > p.near * max(abs(s), most))) {
				all += exp_f(s - most);
			}
		}
		out[to + 2u * j + 1u] = 1.0 / all;
	}
{{- end}}
	for (var j = 0u; j < p.choices; j++) {
		let w = out[to + 2u * j + 1u]{{if eq .Weigh "softmax_chosen"}} / sum{{else if .Normalize}} / (sum{{.Eps}}){{end}};
		out[to + 2u * j + 1u] = w * p.factor{{if .Scale}} * scale[u32(out[to + 2u * j])]{{end}};
	}
}
