// A norm's sum of squares has one order wherever it is computed: an invocation sums
// every {{.Threads}}th {{if eq .Of "f32"}}element{{else}}quad{{end}} of the vector, then 16 of them every 16th of these sums.
var<workgroup> sums: array<f32, {{.Threads}}>;
var<workgroup> parts: array<f32, 16>;

fn square(e: {{.Of}}, s: f32) -> f32 {
{{- if eq .Of "f32"}}
	return fma(e, e, s);
{{- else}}
	return fma(e.w, e.w, fma(e.z, e.z, fma(e.y, e.y, fma(e.x, e.x, s))));
{{- end}}
}

// rms is 1 by the root mean square of a vector of so many elements, of whose squares an
// invocation has the sum s.
fn rms(lane: u32, s: f32, size: u32, eps: f32) -> f32 {
	workgroupBarrier();
	if (lane < {{.Threads}}u) {
		sums[lane] = s;
	}
	workgroupBarrier();
	if (lane < 16u) {
		var t = sums[lane];
{{- range $i := (div .Threads 16)}}
{{- if $i}}
		t += sums[lane + {{mul 16 $i}}u];
{{- end}}
{{- end}}
		parts[lane] = t;
	}
	workgroupBarrier();
	var t = parts[0];
{{- range $i := 15}}
	t += parts[{{add $i 1}}];
{{- end}}
	return 1.0 / sqrt(t / f32(size) + eps);
}
