// alone multiplies rows by the transpose of a weight: Linear, where a program stands in
// for a GPU. An invocation takes {{.Per}} rows of the weight and a whole row of activations, for
// there it is dear that invocations wait for each other, and so is a long text. The order
// of a sum is weight's.
{{template "operands.wgsl" .}}
{{template "weight.wgsl" .}}
{{- template "pair" .}}
{{template "result.wgsl" .}}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) t: u32) {
	let columns = p.n{{if .GLU}} >> 1u{{end}};
	let first = wg.x * {{mul 64 .Columns}}u + t;
	let row = wg.y;
	if (row >= step.rows) {
		return;
	}
	let at = row * p.k;
	let until = units();
{{- range $i := .Per}}
	let n{{$i}} = min(first + {{mul 64 (mod $i $.Columns)}}u, columns - 1u){{if ge $i $.Columns}} + columns{{end}};
	var all{{$i}} = 0.0;
	var s{{$i}} = 0.0;
{{- end}}
	for (var u = 0u; u < until; u++) {
{{- if .Bits}}
{{- range $i := .Per}}
		let scale{{$i}}_0 = scale(0u, n{{$i}}, u, 0u);
{{- if eq $.Group 16}}
		let scale{{$i}}_1 = scale(0u, n{{$i}}, u, 1u);
{{- end}}
{{- end}}
{{- end}}
		for (var j = 0u; j < 4u; j++) {
			let a = quad(at, u * 8u + 2u * j);
			let b = quad(at, u * 8u + 2u * j + 1u);
{{- range $i := .Per}}
			s{{$i}} = chain(s{{$i}}, pair(n{{$i}}, u, j
{{- if eq $.Group 16}}, select(scale{{$i}}_0, scale{{$i}}_1, j > 1u){{else if $.Bits}}, scale{{$i}}_0{{end}}), a, b);
{{- end}}
		}
		if ((u + 1u) % run() == 0u) {
{{- range $i := .Per}}
			all{{$i}} += s{{$i}};
			s{{$i}} = 0.0;
{{- end}}
		}
	}
{{- range $i := .Columns}}
	if (first + {{mul 64 $i}}u < columns) {
		result(row, first + {{mul 64 $i}}u, all{{$i}} + s{{$i}}{{if $.GLU}}, all{{add $i $.Columns}} + s{{add $i $.Columns}}{{end}});
	}
{{- end}}
}
