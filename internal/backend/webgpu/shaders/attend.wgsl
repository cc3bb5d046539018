// attend is attention for many rows: a workgroup takes a head of 16 of them, and brings
// keys and values, {{.Chunk}} elements of a page at a time, into its memory. It computes
// what attention does, in the same order.
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
@group(0) @binding(2) var<storage, read_write> out: array<vec4f>;
@group(0) @binding(3) var<storage, read> q: array<vec4f>;
@group(0) @binding(4) var<storage, read> keys: array<vec4u>;
@group(0) @binding(5) var<storage, read> values: array<vec4u>;
@group(0) @binding(6) var<storage, read> table: array<u32>; // see cache.go

// Rows of {{.Quads}} quads, whose order is turned from row to row as in product.
var<workgroup> query: array<vec4f, {{mul 16 .Quads}}>;
var<workgroup> tile: array<vec4f, {{mul 64 .Quads}}>;
var<workgroup> weights: array<f32, {{mul 16 65}}>;
var<workgroup> most: array<f32, 256>;
var<workgroup> shrinks: array<f32, 16>;

fn place(row: u32, quad: u32) -> u32 {
	return row * {{.Quads}}u + (quad ^ {{if eq .Quads 8}}(row & 7u){{else}}((row >> 1u) & 3u){{end}});
}

// visible reports whether a row at position pos sees position at.
fn visible(pos: u32, at: u32) -> bool {
	return at <= pos && (p.window == 0u || at + p.window > pos);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let head = wg.y;
	let kv = head * p.kv_heads / p.heads * DIM;
	let until = min(wg.x * 16u + 16u, step.rows);
	var begin = wg.x * 16u;
	while (begin < until) { // a sequence in each turn
		let pages = table[4u * begin + 1u];
		var to = begin + 1u;
		while (to < until && table[4u * min(to, until - 1u) + 1u] == pages) {
			to++;
		}
		let from_page = table[4u * begin + 2u];
		let low = table[4u * begin + 3u];
		let high = table[4u * (to - 1u) + 3u];
		var first = 0u;
		if (p.window > 0u && low + 1u > p.window) {
			first = low + 1u - p.window;
		}
		// An invocation has rows sr and keys sk of the scores, and rows vr and a quad vq of the values.
		let sk = t % 16u;
		let vq = t % {{.Quads}}u;
{{- range $i := seq 4}}
		let sr{{$i}} = t / 16u + {{mul 4 $i}}u;
		let spos{{$i}} = table[4u * min(begin + sr{{$i}}, to - 1u) + 3u];
		var top{{$i}} = -3.402823466e38;
{{- end}}
{{- range $i := seq .Rows}}
		let vr{{$i}} = t / {{$.Quads}}u + {{mul $i (div 64 $.Quads)}}u;
		let vpos{{$i}} = table[4u * min(begin + vr{{$i}}, to - 1u) + 3u];
		var sum{{$i}} = 0.0;
{{- range $c := seq (div $.Dim $.Chunk)}}
		var acc{{$i}}_{{$c}} = vec4f(0.0);
{{- end}}
{{- end}}
		for (var b = first / PAGE; b <= high / PAGE; b++) {
			let slot = table[pages + b - from_page] * PAGE;
{{- range $i := seq 4}}{{range $j := seq 4}}
			var s{{$i}}_{{$j}} = 0.0;
{{- end}}{{end}}
			for (var c = 0u; c < {{div .Dim .Chunk}}u; c++) {
				workgroupBarrier();
				for (var i = t; i < {{mul 16 .Quads}}u; i += 64u) {
					let r = min(begin + i / {{.Quads}}u, to - 1u);
					query[place(i / {{.Quads}}u, i % {{.Quads}}u)] = q[(((r * p.heads + head) * DIM) >> 2u) + c * {{.Quads}}u + i % {{.Quads}}u] * p.scale;
				}
{{template "page" (page . "keys" "c")}}
				workgroupBarrier();
				for (var d = 0u; d < {{.Quads}}u; d++) {
{{- range $j := seq 4}}
					let k{{$j}} = tile[place(sk + {{mul 16 $j}}u, d)];
{{- end}}
{{- range $i := seq 4}}
					let q{{$i}} = query[place(sr{{$i}}, d)];
{{- range $j := seq 4}}
					s{{$i}}_{{$j}} = fma(q{{$i}}.w, k{{$j}}.w, fma(q{{$i}}.z, k{{$j}}.z, fma(q{{$i}}.y, k{{$j}}.y, fma(q{{$i}}.x, k{{$j}}.x, s{{$i}}_{{$j}}))));
{{- end}}
{{- end}}
				}
			}
{{- range $i := seq 4}}
{{- range $j := seq 4}}
			let seen{{$i}}_{{$j}} = visible(spos{{$i}}, b * PAGE + sk + {{mul 16 $j}}u);
			s{{$i}}_{{$j}} = select(-3.402823466e38, s{{$i}}_{{$j}}, seen{{$i}}_{{$j}});
{{- end}}
			most[sr{{$i}} * 16u + sk] = max(max(s{{$i}}_0, s{{$i}}_1), max(s{{$i}}_2, s{{$i}}_3));
{{- end}}
			workgroupBarrier();
{{- range $i := seq 4}}
			{
				var highest = top{{$i}};
				for (var j = 0u; j < 16u; j++) {
					highest = max(highest, most[sr{{$i}} * 16u + j]);
				}
{{- range $j := seq 4}}
				weights[sr{{$i}} * 65u + sk + {{mul 16 $j}}u] = select(0.0, exp_f(s{{$i}}_{{$j}} - highest), seen{{$i}}_{{$j}});
{{- end}}
				if (sk == 0u) {
					shrinks[sr{{$i}}] = exp_f(top{{$i}} - highest);
				}
				top{{$i}} = highest;
			}
{{- end}}
			workgroupBarrier();
{{- range $i := seq .Rows}}
			{
				var more = 0.0;
				for (var j = 0u; j < 64u; j++) {
					more += weights[vr{{$i}} * 65u + j];
				}
				sum{{$i}} = fma(sum{{$i}}, shrinks[vr{{$i}}], more);
			}
{{- end}}
			let whole = b * PAGE + 63u <= low && visible(high, b * PAGE);
{{- range $c := seq (div .Dim .Chunk)}}
			workgroupBarrier();
{{template "page" (page $ "values" (print $c "u"))}}
			workgroupBarrier();
{{- range $i := seq $.Rows}}
			acc{{$i}}_{{$c}} *= shrinks[vr{{$i}}];
{{- end}}
			if (whole) {
				for (var j = 0u; j < 64u; j++) {
					let v = tile[place(j, vq)];
{{- range $i := seq $.Rows}}
					acc{{$i}}_{{$c}} = fma(vec4f(weights[vr{{$i}} * 65u + j]), v, acc{{$i}}_{{$c}});
{{- end}}
				}
			} else {
				for (var j = 0u; j < 64u; j++) { // a value that is not seen may be a NaN
					let v = tile[place(j, vq)];
{{- range $i := seq $.Rows}}
					if (visible(vpos{{$i}}, b * PAGE + j)) {
						acc{{$i}}_{{$c}} = fma(vec4f(weights[vr{{$i}} * 65u + j]), v, acc{{$i}}_{{$c}});
					}
{{- end}}
				}
			}
{{- end}}
		}
{{- range $i := seq .Rows}}
		if (begin + vr{{$i}} < to) {
			let by = 1.0 / sum{{$i}};
{{- range $c := seq (div $.Dim $.Chunk)}}
			out[((((begin + vr{{$i}}) * p.heads + head) * DIM) >> 2u) + {{mul $c $.Quads}}u + vq] = acc{{$i}}_{{$c}} * by;
{{- end}}
		}
{{- end}}
		begin = to;
	}
}
{{define "page"}}
{{- if .F16}}
				for (var i = t; i < {{mul 32 .Quads}}u; i += 64u) {
					let v = {{.What}}[((slot + i / {{div .Quads 2}}u) * p.kv_heads * DIM + kv + {{.At}} * {{.Chunk}}u + i % {{div .Quads 2}}u * 8u) >> 3u];
					tile[place(i / {{div .Quads 2}}u, i % {{div .Quads 2}}u * 2u)] = vec4f(halves(v.x), halves(v.y));
					tile[place(i / {{div .Quads 2}}u, i % {{div .Quads 2}}u * 2u + 1u)] = vec4f(halves(v.z), halves(v.w));
				}
{{- else}}
				for (var i = t; i < {{mul 64 .Quads}}u; i += 64u) {
					tile[place(i / {{.Quads}}u, i % {{.Quads}}u)] = bitcast<vec4<f32>>({{.What}}[((slot + i / {{.Quads}}u) * p.kv_heads * DIM + kv + {{.At}} * {{.Chunk}}u + i % {{.Quads}}u * 4u) >> 2u]);
				}
{{- end}}
{{- end}}
