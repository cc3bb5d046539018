{{$down := div .WM .M -}}
{{$wide := div .Chunk (mul .Across .N) -}}
{{$scores := div 64 (mul .Across .N) -}}
{{$chunks := div .Dim .Chunk -}}
{{$loads := div (mul 8 .Chunk) .Threads -}}
// flash is attention for many rows on matrix units. The heads that share keys and values stand
// as rows, {{.BM}} of them in a workgroup's tile: row {{.BM}}i+j of the tiles is head r % group of row r / group
// of the step, r = {{.BM}}i+j. A tile goes over its pages twice: first for each row's highest score, then
// for its weights relative to that, and their products with the values, whose sums so can stay
// in the matrix unit. Operands are binary16: a row of queries is taken to 2^13 by a power of
// two, as narrow does, and weights are times 2^15. Sums are float32, in the order of
// positions, and what a row does not see adds zeros: its bits follow from its position alone.
{{template "seen.wgsl" .}}

// Rows are 16 bytes longer than they need, so that neighbouring ones lie in different banks.
const LQ: u32 = {{add .Dim 8}}u;
const LT: u32 = {{add .Chunk 8}}u;
const LS: u32 = 68u;
const LW: u32 = 72u;
var<workgroup> query: array<f16, {{mul .BM (add .Dim 8)}}>;
var<workgroup> tile: array<f16, {{mul 64 (add .Chunk 8)}}>; // {{.Chunk}} elements of a page's keys or values
var<workgroup> scores: array<f32, {{mul .BM 68}}>;
var<workgroup> weights: array<f16, {{mul .BM 72}}>;
var<workgroup> seen: array<vec2u, {{.BM}}>; // the first position that a row sees, and how far the last is from it
var<workgroup> largest: array<atomic<u32>, {{.BM}}>;
var<workgroup> factors: array<f32, {{.BM}}>; // what makes exponents of 2 of a row's products
var<workgroup> tops: array<f32, {{.BM}}>; // 15, so that weights are times 2^15, less a row's largest exponent

// place is where sixteen bytes of chunk c of a page lie: number i of them.
fn place(slot: u32, head: u32, c: u32, i: u32) -> u32 {
	return (((slot + i / {{div .Chunk 8}}u) * p.kv_heads + head) * DIM + c * {{.Chunk}}u) / 8u + i % {{div .Chunk 8}}u;
}

// put puts them into the tile.
fn put(i: u32, v: vec4u) {
	let at = i / {{div .Chunk 8}}u * LT + i % {{div .Chunk 8}}u * 8u;
{{- range $q := 4}}
	let p{{$q}} = bitcast<vec2<f16>>(v[{{$q}}]);
	tile[at + {{mul 2 $q}}u] = p{{$q}}.x;
	tile[at + {{add 1 (mul 2 $q)}}u] = p{{$q}}.y;
{{- end}}
}

@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let group = p.heads / p.kv_heads;
	let all = step.rows * group;
	let first = ((all + {{add .BM -1}}u) / {{.BM}}u - 1u - wg.x) * {{.BM}}u; // those that see most begin
	let wm = t / {{mul .Lanes .Across}}u * {{.WM}}u;
	let wn = t / {{.Lanes}}u % {{.Across}}u;
	if (t < {{.BM}}u) {
		atomicStore(&largest[t], 0u);
	}
	workgroupBarrier();
	for (var i = t; i < {{mul .BM (div .Dim 4)}}u; i += {{.Threads}}u) {
		let r = min(first + i / {{div .Dim 4}}u, all - 1u);
		let v = bitcast<vec4<u32>>(q[((r / group * p.heads + wg.y * group + r % group) * DIM) / 4u + i % {{div .Dim 4}}u]) & vec4u(0x7fffffffu);
		atomicMax(&largest[i / {{div .Dim 4}}u], max(max(v.x, v.y), max(v.z, v.w)));
	}
	workgroupBarrier();
	for (var i = t; i < {{mul .BM (div .Dim 4)}}u; i += {{.Threads}}u) {
		let r = min(first + i / {{div .Dim 4}}u, all - 1u);
		let e = clamp(atomicLoad(&largest[i / {{div .Dim 4}}u]) >> 23u, 14u, 254u);
		let up = bitcast<f32>((267u - e) << 23u);
		let v = vec4<f16>(q[((r / group * p.heads + wg.y * group + r % group) * DIM) / 4u + i % {{div .Dim 4}}u] * up);
		let at = i / {{div .Dim 4}}u * LQ + i % {{div .Dim 4}}u * 4u;
{{- range $q := 4}}
		query[at + {{$q}}u] = v[{{$q}}];
{{- end}}
	}
	if (t < {{.BM}}u) {
		let e = clamp(atomicLoad(&largest[t]) >> 23u, 14u, 254u);
		factors[t] = bitcast<f32>((e - 13u) << 23u) * (p.scale * 1.44269504);
	}
{{- range $i := .Rows}}
	let r{{$i}} = t / 32u + {{mul $i (div $.Threads 32)}}u; // two columns of whose scores are this invocation's
	var sum{{$i}} = 0.0;
{{- end}}
{{- range $c := $chunks}}{{range $i := $down}}{{range $j := $wide}}
	var a{{$c}}_{{$i}}_{{$j}} = subgroup_matrix_result<f32, {{$.N}}, {{$.M}}>();
{{- end}}{{end}}{{end}}
	var begin = first / group;
	let until = (min(first + {{.BM}}u, all) - 1u) / group + 1u;
	while (begin < until) { // a sequence in each turn
		let pages = table[4u * begin + 1u];
		var to = begin + 1u;
		while (to < until && table[4u * min(to, until - 1u) + 1u] == pages) {
			to++;
		}
		let low = lowest(table[4u * begin + 3u]);
		let high = table[4u * (to - 1u) + 3u];
		let from_page = pages - table[4u * begin + 2u];
		let page = low / PAGE;
		let count = high / PAGE + 1u - page;
		if (t < {{.BM}}u) {
			let row = (first + t) / group;
			let pos = table[4u * clamp(row, begin, to - 1u) + 3u];
			seen[t] = select(vec2u(0xffffffffu, 0u), vec2u(lowest(pos), pos - lowest(pos)), row >= begin && row < to);
		}
{{- range $i := .Rows}}
		var top{{$i}} = NONE;
{{- end}}
		var slot = table[from_page + page] * PAGE;
{{- range $i := $loads}}
		var f{{$i}} = keys[place(slot, wg.y, 0u, t + {{mul $i $.Threads}}u)];
{{- end}}
		for (var k = 0u; k < 2u * count; k++) {
			let b = page + select(k - count, k, k < count);
			let next = table[from_page + select(b + 1u, page, b == high / PAGE)] * PAGE;
{{- range $i := $down}}{{range $j := $scores}}
			var s{{$i}}_{{$j}} = subgroup_matrix_result<f32, {{$.N}}, {{$.M}}>();
{{- end}}{{end}}
{{- range $c := $chunks}}
			workgroupBarrier();
{{- range $i := $loads}}
			put(t + {{mul $i $.Threads}}u, f{{$i}});
{{- end}}
			workgroupBarrier();
{{- if lt (add $c 1) $chunks}}
{{- range $i := $loads}}
			f{{$i}} = keys[place(slot, wg.y, {{add $c 1}}u, t + {{mul $i $.Threads}}u)];
{{- end}}
{{- else}}
			if (k < count) {
{{- range $i := $loads}}
				f{{$i}} = keys[place(next, wg.y, 0u, t + {{mul $i $.Threads}}u)];
{{- end}}
			} else {
{{- range $i := $loads}}
				f{{$i}} = values[place(slot, wg.y, 0u, t + {{mul $i $.Threads}}u)];
{{- end}}
			}
{{- end}}
{{- range $k := (div $.Chunk $.K)}}
			{
{{- range $i := $down}}
				let l{{$i}} = subgroupMatrixLoad<subgroup_matrix_left<f16, {{$.K}}, {{$.M}}>, row_major>(&query, (wm + {{mul $i $.M}}u) * LQ + {{add (mul $c $.Chunk) (mul $k $.K)}}u, LQ);
{{- end}}
{{- range $j := $scores}}
				let r{{$j}} = subgroupMatrixLoad<subgroup_matrix_right<f16, {{$.N}}, {{$.K}}>, col_major>(&tile, (wn * {{div 64 $.Across}}u + {{mul $j $.N}}u) * LT + {{mul $k $.K}}u, LT);
{{- range $i := $down}}
				s{{$i}}_{{$j}} = subgroupMatrixMultiplyAccumulate(l{{$i}}, r{{$j}}, s{{$i}}_{{$j}});
{{- end}}
{{- end}}
			}
{{- end}}
{{- end}}
{{- range $i := $down}}{{range $j := $scores}}
			subgroupMatrixStore<row_major>(&scores, (wm + {{mul $i $.M}}u) * LS + wn * {{div 64 $.Across}}u + {{mul $j $.N}}u, s{{$i}}_{{$j}}, LS);
{{- end}}{{end}}
			workgroupBarrier();
			let at = b * PAGE + t % 32u;
			if (k < count) {
{{- range $i := .Rows}}
				{
					let has = seen[r{{$i}}];
					let by = factors[r{{$i}}];
{{- range $j := 2}}
					top{{$i}} = max(top{{$i}}, select(NONE, scores[r{{$i}} * LS + t % 32u + {{mul 32 $j}}u] * by, at + {{mul 32 $j}}u - has.x <= has.y));
{{- end}}
				}
{{- end}}
				if (k + 1u == count) {
					workgroupBarrier();
{{- range $i := .Rows}}
					scores[r{{$i}} * 33u + t % 32u] = top{{$i}};
{{- end}}
					workgroupBarrier();
					if (t < {{.BM}}u) {
						var most = scores[t * 33u];
						for (var j = 1u; j < 32u; j++) {
							most = max(most, scores[t * 33u + j]);
						}
						tops[t] = 15.0 - most;
					}
				}
			} else {
{{- range $i := .Rows}}
				{
					let has = seen[r{{$i}}];
					let by = factors[r{{$i}}];
					let top = tops[r{{$i}}];
{{- range $j := 2}}
					let w{{$j}} = f16(select(0.0, exp2(fma(scores[r{{$i}} * LS + t % 32u + {{mul 32 $j}}u], by, top)), at + {{mul 32 $j}}u - has.x <= has.y));
					weights[r{{$i}} * LW + t % 32u + {{mul 32 $j}}u] = w{{$j}};
					sum{{$i}} += f32(w{{$j}});
{{- end}}
				}
{{- end}}
{{- range $c := $chunks}}
				workgroupBarrier();
{{- range $i := $loads}}
				{ // a value that is not seen may be a NaN
					let i = t + {{mul $i $.Threads}}u;
					let at = b * PAGE + i / {{div $.Chunk 8}}u;
					put(i, select(vec4u(0u), f{{$i}}, at >= low && at <= high));
				}
{{- end}}
				workgroupBarrier();
{{- range $i := $loads}}
				f{{$i}} = {{if lt (add $c 1) $chunks}}values[place(slot, wg.y, {{add $c 1}}u{{else}}keys[place(next, wg.y, 0u{{end}}, t + {{mul $i $.Threads}}u)];
{{- end}}
{{- range $k := (div 64 $.K)}}
				{
{{- range $i := $down}}
					let l{{$i}} = subgroupMatrixLoad<subgroup_matrix_left<f16, {{$.K}}, {{$.M}}>, row_major>(&weights, (wm + {{mul $i $.M}}u) * LW + {{mul $k $.K}}u, LW);
{{- end}}
{{- range $j := $wide}}
					let r{{$j}} = subgroupMatrixLoad<subgroup_matrix_right<f16, {{$.N}}, {{$.K}}>, row_major>(&tile, {{mul $k $.K}}u * LT + wn * {{div $.Chunk $.Across}}u + {{mul $j $.N}}u, LT);
{{- range $i := $down}}
					a{{$c}}_{{$i}}_{{$j}} = subgroupMatrixMultiplyAccumulate(l{{$i}}, r{{$j}}, a{{$c}}_{{$i}}_{{$j}});
{{- end}}
{{- end}}
				}
{{- end}}
{{- end}}
			}
			slot = next;
		}
		workgroupBarrier();
		begin = to;
	}
{{- range $i := .Rows}}
	scores[r{{$i}} * 33u + t % 32u] = sum{{$i}};
{{- end}}
	workgroupBarrier();
	if (t < {{.BM}}u) {
		var sum = scores[t * 33u];
		for (var j = 1u; j < 32u; j++) {
			sum += scores[t * 33u + j];
		}
		factors[t] = 1.0 / sum;
	}
{{- range $c := $chunks}}
	workgroupBarrier();
{{- range $i := $down}}{{range $j := $wide}}
	subgroupMatrixStore<row_major>(&scores, (wm + {{mul $i $.M}}u) * LS + wn * {{div $.Chunk $.Across}}u + {{mul $j $.N}}u, a{{$c}}_{{$i}}_{{$j}}, LS);
{{- end}}{{end}}
	workgroupBarrier();
	for (var i = t; i < {{mul $.BM (div $.Chunk 4)}}u; i += {{$.Threads}}u) {
		let j = i / {{div $.Chunk 4}}u;
		let d = i % {{div $.Chunk 4}}u * 4u;
		let r = first + j;
		if (r < all) {
			let s = j * LS + d;
			out[((r / group * p.heads + wg.y * group + r % group) * DIM + {{mul $c $.Chunk}}u + d) / 4u] = vec4f(scores[s], scores[s + 1u], scores[s + 2u], scores[s + 3u]) * factors[j];
		}
	}
{{- end}}
}
