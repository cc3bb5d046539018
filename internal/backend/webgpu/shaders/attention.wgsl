// attention lets a head of a row attend to its sequence, page by page of 64
// positions, with a running maximum and sum: Attention. A workgroup takes one head of
// one row. Scores are chains of fma in the order of a head's elements, and what a page
// adds is one in the order of positions, as in attend: so what a head computes follows
// from its position alone.
struct Params {
	heads: u32,
	kv_heads: u32,
	window: u32, // positions that are seen, the row's included; 0 for all
	scale: f32,
}

const DIM: u32 = {{.Dim}}u;
const PAGE: u32 = 64u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read> keys: array<{{if .Wide}}vec4u{{else}}u32{{end}}>;
@group(0) @binding(5) var<storage, read> values: array<u32>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go

var<workgroup> query: array<f32, {{.Dim}}>;
var<workgroup> weights: array<f32, 64>;

// score is the product of the query and the key whose first element is number at.
fn score(at: u32) -> f32 {
	var s = 0.0;
{{- if .Wide}}
{{- if .F16}}
	for (var d = 0u; d < DIM; d += {{.Wide}}u) {
{{- range $i := seq (div .Wide 8)}}
		let k{{$i}} = keys[((at + d) >> 3u) + {{$i}}u];
{{- end}}
{{- range $i := seq (div .Wide 8)}}
{{- range $j := seq 4}}
		{
			let k = halves(k{{$i}}.{{slice "xyzw" $j (add $j 1)}});
			s = fma(query[d + {{add (mul 8 $i) (mul 2 $j) 1}}u], k.y, fma(query[d + {{add (mul 8 $i) (mul 2 $j)}}u], k.x, s));
		}
{{- end}}
{{- end}}
	}
{{- else}}
	for (var d = 0u; d < DIM; d += 4u) {
		let k = bitcast<vec4<f32>>(keys[(at + d) >> 2u]);
		s = fma(query[d + 1u], k.y, fma(query[d], k.x, s));
		s = fma(query[d + 3u], k.w, fma(query[d + 2u], k.z, s));
	}
{{- end}}
{{- else}}
	for (var d = 0u; d < DIM; d++) {
		let i = at + d;
		s = fma(query[d], {{if .F16}}halves(keys[i >> 1u])[i & 1u]{{else}}bitcast<f32>(keys[i]){{end}}, s);
	}
{{- end}}
	return s;
}

fn val(i: u32) -> f32 {
	return {{if .F16}}from_half((values[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu){{else}}bitcast<f32>(values[i]){{end}};
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = wg.y * GX + wg.x;
	if (i >= step.rows * p.heads) {
		return;
	}
	let row = i / p.heads;
	let head = i % p.heads * p.kv_heads / p.heads * DIM;
	let width = {{if .F16}}(p.kv_heads * DIM + 1u) / 2u * 2u{{else}}p.kv_heads * DIM{{end}};
	let pages = table[4u * row + 1u];
	let from_page = table[4u * row + 2u];
	let pos = table[4u * row + 3u];
	for (var d = lane; d < DIM; d += 64u) {
		query[d] = q[i * DIM + d] * p.scale;
	}
	var first = 0u;
	if (p.window > 0u && pos + 1u > p.window) {
		first = pos + 1u - p.window;
	}
{{- range $c := seq (ceil .Dim 64)}}
	var acc{{$c}} = 0.0;
{{- end}}
	var top = -3.402823466e38;
	var sum = 0.0;
	for (var b = first / PAGE; b <= pos / PAGE; b++) {
		workgroupBarrier();
		let slot = table[pages + b - from_page] * PAGE;
		let begin = max(first, b * PAGE) - b * PAGE;
		let end = min(pos - b * PAGE + 1u, PAGE);
		let seen = lane >= begin && lane < end;
		var s = -3.402823466e38;
		if (seen) {
			s = score((slot + lane) * width + head);
		}
		weights[lane] = s;
		workgroupBarrier();
		var highest = top;
{{- range $j := seq 64}}
		highest = max(highest, weights[{{$j}}]);
{{- end}}
		workgroupBarrier();
		weights[lane] = select(0.0, exp_f(s - highest), seen);
		workgroupBarrier();
		let shrink = exp_f(top - highest);
		top = highest;
		var more = 0.0;
{{- range $j := seq 64}}
		more += weights[{{$j}}];
{{- end}}
		sum = fma(sum, shrink, more);
{{- range $c := seq (ceil .Dim 64)}}
		acc{{$c}} *= shrink;
{{- end}}
		var j = begin;
		for (; j + 8u <= end; j += 8u) {
			let at = (slot + j) * width + head + lane;
{{- range $c := seq (ceil .Dim 64)}}
			if ({{mul 64 $c}}u + lane < DIM) {
{{- range $e := seq 8}}
				let v{{$e}} = val(at + {{mul 64 $c}}u + {{$e}}u * width);
{{- end}}
{{- range $e := seq 8}}
				acc{{$c}} = fma(weights[j + {{$e}}u], v{{$e}}, acc{{$c}});
{{- end}}
			}
{{- end}}
		}
		for (; j < end; j++) {
			let at = (slot + j) * width + head + lane;
{{- range $c := seq (ceil .Dim 64)}}
			if ({{mul 64 $c}}u + lane < DIM) {
				acc{{$c}} = fma(weights[j], val(at + {{mul 64 $c}}u), acc{{$c}});
			}
{{- end}}
		}
	}
	let by = 1.0 / sum;
{{- range $c := seq (ceil .Dim 64)}}
	if ({{mul 64 $c}}u + lane < DIM) {
		out[i * DIM + {{mul 64 $c}}u + lane] = acc{{$c}} * by;
	}
{{- end}}
}
