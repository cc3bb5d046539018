package template

import (
	"cmp"
	"fmt"
	"reflect"
	"text/template/parse"
)

// pipeline is a pipeline's value. What it declares is a variable from then on.
func (s *state) pipeline(dot reflect.Value, p *parse.PipeNode) (v reflect.Value, err error) {
	s.at = p
	if len(p.Cmds) != 1 {
		return v, fmt.Errorf("%s: pipelines of several commands are not supported", p)
	}
	if v, err = s.command(dot, p.Cmds[0].Args); err != nil {
		return v, err
	}
	for _, d := range p.Decl {
		if p.IsAssign {
			return v, fmt.Errorf("%s: variables are not set again", p)
		}
		s.vars = append(s.vars, variable{d.Ident[0], v})
	}
	return v, nil
}

// command is the value of a function with its arguments, or of a single operand.
func (s *state) command(dot reflect.Value, args []parse.Node) (reflect.Value, error) {
	if f, ok := args[0].(*parse.IdentifierNode); ok {
		return s.function(dot, f.Ident, args[1:])
	}
	if len(args) > 1 {
		return reflect.Value{}, fmt.Errorf("%s is no function", args[0])
	}
	return s.operand(dot, args[0])
}

func (s *state) operand(dot reflect.Value, n parse.Node) (v reflect.Value, err error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return v, nil
	case *parse.BoolNode:
		return reflect.ValueOf(n.True), nil
	case *parse.StringNode:
		return reflect.ValueOf(n.Text), nil
	case *parse.NumberNode:
		if n.IsInt {
			return reflect.ValueOf(int(n.Int64)), nil
		}
		return reflect.ValueOf(n.Float64), nil
	case *parse.PipeNode:
		return s.pipeline(dot, n)
	case *parse.IdentifierNode:
		return s.function(dot, n.Ident, nil)
	case *parse.FieldNode:
		return s.fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(s.vars) - 1; i >= 0; i-- {
			if s.vars[i].name == n.Ident[0] {
				return s.fields(s.vars[i].value, n.Ident[1:])
			}
		}
	case *parse.ChainNode:
		if v, err = s.operand(dot, n.Node); err != nil {
			return v, err
		}
		return s.fields(v, n.Field)
	}
	return v, fmt.Errorf("%s is not supported", n)
}

// fields goes from a value along names of methods, fields of structs, or keys of maps.
func (s *state) fields(v reflect.Value, names []string) (reflect.Value, error) {
	for _, name := range names {
		if m := s.method(v, name); m.IsValid() {
			v = m.Call(nil)[0]
			continue
		}
		switch v = direct(v); {
		case v.Kind() == reflect.Struct && v.FieldByName(name).IsValid():
			v = v.FieldByName(name)
		case v.Kind() == reflect.Map:
			v = v.MapIndex(reflect.ValueOf(name))
		case !v.IsValid():
			return v, fmt.Errorf("%s of nothing", name)
		default:
			return v, fmt.Errorf("%s has no %s", v.Type(), name)
		}
	}
	return v, nil
}

func (s *state) method(v reflect.Value, name string) (m reflect.Value) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if find := s.t.Methods[name]; find != nil && v.IsValid() {
		m = find(v)
	}
	return m
}

// builtin are the functions that every template has, but for and and or, which need not look at all
// that they are given.
var builtin = map[string]func(a []reflect.Value) (any, error){
	"and": nil, "or": nil,
	"not": func(a []reflect.Value) (any, error) { return !truth(a[0]), nil },
	"len": func(a []reflect.Value) (any, error) { return a[0].Len(), nil },
	"eq": func(a []reflect.Value) (any, error) {
		for _, x := range a[1:] {
			if c, err := compare(a[0], x); c == 0 || err != nil {
				return c == 0, err
			}
		}
		return false, nil
	},
	"ne":    func(a []reflect.Value) (any, error) { c, err := compare(a[0], a[1]); return c != 0, err },
	"lt":    func(a []reflect.Value) (any, error) { c, err := compare(a[0], a[1]); return c < 0, err },
	"le":    func(a []reflect.Value) (any, error) { c, err := compare(a[0], a[1]); return c <= 0, err },
	"gt":    func(a []reflect.Value) (any, error) { c, err := compare(a[0], a[1]); return c > 0, err },
	"ge":    func(a []reflect.Value) (any, error) { c, err := compare(a[0], a[1]); return c >= 0, err },
	"index": func(a []reflect.Value) (any, error) { return a[0].Index(int(a[1].Int())).Interface(), nil },
	"slice": func(a []reflect.Value) (any, error) {
		return a[0].Slice(int(a[1].Int()), int(a[2].Int())).Interface(), nil
	},
	"print":  func(a []reflect.Value) (any, error) { return fmt.Sprint(plain(a)...), nil },
	"printf": func(a []reflect.Value) (any, error) { return fmt.Sprintf(a[0].String(), plain(a[1:])...), nil },
}

func plain(a []reflect.Value) []any {
	var all []any
	for _, v := range a {
		all = append(all, v.Interface())
	}
	return all
}

// compare orders two numbers, strings or truths.
func compare(a, b reflect.Value) (int, error) {
	switch {
	case a.CanInt() && b.CanInt():
		return cmp.Compare(a.Int(), b.Int()), nil
	case a.CanUint() && b.CanUint():
		return cmp.Compare(a.Uint(), b.Uint()), nil
	case a.Kind() == reflect.String && b.Kind() == reflect.String:
		return cmp.Compare(a.String(), b.String()), nil
	case a.Kind() == reflect.Bool && b.Kind() == reflect.Bool && a.Bool() == b.Bool():
		return 0, nil
	case a.Kind() == reflect.Bool && b.Kind() == reflect.Bool:
		return 1, nil
	}
	return 0, fmt.Errorf("%v and %v are not compared", a, b)
}

// function is what a function gives. A panic of its, as of an index past the end, is an error.
func (s *state) function(dot reflect.Value, name string, args []parse.Node) (v reflect.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %v", name, p)
		}
	}()
	var values []reflect.Value
	for _, n := range args {
		if v, err = s.operand(dot, n); err != nil {
			return v, err
		}
		if name == "and" && !truth(v) || name == "or" && truth(v) {
			return v, nil
		}
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		values = append(values, v)
	}
	if f := s.t.Funcs[name]; f != nil {
		y := reflect.ValueOf(f).Call(values)
		if len(y) == 2 {
			err, _ = y[1].Interface().(error)
		}
		return y[0], err
	}
	f := builtin[name]
	if f == nil { // and, or: the last
		return v, nil
	}
	y, err := f(values)
	return reflect.ValueOf(y), err
}
