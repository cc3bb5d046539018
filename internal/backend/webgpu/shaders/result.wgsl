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
{{- else if or .Add .Gate}}
// known is what a result is added to, or gates.
fn known(row: u32, n: u32) -> f32 {
	return more[{{if .Gate}}row * p.pitch + p.begin + n{{else}}row * p.stride + p.column + n{{end}}];
}

fn put(row: u32, n: u32, a: f32, b: f32) {
	out[row * p.stride + p.column + n] = {{if .Gate}}{{.Gate}}{{else}}a + b{{end}};
}

fn result(row: u32, n: u32, a: f32) {
	put(row, n, a, known(row, n));
}
{{- else}}
fn result(row: u32, n: u32, a: f32) {
	out[row * p.stride + p.column + n] = a;
}
{{- end}}
