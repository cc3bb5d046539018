// Package template fills in templates of the language of text/template, whose parser it uses.
//
// Two things differ. A method is not looked for by its name: reflection that does makes the
// linker keep every exported method of every type, 4 MB of karat; a program names the ones that its
// templates call (Options.Methods). A key or a field that is not there is an error where it is
// printed.
package template

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"text/template/parse"
)

// Options of Parse.
type Options struct {
	Funcs map[string]any // by name; each gives a value, and may give an error

	// Methods are the methods that templates call, by name. Each looks for a constant name:
	// v.MethodByName("Rows") keeps the methods of that name alone.
	Methods map[string]func(v reflect.Value) reflect.Value
}

// Template is a set of templates that call each other.
type Template struct {
	Options
	trees map[string]*parse.Tree
}

// Parse reads templates, the text of each by its name, and the templates that they define.
func Parse(texts map[string]string, o Options) (*Template, error) {
	t := &Template{o, map[string]*parse.Tree{}}
	known := maps.Clone(o.Funcs)
	if known == nil {
		known = map[string]any{}
	}
	for name := range builtin {
		known[name] = name
	}
	for name, text := range texts {
		trees, err := parse.Parse(name, text, "", "", known)
		if err != nil {
			return nil, err
		}
		maps.Copy(t.trees, trees)
	}
	for _, tree := range t.trees {
		if err := t.check(tree, tree.Root); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// check finds what no data can mend: calls of templates that are not there, and nodes that
// are not supported.
func (t *Template) check(tree *parse.Tree, n parse.Node) error {
	fails := func(format string, args ...any) error {
		place, _ := tree.ErrorContext(n)
		return fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...))
	}
	both := func(b *parse.BranchNode) error { return errors.Join(t.check(tree, b.List), t.check(tree, b.ElseList)) }
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, x := range n.Nodes {
			if err := t.check(tree, x); err != nil {
				return err
			}
		}
	case *parse.IfNode:
		return both(&n.BranchNode)
	case *parse.WithNode:
		return both(&n.BranchNode)
	case *parse.RangeNode:
		return both(&n.BranchNode)
	case *parse.TemplateNode:
		if t.trees[n.Name] == nil {
			return fails("there is no template %q", n.Name)
		}
	case *parse.TextNode, *parse.ActionNode, *parse.CommentNode:
	default:
		return fails("%s is not supported", n)
	}
	return nil
}

// Must is Parse for texts that the program holds.
func Must(texts map[string]string, o Options) *Template {
	t, err := Parse(texts, o)
	if err != nil {
		panic(err)
	}
	return t
}

// Execute writes the template of that name with data for its dot. What was written before an
// error stays written.
func (t *Template) Execute(w io.Writer, name string, data any) error {
	tree := t.trees[name]
	if tree == nil {
		return fmt.Errorf("there is no %q", name)
	}
	s := &state{t: t, tree: tree, w: w, vars: []variable{{"$", reflect.ValueOf(data)}}}
	err := s.walk(reflect.ValueOf(data), tree.Root)
	if err != nil && s.at != nil {
		place, _ := tree.ErrorContext(s.at)
		return fmt.Errorf("%s: %w", place, err)
	}
	return err
}

// state is a template at work.
type state struct {
	t    *Template
	tree *parse.Tree
	w    io.Writer
	vars []variable
	at   parse.Node // for errors
}

type variable struct {
	name  string
	value reflect.Value
}

func (s *state) walk(dot reflect.Value, n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, x := range n.Nodes {
			if err := s.walk(dot, x); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		_, err := s.w.Write(n.Text)
		return err
	case *parse.ActionNode:
		v, err := s.pipeline(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		return s.print(v)
	case *parse.IfNode:
		return s.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return s.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return s.loop(dot, n)
	case *parse.TemplateNode:
		return s.call(dot, n)
	}
	s.at = n
	return fmt.Errorf("%s is not supported", n)
}

// branch goes one of two ways; with makes the condition its dot.
func (s *state) branch(dot reflect.Value, n *parse.BranchNode, with bool) error {
	defer s.forget(len(s.vars))
	v, err := s.pipeline(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return s.walk(dot, n.ElseList)
	case with:
		dot = v
	}
	return s.walk(dot, n.List)
}

// forget drops the variables of a block that ends.
func (s *state) forget(to int) { s.vars = s.vars[:to] }

func (s *state) loop(dot reflect.Value, n *parse.RangeNode) error {
	defer s.forget(len(s.vars))
	v, err := s.pipeline(dot, n.Pipe)
	if err != nil {
		return err
	}
	if v = direct(v); v.Kind() != reflect.Slice && v.Kind() != reflect.Array {
		return fmt.Errorf("range over what is no list: %s", n.Pipe)
	}
	if v.Len() == 0 {
		return s.walk(dot, n.ElseList)
	}
	first := len(s.vars) - len(n.Pipe.Decl)
	for i := range v.Len() {
		switch values := s.vars[first:]; len(n.Pipe.Decl) {
		case 1:
			values[0].value = v.Index(i)
		case 2:
			values[0].value, values[1].value = reflect.ValueOf(i), v.Index(i)
		}
		if err := s.walk(v.Index(i), n.List); err != nil {
			return err
		}
		s.forget(first + len(n.Pipe.Decl))
	}
	return nil
}

// call fills in another template.
func (s *state) call(dot reflect.Value, n *parse.TemplateNode) (err error) {
	s.at = n
	var v reflect.Value
	if n.Pipe != nil {
		if v, err = s.pipeline(dot, n.Pipe); err != nil {
			return err
		}
	}
	var data any
	if v.IsValid() {
		data = v.Interface()
	}
	s.at = nil // its own errors say where
	return s.t.Execute(s.w, n.Name, data)
}

// print writes a value.
func (s *state) print(v reflect.Value) error {
	if v = direct(v); !v.IsValid() {
		return fmt.Errorf("there is no value to print")
	}
	_, err := fmt.Fprint(s.w, v.Interface())
	return err
}

// direct is what interfaces and pointers lead to; nothing for nil.
func direct(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	return v
}

// truth reports whether a value is neither missing, zero nor empty. A struct is true.
func truth(v reflect.Value) bool {
	switch v = direct(v); v.Kind() {
	case reflect.Invalid:
		return false
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() > 0
	case reflect.Struct:
		return true
	}
	return !v.IsZero()
}
