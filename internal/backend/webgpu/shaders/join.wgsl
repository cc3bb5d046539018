// join joins what attention has made of the pages of a head of a row, in their order: the
// end of Attention. A workgroup takes one head of one row.
struct Params {
	heads: u32,
	window: u32, // positions that are seen, the row's included; 0 for all
}

const VALUE_DIM: u32 = {{.ValueDim}}u;

@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<storage, read> parts: array<f32>; // [pages, rows, heads, VALUE_DIM + 2]: values, maximum, sum
@group(0) @binding(4) var<storage, read> table: array<u32>; // see cache.go
{{- if .Sinks}}
@group(0) @binding(5) var<storage, read> sinks: array<f32>; // see seen.wgsl
{{- end}}

var<workgroup> most: array<f32, 64>;
var<workgroup> sums: array<f32, 64>;
var<workgroup> shrinks: array<f32, 64>;
var<workgroup> grows: array<f32, 64>;

{{template "lowest" .}}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = wg.y * GX + wg.x;
	if (i >= step.rows * p.heads) {
		return;
	}
	let pos = table[4u * (i / p.heads) + 3u];
	let pages = pos / 64u - lowest(pos) / 64u + 1u;
	let pitch = step.rows * p.heads * (VALUE_DIM + 2u);
{{- range $c := (ceil .ValueDim 64)}}
	var acc{{$c}} = 0.0;
{{- end}}
	var top = -3.402823466e38;
	var sum = 0.0;
	for (var b = 0u; b < pages; b += 64u) { // 64 pages in each turn
		let count = min(pages - b, 64u);
		let at = b * pitch + i * (VALUE_DIM + 2u);
		workgroupBarrier();
		most[lane] = -3.402823466e38;
		if (lane < count) {
			most[lane] = parts[at + lane * pitch + VALUE_DIM];
			sums[lane] = parts[at + lane * pitch + VALUE_DIM + 1u];
		}
		workgroupBarrier();
		var before = top;
		for (var j = 0u; j < 64u; j++) {
			top = max(top, most[j]);
			before = select(before, top, j < lane);
		}
		let next = max(before, most[lane]);
		shrinks[lane] = exp_f(before - next);
		grows[lane] = exp_f(most[lane] - next);
		workgroupBarrier();
		for (var j = 0u; j < count; j++) {
			sum = fma(sums[j], grows[j], sum * shrinks[j]);
{{- range $c := (ceil .ValueDim 64)}}
			if ({{mul 64 $c}}u + lane < VALUE_DIM) {
				acc{{$c}} = fma(parts[at + j * pitch + {{mul 64 $c}}u + lane], grows[j], acc{{$c}} * shrinks[j]);
			}
{{- end}}
		}
	}
{{- if .Sinks}}
	let sink = sinks[i % p.heads];
	let highest = max(top, sink);
	let shrink = exp_f(top - highest);
	let by = shrink / fma(sum, shrink, exp_f(sink - highest));
{{- else}}
	let by = 1.0 / sum;
{{- end}}
{{- range $c := (ceil .ValueDim 64)}}
	if ({{mul 64 $c}}u + lane < VALUE_DIM) {
		out[i * VALUE_DIM + {{mul 64 $c}}u + lane] = acc{{$c}} * by;
	}
{{- end}}
}
