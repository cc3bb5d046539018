package webgpu

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"
)

// TestTemplates wants what text/template writes.
func TestTemplates(t *testing.T) {
	data := variant{"V": tile{BM: 64, BN: 32, TM: 8, TN: 4, Q: 8}, "O": orderOf(64), "Of": "f32", "Yes": true, "List": []string{"x", "y"}, "Empty": []string(nil)}
	funcs := template.FuncMap{}
	for name, f := range templateFuncs {
		funcs[name] = func(a ...any) any { return f(a) }
	}
	for _, text := range []string{
		"plain {{.Of}} {{.V.BM}} {{.O.Size}} {{$.O.Threads}} {{.V.Q}}",
		"{{if .Empty}}a{{else if .Of}}b{{else}}c{{end}}{{if not .Empty}} d{{end}}{{if .None}}e{{end}}{{if .V}}f{{end}}{{if 0}}g{{end}}",
		"{{range $i := 3}}[{{$i}}{{$.Of}}]{{end}}{{range $i := 2}}{{range $j := 2}}{{add $i $j}}{{end}}{{end}}{{range 0}}no{{end}}{{range 2}}{{.}}{{end}}",
		`{{define "part"}}<{{.}}{{$}}>{{end}}{{template "part" .Of}}{{template "part" 7}}`,
		"{{$a := 1}}{{if true}}{{$a := 2}}{{$a}}{{end}}{{$a}}",
		`{{add 1 (add .V.BM 2) -3}} {{mul 2 3 4}} {{div 7 2}} {{mod 7 2}} {{ceil 7 2}} {{index .List 1}} {{slice "xyzw" 1 (add 1 2)}} {{print .V.BM "s"}}`,
		`{{eq .Of "f32"}}{{eq .V.BM 2}}{{lt 1 2}}{{gt .V.BM 2}}{{ge 1 2}}{{and .Yes .Empty}}{{or .Empty .Yes}}`,
		`{{pick .Yes 1 2}}{{pick .Empty 1 "b"}}{{min 1 2}}{{max 1 2}}{{pad}}{{and true .Yes false}}{{or false .Empty .Yes}}`,
		"a {{- 1 -}} b {{ 2 -}}\n c}} \n{{- .Of}}",
	} {
		var want, got strings.Builder
		std, err := template.New("t").Funcs(funcs).Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := std.Execute(&want, data); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		own, err := parseTemplates(map[string]string{"t": text})
		if err != nil {
			t.Fatal(err)
		}
		if err := own.fill(&got, "t", data); err != nil || got.String() != want.String() {
			t.Errorf("%s: %q, %v; want %q", text, &got, err, &want)
		}
	}
}

// TestTemplatesRead wants all shaders read as text/template reads them.
func TestTemplatesRead(t *testing.T) {
	known := map[string]any{}
	for name := range templateFuncs {
		known[name] = name
	}
	seen := 0
	for name, text := range shaderTexts() {
		trees, err := parse.Parse(name, text, "", "", known)
		if err != nil {
			t.Fatal(err)
		}
		for name, tree := range trees {
			seen++
			if got, want := spelledSections(shaders()[name].sections), spelledNode(tree.Root); got != want {
				t.Errorf("%s is read as\n%s\nwant\n%s", name, got, want)
			}
		}
	}
	if len(shaders()) != seen {
		t.Errorf("%d templates, want %d", len(shaders()), seen)
	}
}

func spelledSections(list []section) (s string) {
	for _, x := range list {
		s += fmt.Sprintf("%s %q %s[%s|%s]\n", x.kind, x.name, spelledOperand(x.of), spelledSections(x.list), spelledSections(x.other))
	}
	return s
}

func spelledOperand(o *operand) string {
	if o == nil {
		return ""
	}
	s := fmt.Sprintf("(%s %#v %q", o.name, o.literal, o.fields)
	for _, x := range o.args {
		s += spelledOperand(x)
	}
	return s + ")"
}

// spelledNode spells what the parser of text/template gives like spelledSections and spelledOperand.
func spelledNode(n parse.Node) (s string) {
	const block = "%s %q %s[%s|%s]\n"
	pipe := func(p *parse.PipeNode) (name, of string) {
		if p == nil {
			return "", ""
		}
		if len(p.Decl) > 0 {
			name = p.Decl[0].Ident[0]
		}
		return name, spelledNode(p)
	}
	one := func(name string, literal any, fields ...string) string {
		return fmt.Sprintf("(%s %#v %q)", name, literal, fields)
	}
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, x := range n.Nodes {
				s += spelledNode(x)
			}
		}
		return s
	case *parse.TextNode:
		return fmt.Sprintf(block, "text", n.Text, "", "", "")
	case *parse.ActionNode:
		name, of := pipe(n.Pipe)
		return fmt.Sprintf(block, map[bool]string{true: "print", false: "set"}[name == ""], name, of, "", "")
	case *parse.IfNode:
		_, of := pipe(n.Pipe)
		return fmt.Sprintf(block, "if", "", of, spelledNode(n.List), spelledNode(n.ElseList))
	case *parse.RangeNode:
		name, of := pipe(n.Pipe)
		return fmt.Sprintf(block, "range", name, of, spelledNode(n.List), "")
	case *parse.TemplateNode:
		_, of := pipe(n.Pipe)
		return fmt.Sprintf(block, "template", n.Name, of, "", "")
	case *parse.PipeNode:
		args := n.Cmds[0].Args
		s = spelledNode(args[0])
		for _, x := range args[1:] {
			s = s[:len(s)-1] + spelledNode(x) + ")"
		}
		return s
	case *parse.DotNode:
		return one(".", nil)
	case *parse.FieldNode:
		return one(".", nil, n.Ident...)
	case *parse.VariableNode:
		return one(n.Ident[0], nil, n.Ident[1:]...)
	case *parse.IdentifierNode:
		return one(n.Ident, nil)
	case *parse.BoolNode:
		return one("", n.True)
	case *parse.StringNode:
		return one("", n.Text)
	case *parse.NumberNode:
		return one("", int(n.Int64))
	}
	panic(n)
}

// TestTemplateErrors wants the place and the cause of what cannot be filled in.
func TestTemplateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{{.Q}}{{.None}}": "t:1:8: webgpu.tile has no None", `{{index .Q 5}}`: "reflect", "{{range .None}}{{end}}": "has no None", "{{range true}}{{end}}": "interface conversion",
		"{{add true}}": "interface conversion", `{{define "p"}}{{.X}}{{end}}{{template "p" .Q}}`: "int has no X", "{{.Q | print}}": "not supported",
		"{{with .Q}}{{end}}": "not supported", `{{template "none" .}}`: `no template "none"`, "{{range 1}}{{break}}{{end}}": "{{break}} is not supported", "{{if}}": "missing value",
	} {
		own, err := parseTemplates(map[string]string{"t": text})
		if err == nil {
			err = own.fill(&strings.Builder{}, "t", tile{Q: 3})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	own, _ := parseTemplates(map[string]string{"t": "{{.None}}"})
	if err := own.fill(&strings.Builder{}, "t", variant{}); err == nil || !strings.Contains(err.Error(), "no value of .None to print") {
		t.Error(err)
	}
}

// TestVariantMethods wants the methods of variants that templates call to be those of their names.
func TestVariantMethods(t *testing.T) {
	for name, find := range variantMethods {
		for _, v := range []any{tile{}, flashVariant{}, matrixVariant{}, linearVariant{}, headVariant{}, page{}, attentionVariant{}, narrowVariant{}, aloneVariant{}, productVariant{}} {
			x := reflect.ValueOf(v)
			if m := find(x); m.IsValid() != x.MethodByName(name).IsValid() {
				t.Errorf("%s of %T: %v", name, v, m)
			}
		}
	}
}
