{{$tx := div .BN .TN -}}
{{$ty := div .BM .TM -}}
{{$threads := mul $tx $ty -}}
{{$columns := pick .GLU (div .TN 2) .TN -}}
// product multiplies many rows by the transpose of a weight: Linear. A workgroup takes a
// tile of {{.BM}} rows by {{.BN}} of the weight's, of which an invocation has {{.TM}} by {{.TN}},
// and brings both into its memory {{mul 4 .Q}} elements at a time. The order of a sum is weight's.
{{template "operands.wgsl" .}}
{{template "weight.wgsl" .}}
{{template "result.wgsl" .}}

// Rows of {{.Q}} quads each, whose order is turned from row to row: neighbouring rows
// are read from different banks.
var<workgroup> left: array<vec4f, {{mul .BM .Q}}>;
var<workgroup> right: array<vec4f, {{mul .BN .Q}}>;

fn turn(row: u32) -> u32 {
	return {{if eq .Q 8}}row & 7u{{else}}(row >> 1u) & 3u{{end}};
}

{{template "pair" .}}
@compute @workgroup_size({{$threads}})
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let tx = t % {{$tx}}u;
	let ty = t / {{$tx}}u;
	let rows = step.rows;
	let first = wg.y * {{.BM}}u;
	let column = wg.x * {{if .GLU}}{{div .BN 2}}{{else}}{{.BN}}{{end}}u;
{{- range $i := .TM}}
{{- range $j := $.TN}}
	var s{{$i}}_{{$j}} = 0.0;
	var all{{$i}}_{{$j}} = 0.0;
{{- end}}
{{- end}}
	let steps = units(){{if eq .Q 4}} * 2u{{end}};
	for (var k = 0u; k < steps; k++) {
		for (var i = t; i < {{mul .BM .Q}}u; i += {{$threads}}u) {
			let m = i / {{.Q}}u;
			let q = i % {{.Q}}u;
			left[m * {{.Q}}u + (q ^ turn(m))] = quad(min(first + m, rows - 1u) * p.k, k * {{.Q}}u + q);
		}
		for (var i = t; i < {{mul .BN (div .Q 2)}}u; i += {{$threads}}u) {
			let r = i % {{.BN}}u;
			let j = i / {{.BN}}u;
{{- if .GLU}}
			let n = min(column + r % {{div .BN 2}}u, (p.n >> 1u) - 1u) + r / {{div .BN 2}}u * (p.n >> 1u);
{{- else}}
			let n = min(column + r, p.n - 1u);
{{- end}}
			let u = k{{if eq .Q 4}} >> 1u{{end}};
			let e = {{if eq .Q 4}}(k & 1u) * 2u + {{end}}j;
			let v = pair(n, u, e{{if .Bits}}, scale(0u, n, u, {{if eq .Group 16}}e >> 1u{{else}}0u{{end}}){{end}});
			right[r * {{.Q}}u + ((2u * j) ^ turn(r))] = v[0];
			right[r * {{.Q}}u + ((2u * j + 1u) ^ turn(r))] = v[1];
		}
		workgroupBarrier();
		for (var q = 0u; q < {{.Q}}u; q++) {
{{- range $j := .TN}}
			let b{{$j}} = right[(tx + {{mul $j $tx}}u) * {{$.Q}}u + (q ^ turn(tx + {{mul $j $tx}}u))];
{{- end}}
{{- range $i := .TM}}
			{
				let a = left[(ty + {{mul $i $ty}}u) * {{$.Q}}u + (q ^ turn(ty + {{mul $i $ty}}u))];
{{- range $j := $.TN}}
				s{{$i}}_{{$j}} = fma(b{{$j}}.w, a.w, fma(b{{$j}}.z, a.z, fma(b{{$j}}.y, a.y, fma(b{{$j}}.x, a.x, s{{$i}}_{{$j}}))));
{{- end}}
			}
{{- end}}
		}
		if ((k + 1u) % (run(){{if eq .Q 4}} * 2u{{end}}) == 0u) {
{{- range $i := .TM}}
{{- range $j := $.TN}}
			all{{$i}}_{{$j}} += s{{$i}}_{{$j}};
			s{{$i}}_{{$j}} = 0.0;
{{- end}}
{{- end}}
		}
		workgroupBarrier();
	}
{{- range $i := .TM}}
	if (first + ty + {{mul $i $ty}}u < rows) {
{{- range $j := $columns}}
		if (column + tx + {{mul $j $tx}}u < p.n{{if $.GLU}} >> 1u{{end}}) {
			result(first + ty + {{mul $i $ty}}u, column + tx + {{mul $j $tx}}u, all{{$i}}_{{$j}} + s{{$i}}_{{$j}}
{{- if $.GLU}}, all{{$i}}_{{add $j (div $.TN 2)}} + s{{$i}}_{{add $j (div $.TN 2)}}{{end}});
		}
{{- end}}
	}
{{- end}}
}
