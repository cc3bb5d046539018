{{$quads := div .Chunk 4 -}}
{{$rows := div .Chunk 16 -}}
// attend is attention for many rows: a workgroup takes a head of 16 of them, and brings
// keys and values, {{.Chunk}} elements of a page at a time, into its memory.
{{template "seen.wgsl" .}}
// Rows of {{$quads}} quads, whose order is turned from row to row as in product.
var<workgroup> query: array<vec4f, {{mul 16 $quads}}>;
var<workgroup> tile: array<vec4f, {{mul 64 $quads}}>;
var<workgroup> weights: array<f32, {{mul 16 65}}>;
var<workgroup> most: array<f32, 256>;
var<workgroup> shrinks: array<f32, 16>;
var<workgroup> grows: array<f32, 16>;

fn place(row: u32, quad: u32) -> u32 {
	return row * {{$quads}}u + (quad ^ {{if eq $quads 8}}(row & 7u){{else}}((row >> 1u) & 3u){{end}});
}

// visible reports whether a row sees position at. Without groups a row is its position: some compilers take minutes for
// the bounds of rows.
{{- if .Grouped}}
fn visible(row: vec2u, at: u32) -> bool {
	return at <= row.y && at >= row.x;
}
{{- else}}
fn visible(row: u32, at: u32{{if .Ahead}}, end: u32{{end}}) -> bool {
	return at <= {{if .Ahead}}newest(row, end){{else}}row{{end}} && at >= lowest(row);
}
{{- end}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let head = wg.y;
	let kv = head * p.kv_heads / p.heads * DIM;
	let part = head * p.kv_heads / p.heads * VALUE_STEP;
	let until = min(wg.x * 16u + 16u, step.rows);
	var begin = wg.x * 16u;
	while (begin < until) { // a sequence in each turn
		let pages = table[4u * begin + 1u];
		var to = begin + 1u;
		while (to < until && table[4u * min(to, until - 1u) + 1u] == pages) {
			to++;
		}
		let from_page = table[4u * begin + 2u];
{{- if .Grouped}}
		var low = bounds(begin); // the least first and last position of a row, and the greatest
		var high = bounds(to - 1u);
{{- else}}
		let low = table[4u * begin + 3u];
		let high = table[4u * (to - 1u) + 3u];
{{- if .Ahead}}
		let end = table[pages - 1u];
{{- end}}
{{- end}}
{{- if and .Ahead .Grouped}}
		for (var row = begin; row < to; row++) {
			low = min(low, bounds(row));
			high = max(high, bounds(row));
		}
{{- end}}
		// An invocation has rows sr and keys sk of the scores, and rows vr and a quad vq of the values.
		let sk = t % 16u;
		let vq = t % {{$quads}}u;
{{- range $i := 4}}
		let sr{{$i}} = t / 16u + {{mul 4 $i}}u;
		let sees{{$i}} = {{if $.Grouped}}bounds(min(begin + sr{{$i}}, to - 1u)){{else}}table[4u * min(begin + sr{{$i}}, to - 1u) + 3u]{{end}};
		var top{{$i}} = NONE;
{{- end}}
{{- range $i := $rows}}
		let vr{{$i}} = t / {{$quads}}u + {{mul $i (div 64 $quads)}}u;
		let reads{{$i}} = {{if $.Grouped}}bounds(min(begin + vr{{$i}}, to - 1u)){{else}}table[4u * min(begin + vr{{$i}}, to - 1u) + 3u]{{end}};
		var sum{{$i}} = 0.0;
{{- range $c := (div $.ValueDim $.Chunk)}}
		var acc{{$i}}_{{$c}} = vec4f(0.0);
{{- end}}
{{- end}}
{{- if .Grouped}}
		let first = low.x;
		let last = high.y;
{{- else}}
		let first = lowest(low);
		let last = {{if .Ahead}}newest(high, end){{else}}high{{end}};
{{- end}}
		for (var b = first / PAGE; b <= last / PAGE; b++) {
			let slot = table[pages + b - from_page] * PAGE;
{{- range $i := 4}}{{range $j := 4}}
			var s{{$i}}_{{$j}} = 0.0;
{{- end}}{{end}}
			for (var c = 0u; c < {{div .Dim .Chunk}}u; c++) {
				workgroupBarrier();
				for (var i = t; i < {{mul 16 $quads}}u; i += 64u) {
					let r = min(begin + i / {{$quads}}u, to - 1u);
					query[place(i / {{$quads}}u, i % {{$quads}}u)] = q[(((r * p.heads + head) * DIM) >> 2u) + c * {{$quads}}u + i % {{$quads}}u] * p.scale;
				}
{{template "page" (page . "keys" "c")}}
				workgroupBarrier();
{{- range $i := 4}}{{range $j := 4}}
				var t{{$i}}_{{$j}} = 0.0;
{{- end}}{{end}}
				for (var d = 0u; d < {{$quads}}u; d++) {
{{- range $j := 4}}
					let k{{$j}} = tile[place(sk + {{mul 16 $j}}u, d)];
{{- end}}
{{- range $i := 4}}
					let q{{$i}} = query[place(sr{{$i}}, d)];
{{- range $j := 4}}
					t{{$i}}_{{$j}} = fma(q{{$i}}.w, k{{$j}}.w, fma(q{{$i}}.z, k{{$j}}.z, fma(q{{$i}}.y, k{{$j}}.y, fma(q{{$i}}.x, k{{$j}}.x, t{{$i}}_{{$j}}))));
{{- end}}
{{- end}}
				}
{{- range $i := 4}}{{range $j := 4}}
				s{{$i}}_{{$j}} += t{{$i}}_{{$j}};
{{- end}}{{end}}
			}
{{- range $i := 4}}
{{- range $j := 4}}
			let seen{{$i}}_{{$j}} = visible(sees{{$i}}, b * PAGE + sk + {{mul 16 $j}}u{{if and $.Ahead (not $.Grouped)}}, end{{end}});
{{- if $.Capped}}
			s{{$i}}_{{$j}} = p.cap * tanh_f(s{{$i}}_{{$j}} / p.cap);
{{- end}}
			s{{$i}}_{{$j}} = select(NONE, s{{$i}}_{{$j}}, seen{{$i}}_{{$j}});
{{- end}}
			most[sr{{$i}} * 16u + sk] = max(max(s{{$i}}_0, s{{$i}}_1), max(s{{$i}}_2, s{{$i}}_3));
{{- end}}
			workgroupBarrier();
{{- range $i := 4}}
			{
				var highest = most[sr{{$i}} * 16u];
				for (var j = 1u; j < 16u; j++) {
					highest = max(highest, most[sr{{$i}} * 16u + j]);
				}
{{- range $j := 4}}
				weights[sr{{$i}} * 65u + sk + {{mul 16 $j}}u] = select(0.0, exp_f(s{{$i}}_{{$j}} - highest), seen{{$i}}_{{$j}});
{{- end}}
				let next = max(top{{$i}}, highest);
				if (sk == 0u) {
					shrinks[sr{{$i}}] = exp_f(top{{$i}} - next);
					grows[sr{{$i}}] = exp_f(highest - next);
				}
				top{{$i}} = next;
			}
{{- end}}
			workgroupBarrier();
{{- range $i := $rows}}
			{
				var more = 0.0;
				for (var g = 0u; g < 64u; g += 16u) {
					var some = 0.0;
					for (var j = g; j < g + 16u; j++) {
						some += weights[vr{{$i}} * 65u + j];
					}
					more += some;
				}
				sum{{$i}} = fma(more, grows[vr{{$i}}], sum{{$i}} * shrinks[vr{{$i}}]);
			}
{{- end}}
{{- if .Grouped}}
			let whole = b * PAGE + 63u <= low.y && b * PAGE >= high.x;
{{- else}}
			let whole = visible(low, b * PAGE + 63u{{if .Ahead}}, end{{end}}) && visible(high, b * PAGE{{if .Ahead}}, end{{end}});
{{- end}}
{{- range $c := (div .ValueDim .Chunk)}}
			workgroupBarrier();
{{template "page" (page $ "values" (print $c "u"))}}
			workgroupBarrier();
{{- range $i := $rows}}
			var page{{$c}}_{{$i}} = vec4f(0.0);
{{- end}}
			for (var g = 0u; g < 64u; g += 16u) {
{{- range $i := $rows}}
				var part{{$i}} = vec4f(0.0);
{{- end}}
				if (whole) {
					for (var j = g; j < g + 16u; j++) {
						let v = tile[place(j, vq)];
{{- range $i := $rows}}
						part{{$i}} = fma(vec4f(weights[vr{{$i}} * 65u + j]), v, part{{$i}});
{{- end}}
					}
				} else {
					for (var j = g; j < g + 16u; j++) { // a value that is not seen may be a NaN
						let v = tile[place(j, vq)];
{{- range $i := $rows}}
						if (visible(reads{{$i}}, b * PAGE + j{{if and $.Ahead (not $.Grouped)}}, end{{end}})) {
							part{{$i}} = fma(vec4f(weights[vr{{$i}} * 65u + j]), v, part{{$i}});
						}
{{- end}}
					}
				}
{{- range $i := $rows}}
				page{{$c}}_{{$i}} += part{{$i}};
{{- end}}
			}
{{- range $i := $rows}}
			acc{{$i}}_{{$c}} = fma(page{{$c}}_{{$i}}, vec4f(grows[vr{{$i}}]), acc{{$i}}_{{$c}} * shrinks[vr{{$i}}]);
{{- end}}
{{- end}}
		}
{{- if .Sinks}}
		let sink = sinks[head];
		workgroupBarrier();
		if (sk == 0u) {
{{- range $i := 4}}
			shrinks[sr{{$i}}] = top{{$i}};
{{- end}}
		}
		workgroupBarrier();
{{- end}}
{{- range $i := $rows}}
		if (begin + vr{{$i}} < to) {
{{- if $.Sinks}}
			let last = max(shrinks[vr{{$i}}], sink);
			let left = exp_f(shrinks[vr{{$i}}] - last);
			let by = left / fma(sum{{$i}}, left, exp_f(sink - last));
{{- else}}
			let by = 1.0 / sum{{$i}};
{{- end}}
{{- range $c := (div $.ValueDim $.Chunk)}}
			out[((((begin + vr{{$i}}) * p.heads + head) * VALUE_DIM) >> 2u) + {{mul $c $quads}}u + vq] = acc{{$i}}_{{$c}} * by;
{{- end}}
		}
{{- end}}
		begin = to;
	}
}
{{define "page"}}{{- $quads := div .Chunk 4}}{{- $keys := eq .What "keys"}}{{- $pitch := pick $keys "DIM" "VALUE_STEP"}}{{- $first := pick $keys "kv" "part"}}
{{- if .F16}}
				for (var i = t; i < {{mul 32 $quads}}u; i += 64u) {
					let v = {{.What}}[((slot + i / {{div $quads 2}}u) * p.kv_heads * {{$pitch}} + {{$first}} + {{.At}} * {{.Chunk}}u + i % {{div $quads 2}}u * 8u) >> 3u];
					tile[place(i / {{div $quads 2}}u, i % {{div $quads 2}}u * 2u)] = vec4f(halves(v.x), halves(v.y));
					tile[place(i / {{div $quads 2}}u, i % {{div $quads 2}}u * 2u + 1u)] = vec4f(halves(v.z), halves(v.w));
				}
{{- else}}
				for (var i = t; i < {{mul 64 $quads}}u; i += 64u) {
					tile[place(i / {{$quads}}u, i % {{$quads}}u)] = bitcast<vec4<f32>>({{.What}}[((slot + i / {{$quads}}u) * p.kv_heads * {{$pitch}} + {{$first}} + {{.At}} * {{.Chunk}}u + i % {{$quads}}u * 4u) >> 2u]);
				}
{{- end}}
{{- end}}
