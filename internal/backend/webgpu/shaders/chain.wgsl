// A norm and what follows it in one computation: of a vector, or of a row in front of a
// product. Each invocation has every {{.Threads}}th {{if eq .Of "f32"}}element{{else}}quad{{end}} of it.
{{template "rms.wgsl" .}}
{{define "chain"}}{{- $second := pick .Weight .Quads 0}}
	var squares = 0.0;
{{- range $k := (ceil .Quads .Threads)}}
	let i{{$k}} = lane + {{mul $k $.Threads}}u;
	var x{{$k}} = {{$.Of}}(0.0); // all is read before invocations wait for each other
{{- if $.Weight}}
	var w{{$k}} = {{$.Of}}(0.0);
{{- end}}
{{- if $.Add}}
	var y{{$k}} = {{$.Of}}(0.0);
{{- end}}
{{- if $.Next}}
	var z{{$k}} = {{$.Of}}(0.0);
{{- end}}
	if (i{{$k}} < {{$.Quads}}u) {
		x{{$k}} = x[at + i{{$k}}];
{{- if $.Weight}}
		w{{$k}} = weights[i{{$k}}];
{{- end}}
{{- if $.Add}}
		y{{$k}} = other[at + i{{$k}}];
{{- end}}
{{- if $.Next}}
		z{{$k}} = weights[{{$second}}u + i{{$k}}];
{{- end}}
	}
	squares = square(x{{$k}}, squares);
{{- end}}
	let r = rms(lane, squares, {{.Size}}u, p.eps);
{{- if .Next}}
	squares = 0.0;
{{- end}}
{{- range $k := (ceil .Quads .Threads)}}
	let e{{$k}} = x{{$k}} * r{{if $.Weight}} * ({{$.Of}}(p.offset) + w{{$k}}){{end}};
	let sum{{$k}} = {{if $.Add}}(y{{$k}} + {{if eq $.Of "vec4f"}}bitcast<vec4<f32>>(bitcast<vec4<u32>>(e{{$k}}) + vec4u(p.zero)){{else}}bitcast<f32>(bitcast<u32>(e{{$k}}) + p.zero){{end}}){{if $.Scale}} * weights[{{add $second (pick $.Next $.Quads 0)}}]{{if eq $.Of "vec4f"}}.x{{end}}{{end}}{{else}}e{{$k}}{{end}};
{{- if $.Next}}
	if (i{{$k}} < {{$.Quads}}u) {
		squares = square(sum{{$k}}, squares);
	}
{{- end}}
{{- end}}
{{- if .Next}}
	let r2 = rms(lane, squares, {{.Size}}u, p.next_eps);
{{- range $k := (ceil .Quads .Threads)}}
	let next{{$k}} = sum{{$k}} * r2 * ({{$.Of}}(p.next_offset) + z{{$k}});
{{- end}}
{{- end}}
{{- end}}
