package webgpu

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

// Shaders are templates in the language of text/template, read by its parser. The executor here knows only the
// constructs in shaders: values are int, bool, string, lists of strings and numbers, and variants; range counts to a
// number; and printing a missing name is an error. text/template itself looks for methods by name, so the linker would
// keep every exported method of every type: 4 MB.

// templates are parsed texts and their definitions, by name.
type templates map[string]*parse.Tree

// parseTemplates reads texts by their names.
func parseTemplates(texts map[string]string) (templates, error) {
	t, known := templates{}, map[string]any{}
	for name := range templateFuncs {
		known[name] = name
	}
	for name, text := range texts {
		trees, err := parse.Parse(name, text, "", "", known)
		if err != nil {
			return nil, err
		}
		for name, tree := range trees {
			t[name] = tree
		}
	}
	return t, nil
}

// fill writes the template of a name, with data as its dot.
func (t templates) fill(w *strings.Builder, name string, data any) (err error) {
	tree := t[name]
	if tree == nil {
		return fmt.Errorf("there is no template %q", name)
	}
	f := &filling{templates: t, w: w, vars: []variable{{"$", data}}}
	defer func() {
		if p := recover(); p != nil { // an error, or a function with wrong arguments
			place, _ := tree.ErrorContext(f.at)
			if e, ok := p.(failure); ok {
				err = fmt.Errorf("%s: %w", place, e.err)
			} else {
				err = fmt.Errorf("%s: %v: %v", place, f.at, p)
			}
		}
	}()
	f.walk(data, tree.Root)
	return nil
}

// filling is a template at work. Errors are failures.
type filling struct {
	templates
	w    *strings.Builder
	vars []variable
	at   parse.Node // for errors
}

type variable struct {
	name  string
	value any
}

func (f *filling) walk(dot any, n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, x := range n.Nodes {
				f.walk(dot, x)
			}
		}
	case *parse.TextNode:
		f.w.Write(n.Text)
	case *parse.ActionNode:
		v := f.value(dot, n.Pipe)
		if len(n.Pipe.Decl) > 0 {
			return
		}
		if v == nil {
			check(fmt.Errorf("there is no value of %s to print", n.Pipe))
		}
		fmt.Fprint(f.w, v)
	case *parse.IfNode:
		had := len(f.vars)
		if isTrue(f.value(dot, n.Pipe)) {
			f.walk(dot, n.List)
		} else {
			f.walk(dot, n.ElseList)
		}
		f.vars = f.vars[:had]
	case *parse.RangeNode:
		had := len(f.vars)
		count, first := f.value(dot, n.Pipe).(int), len(f.vars)
		for i := range count {
			if first > had {
				f.vars[first-1].value = i
			}
			f.walk(i, n.List)
			f.vars = f.vars[:first]
		}
		f.vars = f.vars[:had]
	case *parse.TemplateNode:
		var v any
		if n.Pipe != nil {
			v = f.value(dot, n.Pipe)
		}
		f.at = n
		check(f.fill(f.w, n.Name, v))
	default:
		f.at = n
		check(fmt.Errorf("%s is not supported", n))
	}
}

// value returns a pipeline's value. A declaration makes a variable from then on.
func (f *filling) value(dot any, p *parse.PipeNode) any {
	f.at = p
	if len(p.Cmds) != 1 || p.IsAssign {
		check(fmt.Errorf("%s is not supported", p))
	}
	args := p.Cmds[0].Args
	v := f.operand(dot, args[0], args[1:]...)
	for _, d := range p.Decl {
		f.vars = append(f.vars, variable{d.Ident[0], v})
	}
	return v
}

// operand returns the value of n: of a function, with its arguments.
func (f *filling) operand(dot any, n parse.Node, args ...parse.Node) any {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.BoolNode:
		return n.True
	case *parse.StringNode:
		return n.Text
	case *parse.NumberNode:
		return int(n.Int64)
	case *parse.PipeNode:
		return f.value(dot, n)
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(f.vars) - 1; i >= 0; i-- {
			if f.vars[i].name == n.Ident[0] {
				return fields(f.vars[i].value, n.Ident[1:])
			}
		}
	case *parse.IdentifierNode:
		var values []any
		for _, x := range args {
			values = append(values, f.operand(dot, x))
		}
		f.at = n
		return templateFuncs[n.Ident](values)
	}
	check(fmt.Errorf("%s is not supported", n))
	return nil
}

// fields goes from a value along names of methods, fields of structs, or keys of maps.
func fields(v any, names []string) any {
	for _, name := range names {
		x := reflect.ValueOf(v)
		if find := variantMethods[name]; find != nil && x.IsValid() && find(x).IsValid() {
			v = find(x).Call(nil)[0].Interface()
			continue
		}
		switch {
		case x.Kind() == reflect.Map:
			v = v.(variant)[name]
		case x.Kind() == reflect.Struct && x.FieldByName(name).IsValid():
			v = x.FieldByName(name).Interface()
		default:
			check(fmt.Errorf("%T has no %s", v, name))
		}
	}
	return v
}

// isTrue reports whether a value is neither missing, zero nor empty. A struct is true.
func isTrue(v any) bool {
	switch x := reflect.ValueOf(v); x.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Slice:
		return x.Len() > 0
	case reflect.Struct:
		return true
	default:
		return !x.IsZero()
	}
}

// templateFuncs are the functions of templates.
var templateFuncs = map[string]func(a []any) any{
	"add":    func(a []any) any { return fold(a, func(n, x int) int { return n + x }) },
	"mul":    func(a []any) any { return fold(a, func(n, x int) int { return n * x }) },
	"div":    func(a []any) any { return a[0].(int) / a[1].(int) },
	"mod":    func(a []any) any { return a[0].(int) % a[1].(int) },
	"ceil":   func(a []any) any { return (a[0].(int) + a[1].(int) - 1) / a[1].(int) },
	"mask":   func(a []any) any { return 1<<a[0].(int) - 1 },
	"eq":     func(a []any) any { return a[0] == a[1] },
	"lt":     func(a []any) any { return a[0].(int) < a[1].(int) },
	"gt":     func(a []any) any { return a[0].(int) > a[1].(int) },
	"ge":     func(a []any) any { return a[0].(int) >= a[1].(int) },
	"not":    func(a []any) any { return !isTrue(a[0]) },
	"and":    func(a []any) any { return !slices.ContainsFunc(a, func(x any) bool { return !isTrue(x) }) },
	"or":     func(a []any) any { return slices.ContainsFunc(a, isTrue) },
	"pick":   pick,
	"min":    func(a []any) any { return min(a[0].(int), a[1].(int)) },
	"max":    func(a []any) any { return max(a[0].(int), a[1].(int)) },
	"pad":    func([]any) any { return pad },
	"index":  func(a []any) any { return reflect.ValueOf(a[0]).Index(a[1].(int)).Interface() },
	"slice":  func(a []any) any { return a[0].(string)[a[1].(int):a[2].(int)] },
	"print":  func(a []any) any { return fmt.Sprint(a...) },
	"places": func(a []any) any { return places(a[0].(int), a[1].(string)) },
	"unit":   func(a []any) any { return unit{a[0].(linearVariant), a[1].(int)} },
	"page":   func(a []any) any { return page{a[0].(attendVariant), a[1].(string), a[2].(string)} },
	"word":   func(a []any) any { return variant{"F16": a[0], "Of": a[1], "Width": a[2]} },
}

// pick returns the second of a if the first is true, else the third.
func pick(a []any) any {
	if isTrue(a[0]) {
		return a[1]
	}
	return a[2]
}

func fold(a []any, f func(n, x int) int) int {
	n := a[0].(int)
	for _, x := range a[1:] {
		n = f(n, x.(int))
	}
	return n
}
