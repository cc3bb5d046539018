// result puts a product where it belongs.
{{- if .GLU}}
fn result(row: u32, n: u32, a: f32, b: f32) {
	out[row * p.stride + p.column + n] = {{.GLU}};
}
{{- else if gt .Outs 1}}
fn result(row: u32, n: u32, v: f32) {
	if (n < p.second) {
		out[row * p.second + n] = v;
	} else {{if eq .Outs 3}}if (n < p.third) {
		out2[row * (p.third - p.second) + n - p.second] = v;
	} else {
		out3[row * (p.n - p.third) + n - p.third] = v;
	}{{else}}{
		out2[row * (p.third - p.second) + n - p.second] = v;
	}{{end}}
}
{{- else}}
fn result(row: u32, n: u32, a: f32) {
	let at = row * p.stride + p.column + n;
{{- if .Gate}}
	let b = more[row * p.pitch + p.begin + n];
	out[at] = {{.Gate}};
{{- else}}
	out[at] = a{{if .Add}} + more[at]{{end}};
{{- end}}
}
{{- end}}
