// matrix multiplies many rows by the transpose of a quantized weight: Linear, on matrix
// units. A workgroup takes a tile of {{.BM}} rows by {{.BN}} of the weight's, of which a subgroup has
// {{.WM}} by {{.WN}}, and brings both into its memory {{.BK}} elements at a time, as binary16; what comes next
// is on its way from the GPU's memory meanwhile. An element's sum runs along the row in
// float32, {{.K}} elements at a time, the same in every tile. x is narrow's.
{{template "operands.wgsl" .}}
{{template "weight.wgsl" .}}
{{template "result.wgsl" .}}

// Rows are 16 bytes longer than they need, so that neighbouring ones lie in different banks.
const LD: u32 = {{add .BK 8}}u;
var<workgroup> left: array<f16, {{mul .Stages .BM (add .BK 8)}}>;
var<workgroup> right: array<f16, {{mul .Stages .BN (add .BK 8)}}>;
var<workgroup> corner: array<f32, {{mul .Subgroups .M 2 .N}}>;

// Unit is one of a row of the weight, as it lies in memory.
struct Unit {
	low: vec4u,
{{- if eq .Bits 8}}
	more: vec4u,
{{- end}}
{{- if .High}}
	high: vec2u,
{{- end}}
	head: vec3u,
}

fn fetch(n: u32, u: u32) -> Unit {
	var v = Unit();
{{- if eq .Bits 4}}
	v.low = w[u * p.n + n];
{{- else if eq .Bits 8}}
	v.low = w[u * 2u * p.n + n];
	v.more = w[(u * 2u + 1u) * p.n + n];
{{- else}}
	v.low = vec4u(word((u * p.n + n) * 2u), word((u * p.n + n) * 2u + 1u), 0u, 0u);
{{- end}}
{{- if eq .High 1}}
	v.high.x = word((units() * {{.Bits}}u + u) * p.n + n);
{{- else if eq .High 2}}
	v.high = vec2u(word((units() * {{.Bits}}u + u * 2u) * p.n + n), word((units() * {{.Bits}}u + u * 2u + 1u) * p.n + n));
{{- end}}
	v.head = head(0u, n, u);
	return v;
}

// of_weight is the row of the weight that is row r of the tile which begins at column.{{if .GLU}} Pairs
// of results lie in neighbouring matrices.{{end}}
fn of_weight(column: u32, r: u32) -> u32 {
{{- if .GLU}}
	let part = r / {{.N}}u;
	return min(column + (part >> 1u) * {{.N}}u + r % {{.N}}u, (p.n >> 1u) - 1u) + (part & 1u) * (p.n >> 1u);
{{- else}}
	return min(column + r, p.n - 1u);
{{- end}}
}

@compute @workgroup_size({{.Threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let rows = step.rows;
	let first = wg.y * {{.BM}}u;
	let column = wg.x * {{if .GLU}}{{div .BN 2}}{{else}}{{.BN}}{{end}}u;
	let subgroup = t / {{.Lanes}}u;
	let lane = t % {{.Lanes}}u;
	let wm = subgroup / {{div .BN .WN}}u * {{.WM}}u;
	let wn = subgroup % {{div .BN .WN}}u * {{.WN}}u;
	let stride = 1u + (p.k + {{add .Pad -1}}u) / {{.Pad}}u * {{div .Pad 8}}u;
{{- range $i := seq .Down}}
{{- range $j := seq $.Across}}
	var c{{$i}}_{{$j}} = subgroup_matrix_result<f32, {{$.N}}, {{$.M}}>();
{{- end}}
{{- end}}
{{- range $i := seq .Rights}}
	let n{{$i}} = of_weight(column, (t + {{mul $i $.Threads}}u) % {{$.BN}}u);
	var b{{$i}} = fetch(n{{$i}}, min((t + {{mul $i $.Threads}}u) / {{$.BN}}u, units() - 1u));
{{- end}}
{{- range $i := seq .Lefts}}
	let m{{$i}} = min(first + (t + {{mul $i $.Threads}}u) / {{div $.BK 8}}u, rows - 1u) * stride + 1u + (t + {{mul $i $.Threads}}u) % {{div $.BK 8}}u;
	var a{{$i}} = x[m{{$i}}];
{{- end}}
	let steps = (units() + {{add (div .BK 32) -1}}u) / {{div .BK 32}}u;
	for (var s = 0u; s < steps; s++) {
{{- if eq .Stages 2}}
		let left_at = (s & 1u) * {{mul .BM (add .BK 8)}}u;
		let right_at = (s & 1u) * {{mul .BN (add .BK 8)}}u;
{{- else}}
		let left_at = 0u;
		let right_at = 0u;
{{- end}}
{{- range $i := seq .Lefts}}
		{
			let at = left_at + (t + {{mul $i $.Threads}}u) / {{div $.BK 8}}u * LD + (t + {{mul $i $.Threads}}u) % {{div $.BK 8}}u * 8u;
{{- range $q := seq 4}}
			let p{{$q}} = bitcast<vec2<f16>>(a{{$i}}[{{$q}}]);
			left[at + {{mul 2 $q}}u] = p{{$q}}.x;
			left[at + {{add 1 (mul 2 $q)}}u] = p{{$q}}.y;
{{- end}}
		}
{{- end}}
{{- range $i := seq .Rights}}
		{
			let uu = (t + {{mul $i $.Threads}}u) / {{$.BN}}u;
			let u = min(s * {{div $.BK 32}}u + uu, units() - 1u);
			let at = right_at + (t + {{mul $i $.Threads}}u) % {{$.BN}}u * LD + uu * 32u;
			let scale0 = scales(b{{$i}}.head, u, 0u) * p.up;
{{- if eq $.Group 16}}
			let scale1 = scales(b{{$i}}.head, u, 1u) * p.up;
{{- end}}
{{- range $j := seq 4}}
			{
				let v = eight({{if eq $.Bits 8}}vec2u({{if lt $j 2}}b{{$i}}.low[{{mul 2 $j}}], b{{$i}}.low[{{add 1 (mul 2 $j)}}]{{else}}b{{$i}}.more[{{add -4 (mul 2 $j)}}], b{{$i}}.more[{{add -3 (mul 2 $j)}}]{{end}})
{{- else if eq $.Bits 4}}b{{$i}}.low[{{$j}}]
{{- else}}b{{$i}}.low[{{div $j 2}}] >> {{mul 16 (mod $j 2)}}u{{end}},
{{- if eq $.High 1}} b{{$i}}.high.x >> {{mul 8 $j}}u{{else if eq $.High 2}} b{{$i}}.high[{{div $j 2}}] >> {{mul 16 (mod $j 2)}}u{{else}} 0u{{end}}, scale{{if eq $.Group 16}}{{div $j 2}}{{else}}0{{end}});
				let lo = vec4<f16>(v[0]);
				let hi = vec4<f16>(v[1]);
{{- range $q := seq 4}}
				right[at + {{add $q (mul 8 $j)}}u] = lo[{{$q}}];
				right[at + {{add 4 $q (mul 8 $j)}}u] = hi[{{$q}}];
{{- end}}
			}
{{- end}}
		}
{{- end}}
		workgroupBarrier();
		if (s + 1u < steps) {
{{- range $i := seq .Rights}}
			b{{$i}} = fetch(n{{$i}}, min((s + 1u) * {{div $.BK 32}}u + (t + {{mul $i $.Threads}}u) / {{$.BN}}u, units() - 1u));
{{- end}}
{{- range $i := seq .Lefts}}
			a{{$i}} = x[m{{$i}} + (s + 1u) * {{div $.BK 8}}u];
{{- end}}
		}
{{- range $k := seq (div .BK .K)}}
		{
{{- range $i := seq $.Down}}
			let l{{$i}} = subgroupMatrixLoad<subgroup_matrix_left<f16, {{$.K}}, {{$.M}}>, row_major>(&left, left_at + (wm + {{mul $i $.M}}u) * LD + {{mul $k $.K}}u, LD);
{{- end}}
{{- range $j := seq $.Across}}
			let r{{$j}} = subgroupMatrixLoad<subgroup_matrix_right<f16, {{$.N}}, {{$.K}}>, col_major>(&right, right_at + (wn + {{mul $j $.N}}u) * LD + {{mul $k $.K}}u, LD);
{{- range $i := seq $.Down}}
			c{{$i}}_{{$j}} = subgroupMatrixMultiplyAccumulate(l{{$i}}, r{{$j}}, c{{$i}}_{{$j}});
{{- end}}
{{- end}}
		}
{{- end}}
{{- if eq .Stages 1}}
		workgroupBarrier();
{{- end}}
	}
	let mine = subgroup * {{mul .M 2 .N}}u;
{{- range $i := seq .Down}}
{{- range $j := seq (div $.Across 2)}}
	subgroupMatrixStore<row_major>(&corner, mine, c{{$i}}_{{mul 2 $j}}, {{mul 2 $.N}}u);
	subgroupMatrixStore<row_major>(&corner, mine + {{$.N}}u, c{{$i}}_{{add 1 (mul 2 $j)}}, {{mul 2 $.N}}u);
	workgroupBarrier();
	for (var e = lane; e < {{if $.GLU}}{{mul $.M $.N}}{{else}}{{mul $.M 2 $.N}}{{end}}u; e += {{$.Lanes}}u) {
{{- if $.GLU}}
		let m = e / {{$.N}}u;
		let n = e % {{$.N}}u;
		let to = column + (wn >> 1u) + {{mul $j $.N}}u + n;
{{- else}}
		let m = e / {{mul 2 $.N}}u;
		let n = e % {{mul 2 $.N}}u;
		let to = column + wn + {{mul $j 2 $.N}}u + n;
{{- end}}
		let row = first + wm + {{mul $i $.M}}u + m;
		if (row < rows && to < {{if $.GLU}}(p.n >> 1u){{else}}p.n{{end}}) {
			let by = bitcast<f32>(x[row * stride].x) * p.down;
			result(row, to, corner[mine + m * {{mul 2 $.N}}u + n] * by{{if $.GLU}}, corner[mine + m * {{mul 2 $.N}}u + {{$.N}}u + n] * by{{end}});
		}
	}
	workgroupBarrier();
{{- end}}
{{- end}}
}
