// linear multiplies a few rows by the transpose of a weight: Linear, and the products
// of Experts. A workgroup takes {{.Lanes}} rows of the weight, or {{.Per}} times as many, and each
// column of its invocations a run (see weight).
{{template "operands.wgsl" .}}
{{template "weight.wgsl" .}}
var<workgroup> runs: array<f32, {{mul .Lanes 32 .Per .Rows}}>;
{{- if .Chain.Quads}}
var<workgroup> normed: array<vec4f, {{.Chain.Quads}}>; // the row that is multiplied

{{template "chain.wgsl" .Chain}}
{{- end}}

{{template "result.wgsl" .}}

@compute @workgroup_size({{.Lanes}}, 32)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_id) id: vec3u) {
	let group = wg.y * GX + wg.x;
	let first = wg.z * {{.Rows}}u;
	var rows = step.rows;
	var base = 0u;
{{- if .Experts}}
	rows *= p.choices;
	let expert = u32(routes[2u * min(first, rows - 1u)]);
	if (expert < p.first || expert >= p.first + p.count) {
		return;
	}
	base = (expert - p.first) * p.each;
{{- if .Scaled}}
	let by = routes[2u * min(first, rows - 1u) + 1u];
{{- end}}
{{- end}}
	if (first >= rows) {
		return;
	}
{{- range $r := .Rows}}
	let at{{$r}} = min(first + {{$r}}u, rows - 1u){{if $.Experts}} / p.share{{end}} * p.k;
{{- end}}
	let lane = id.y * {{.Lanes}}u + id.x;
{{- if and (or .Add .Gate) (eq .Rows 1)}}
	var before = 0.0; // read while the weight is
	if (lane < {{mul .Lanes .Per}}u) {
		before = known(first, min(group * {{mul .Lanes .Per}}u + lane, p.n - 1u));
	}
{{- end}}
{{- if .Chain.Quads}}
	let at = at0 >> 2u;
{{- template "chain" .Chain}}
{{- range $k := (ceil .Chain.Quads .Chain.Threads)}}
	if (i{{$k}} < {{$.Chain.Quads}}u) {
		normed[i{{$k}}] = {{if $.Chain.Next}}next{{else}}sum{{end}}{{$k}};
{{- if $.Chain.Add}}
		if (group == 0u) {
			carried[at + i{{$k}}] = sum{{$k}};
		}
{{- end}}
	}
{{- end}}
	workgroupBarrier();
{{- end}}
{{- range $i := .Per}}
	let n{{$i}} = min({{if $.GLU}}group * {{$.Lanes}}u + id.x, (p.n >> 1u) - 1u) + {{$i}}u * (p.n >> 1u){{else}}group * {{mul $.Lanes $.Per}}u + {{mul $.Lanes $i}}u + id.x, p.n - 1u){{end}};
{{- end}}
{{- range $i := .Per}}
{{- range $r := $.Rows}}
	var s{{$i}}_{{$r}} = 0.0;
{{- end}}
{{- end}}
	let until = min((id.y + 1u) * run(), units());
	var u = id.y * run();
{{- if gt .Unroll 1}}
	for (; u + {{.Unroll}}u <= until; u += {{.Unroll}}u) {
{{- range $e := .Unroll}}
{{- template "load" (unit $ $e)}}
{{- end}}
{{- range $e := .Unroll}}
{{- template "compute" (unit $ $e)}}
{{- end}}
	}
{{- end}}
{{- if not .Whole}}
	for (; u < until; u++) {
{{- template "load" (unit . 0)}}
{{- template "compute" (unit . 0)}}
	}
{{- end}}
{{- range $i := .Per}}
{{- range $r := $.Rows}}
	runs[{{mul $.Lanes 32 (add (mul $i $.Rows) $r)}}u + id.y * {{$.Lanes}}u + id.x] = s{{$i}}_{{$r}};
{{- end}}
{{- end}}
	workgroupBarrier();
	let v = id.y; // of the sums
	if (lane >= {{if .GLU}}{{mul .Lanes .Rows}}u{{else}}{{mul .Lanes .Per .Rows}}u{{end}}) {
		return;
	}
	let row = first + v % {{.Rows}}u;
	let n = group * {{if .GLU}}{{.Lanes}}u{{else}}{{mul .Lanes .Per}}u + v / {{.Rows}}u * {{.Lanes}}u{{end}} + id.x;
	if (row >= rows || n >= p.n{{if .GLU}} >> 1u{{end}}) {
		return;
	}
{{- if .GLU}}
	result(row, n, total(v * {{mul .Lanes 32}}u + id.x), total(({{.Rows}}u + v) * {{mul .Lanes 32}}u + id.x));
{{- else if and (or .Add .Gate) (eq .Rows 1)}}
	put(row, n, total(v * {{mul .Lanes 32}}u + id.x), before);
{{- else}}
	result(row, n, total(v * {{mul .Lanes 32}}u + id.x){{if .Scaled}} * by{{end}}{{if .Biased}} + bias[expert * p.n + n]{{end}});
{{- end}}
}

// total is the sum of the runs, those that are empty included.
fn total(at: u32) -> f32 {
	var s = runs[at];
{{- range $y := 31}}
	s += runs[at + {{mul $.Lanes (add $y 1)}}u];
{{- end}}
	return s;
}
{{define "load"}}
{{- $e := .E}}
{{- range $i := .Per}}
{{- if $.Bits}}
		let head{{$e}}_{{$i}} = {{if eq $e $.With}}head(base, n{{$i}}, u + {{$e}}u){{else}}head{{$.With}}_{{$i}}{{end}};
{{- range $g := (div 32 $.Group)}}
		let scale{{$e}}_{{$i}}_{{$g}} = scales(head{{$e}}_{{$i}}, {{if not $.Fixed}}u + {{end}}{{$e}}u, {{$g}}u);
{{- end}}
{{- range $h := $.High}}
		let high{{$e}}_{{$i}}_{{$h}} = word(base + (units() * {{$.Bits}}u + (u + {{$e}}u) * {{$.High}}u + {{$h}}u) * p.n + n{{$i}});
{{- end}}
{{- end}}
{{- range $q := $.Quads}}
		let c{{$e}}_{{$i}}_{{$q}} = w[(base >> 2u) + ((u + {{$e}}u) * {{$.Quads}}u + {{$q}}u) * p.n + n{{$i}}];
{{- end}}
{{- if eq $.Bits 2}}
		let c{{$e}}_{{$i}} = vec2u(word(base + ((u + {{$e}}u) * p.n + n{{$i}}) * 2u), word(base + ((u + {{$e}}u) * p.n + n{{$i}}) * 2u + 1u));
{{- end}}
{{- end}}
{{- end}}
{{define "compute"}}
{{- $e := .E}}
{{- range $j := 4}}
		{
{{- range $r := $.Rows}}
			let a{{$r}} = quad(at{{$r}}, (u + {{$e}}u) * 8u + {{mul 2 $j}}u);
			let b{{$r}} = quad(at{{$r}}, (u + {{$e}}u) * 8u + {{add (mul 2 $j) 1}}u);
{{- end}}
{{- range $i := $.Per}}
			let v{{$i}} = eight(
{{- if eq $.Bits 4}}c{{$e}}_{{$i}}_0.{{slice "xyzw" $j (add $j 1)}}
{{- else if eq $.Bits 8}}c{{$e}}_{{$i}}_{{div $j 2}}.{{if eq (mod $j 2) 0}}xy{{else}}zw{{end}}
{{- else if eq $.Bits 2}}c{{$e}}_{{$i}}.{{slice "xxyy" $j (add $j 1)}}{{if eq (mod $j 2) 1}} >> 16u{{end}}
{{- else if eq $.Plain "f32"}}c{{$e}}_{{$i}}_{{mul 2 $j}}, c{{$e}}_{{$i}}_{{add (mul 2 $j) 1}}
{{- else}}c{{$e}}_{{$i}}_{{$j}}
{{- end}}
{{- if $.Bits}}, {{if $.High}}high{{$e}}_{{$i}}_{{if eq $.High 2}}{{div $j 2}}{{else}}0{{end}} >> {{begins $.Bits $.High $j}}u{{else}}0u{{end}}, scale{{$e}}_{{$i}}_{{if eq $.Group 16}}{{div $j 2}}{{else}}0{{end}}{{end}});
{{- range $r := $.Rows}}
			s{{$i}}_{{$r}} = chain(s{{$i}}_{{$r}}, v{{$i}}, a{{$r}}, b{{$r}});
{{- end}}
{{- end}}
		}
{{- end}}
{{- end}}
