package template

import (
	"reflect"
	"strings"
	"testing"
	"text/template"
)

type inner struct{ Rows int }

func (i inner) Twice() int { return 2 * i.Rows }

type outer struct {
	inner
	Name  string
	List  []string
	Next  *inner
	Of    any
	Empty []int
}

var funcs = map[string]any{
	"add": func(a ...int) (n int) {
		for _, x := range a {
			n += x
		}
		return n
	},
	"seq": func(n int) []int { return make([]int, n) },
}

var methods = map[string]func(v reflect.Value) reflect.Value{
	"Twice": func(v reflect.Value) reflect.Value { return v.MethodByName("Twice") },
}

// TestAsStandard wants what text/template writes.
func TestAsStandard(t *testing.T) {
	data := outer{inner{3}, `a "b"`, []string{"x", "y"}, &inner{4}, map[string]any{"K": 5, "Yes": true}, nil}
	for _, text := range []string{
		"plain {{.Name}} {{.Rows}} {{.Next.Rows}} {{.Twice}} {{.Next.Twice}} {{$.Twice}}",
		"{{if .Empty}}a{{else if .Name}}b{{else}}c{{end}}{{if not .Empty}} d{{end}}",
		"{{range .List}}[{{.}}]{{end}}{{range $x := .List}}{{$x}}{{$.Rows}}{{end}}{{range $i, $x := .List}}{{$i}}{{$x}}{{end}}{{range .Empty}}no{{else}}none{{end}}",
		"{{with .Next}}{{.Rows}}{{end}}{{with .Empty}}no{{else}}else{{end}}{{with .Of.None}}no{{end}}{{.Of.K}}{{if .Of.Yes}}yes{{end}}",
		`{{define "part"}}<{{.}}{{$}}>{{end}}{{template "part" .Name}}{{template "part" 7}}`,
		"{{$a := 1}}{{if true}}{{$a := 2}}{{$a}}{{end}}{{$a}}",
		`{{add 1 (add .Rows 2) -3}} {{len (seq 4)}} {{index .List 1}} {{slice "xyzw" 1 (add 1 2)}} {{printf "%.1f %q" 2.5 .Name}} {{print .Rows "s"}}`,
		`{{eq .Rows 2 3}}{{ne .Name "q"}}{{lt 1 2}}{{le 2 2}}{{gt .Rows 2}}{{ge 1 2}}{{and .Rows .Empty}}{{or .Empty .Name}}{{or 0 ""}}{{eq true .Of.Yes}}`,
		"a {{- 1 -}} b {{/* nothing */}}c",
	} {
		var want, got strings.Builder
		std, err := template.New("t").Funcs(funcs).Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := std.Execute(&want, data); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		own, err := Parse(map[string]string{"t": text}, Options{Funcs: funcs, Methods: methods})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Execute(&got, "t", data); err != nil || got.String() != want.String() {
			t.Errorf("%s: %q, %v; want %q", text, &got, err, &want)
		}
	}
}

// TestErrors wants the place and the cause of what cannot be filled in.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{{.None}}": "t:1:2: template.outer has no None", "{{.Of.K}}": "K of nothing",
		"{{index .List 5}}": "out of range", "{{range .Rows}}{{end}}": "no list", "{{.Next}}": "no value", "{{eq .Rows .Name}}": "not compared",
		"{{add .Name}}": "add: reflect", `{{define "p"}}{{.X}}{{end}}{{template "p" .Rows}}`: "int has no X", "{{.Rows | print}}": "not supported",
	} {
		own, err := Parse(map[string]string{"t": text}, Options{Funcs: funcs})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.Execute(&strings.Builder{}, "t", outer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse(map[string]string{"t": "{{if}}"}, Options{}); err == nil {
		t.Error("no error of a text that is no template")
	}
}

// TestParseErrors: what no data can mend is an error before anything is filled in.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		`a{{if .X}}{{template "none" .}}{{end}}`:                  `there is no template "none"`,
		`{{range .X}}{{break}}{{end}}`:                            "{{break}} is not supported",
		`{{define "b"}}{{with .X}}{{template "c"}}{{end}}{{end}}`: `there is no template "c"`,
	} {
		if _, err := Parse(map[string]string{"t": text}, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := Parse(map[string]string{"t": `{{template "u" .}}`, "u": "x"}, Options{}); err != nil {
		t.Error(err)
	}
}
