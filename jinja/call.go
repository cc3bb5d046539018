package jinja

import (
	"slices"
	"strings"
)

// args are the arguments of a call.
type args struct {
	pos []Value
	kw  *Dict // nil if there are none
}

// arguments evaluates the arguments of a call.
func (m *machine) arguments(x *argExprs, e *env) (*args, error) {
	a := &args{}
	for _, p := range x.pos {
		v, err := p.eval(m, e)
		if err != nil {
			return nil, err
		}
		a.pos = append(a.pos, v)
	}
	if x.rest != nil {
		v, err := x.rest.eval(m, e)
		if err != nil {
			return nil, err
		}
		more, err := m.collect(v)
		if err != nil {
			return nil, err
		}
		a.pos = append(a.pos, more...)
	}
	if err := m.allocItems(len(x.pos) + dictItem*len(x.named)); err != nil {
		return nil, err
	}
	for i, p := range x.named {
		v, err := p.eval(m, e)
		if err != nil {
			return nil, err
		}
		a.name(x.names[i], v)
	}
	if x.dict != nil {
		v, err := x.dict.eval(m, e)
		if err != nil {
			return nil, err
		}
		return a, m.addNamed(a, v)
	}
	return a, nil
}

func (a *args) name(name string, v Value) {
	if a.kw == nil {
		a.kw = newDict()
	}
	a.kw.Set(name, v)
}

// addNamed is **v.
func (m *machine) addNamed(a *args, v Value) error {
	d, ok := v.(*Dict)
	if !ok {
		return typeError("argument after ** must be a mapping, not %s", v.kind())
	}
	if err := m.allocItems(dictItem * d.Len()); err != nil {
		return err
	}
	for i, k := range d.keys {
		s, ok := k.(str)
		if !ok {
			return typeError("keywords must be strings")
		}
		if _, ok := a.kw.Get(s.s); ok {
			return typeError("got multiple values for keyword argument '%s'", s.s)
		}
		if a.kw == nil {
			a.kw = newDict()
		}
		a.kw.put(key{class: 's', text: s.s}, s.unsafe(), d.values[i]) // with its marks
	}
	return nil
}

// A param is a parameter of a built-in function.
type param struct {
	name     string
	optional bool
}

// params reads a list of names, each with a question mark if it may be missing.
// Names before a slash can only be given by position.
func params(list string) []param {
	var all []param
	for _, f := range strings.Fields(list) {
		if f == "/" {
			for i := range all {
				all[i].name = ""
			}
			continue
		}
		name, optional := strings.CutSuffix(f, "?")
		all = append(all, param{name, optional})
	}
	return all
}

// bind gives the arguments in the order of the parameters, nil for a missing
// one.
func (a *args) bind(function string, list []param) ([]Value, error) {
	if len(a.pos) > len(list) {
		return nil, typeError("%s() takes at most %d arguments (%d given)", function, len(list), len(a.pos))
	}
	values := make([]Value, len(list))
	copy(values, a.pos)
	for i := range a.kw.Len() {
		name := a.kw.keys[i].(str).s
		at := slices.IndexFunc(list, func(p param) bool { return p.name == name && name != "" })
		switch {
		case at < 0:
			return nil, typeError("%s() got an unexpected keyword argument '%s'", function, name)
		case at < len(a.pos):
			return nil, typeError("%s() got multiple values for argument '%s'", function, name)
		}
		values[at] = a.kw.values[i]
	}
	for i, p := range list {
		if values[i] == nil && !p.optional {
			return nil, typeError("%s() missing required argument '%s' (pos %d)", function, p.name, i+1)
		}
	}
	return values, nil
}

// takes makes a built-in of a function of parameters, which are bound to the arguments of
// each call: one row of a table says its name, its parameters and what it does. V is whose
// filter, test or method it is, R what it gives.
func takes[V, R any](name, list string, f func(m *machine, v V, p []Value) (R, error)) func(*machine, V, *args) (R, error) {
	all := params(list)
	return func(m *machine, v V, a *args) (none R, err error) {
		p, err := a.bind(name, all)
		if err != nil {
			return none, err
		}
		return f(m, v, p)
	}
}

func (x *callExpr) eval(m *machine, e *env) (Value, error) {
	return x.with(m, e, nil)
}

// with calls, caller being what a call block gives, or nil.
func (x *callExpr) with(m *machine, e *env, caller Value) (Value, error) {
	if m.folding {
		return nil, notConstant()
	}
	f, err := x.f.eval(m, e)
	if err != nil {
		return nil, err
	}
	a, err := m.arguments(&x.args, e)
	if err != nil {
		return nil, at(err, x.line)
	}
	if caller != nil {
		if _, ok := a.kw.Get("caller"); ok {
			return nil, at(typeError("got multiple values for keyword argument 'caller'"), x.line)
		}
		a.name("caller", caller)
	}
	if err := m.step(1); err != nil {
		return nil, at(err, x.line)
	}
	v, err := m.invoke(f, a)
	return v, at(err, x.line)
}

// invoke is f(a).
func (m *machine) invoke(f Value, a *args) (Value, error) {
	switch f := f.(type) {
	case *function:
		return f.fn(m, a)
	case *macro:
		return f.call(m, a)
	case *loop:
		return f.call(a)
	case *joiner:
		return f.call(a)
	case *blockRef:
		return f.call(m, a)
	case *undefined:
		return nil, f.fail()
	}
	return nil, typeError("'%s' object is not callable", f.kind())
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *loop, *joiner, *blockRef, *undefined:
		return true
	}
	return false
}

type (
	// A macroDef is the code of a macro or call block.
	macroDef struct {
		name                    string // "" of a call block
		fn                      *codeFunc
		args                    []string
		index                   map[string]int // of args
		params                  []int          // slots of args
		defaults                []expr         // of the last args
		usesCaller              bool
		caller, kwargs, varargs *ref // of the special variables, if they are used
		enter                   []entry
		body                    []stmt
		line                    int
	}

	// A macro is a macroDef with the env in which it was defined.
	macro struct {
		def *macroDef
		env *env
	}

	macroStmt struct {
		def    *macroDef
		ref    ref
		export string // name at the top level, or ""
	}

	// A callStmt gives its body as caller to a call; without one it renders it.
	callStmt struct {
		def  *macroDef
		call *callExpr
		line int
	}
)

func (*macro) kind() string { return "Macro" }

func (s *macroStmt) exec(m *machine, e *env, _ *text) (signal, error) {
	f := &macro{s.def, e}
	*e.at(s.ref) = f
	if s.export != "" {
		e.scope.vars[s.export] = f
	}
	return signalNone, nil
}

func (s *callStmt) exec(m *machine, e *env, out *text) (signal, error) {
	f := &macro{s.def, e}
	var v Value
	var err error
	if s.call == nil {
		v, err = f.call(m, &args{})
	} else {
		v, err = s.call.with(m, e, f)
	}
	if err == nil {
		err = out.join(v)
	}
	return signalNone, at(err, s.line)
}

// call is f(a): the text of the macro's body.
func (f *macro) call(m *machine, a *args) (Value, error) {
	if err := m.call(); err != nil {
		return nil, err
	}
	defer m.leave()
	e, err := m.env(f.def.fn, f.env, f.env.scope)
	if err != nil {
		return nil, err
	}
	if err := f.bind(a, e); err != nil {
		return nil, err
	}
	e.enter(f.def.enter)
	if err := f.setDefaults(m, e); err != nil {
		return nil, at(err, f.def.line)
	}
	text, _, err := m.capture(f.def.body, e)
	return text, err
}

// bind sets the parameters, as jinja2.runtime.Macro does.
func (f *macro) bind(a *args, e *env) error {
	d := f.def
	foundCaller := len(a.pos) >= len(d.args) && slices.Contains(d.args, "caller")
	for i, name := range d.args {
		if i < len(a.pos) {
			e.slots[d.params[i]] = a.pos[i]
			continue
		}
		if v, ok := a.kw.Get(name); ok {
			e.slots[d.params[i]] = v
		}
		foundCaller = foundCaller || name == "caller"
	}
	if d.caller != nil && !foundCaller {
		v, ok := a.kw.Get("caller")
		if !ok || v == None {
			v = &undefined{hint: "No caller defined", name: plain("caller")}
		}
		*e.at(*d.caller) = v
	}
	return f.bindRest(f.others(a, !foundCaller), a, e)
}

// others are the arguments by name that have no parameter.
func (f *macro) others(a *args, caller bool) *Dict {
	d := f.def
	rest := newDict()
	for _, name := range a.kw.Keys() {
		if i, ok := d.index[name]; name == "caller" && caller && d.caller != nil || ok && i >= len(a.pos) {
			continue
		}
		v, _ := a.kw.Get(name)
		rest.Set(name, v)
	}
	return rest
}

// bindRest is about the arguments that have no parameter.
func (f *macro) bindRest(rest *Dict, a *args, e *env) error {
	d := f.def
	if d.kwargs != nil {
		*e.at(*d.kwargs) = rest
	} else if rest.Len() > 0 {
		if _, ok := rest.Get("caller"); ok {
			return typeError("macro '%s' was invoked with two values for the special caller argument. This is most likely a bug.", d.name)
		}
		return typeError("macro '%s' takes no keyword argument '%s'", d.name, rest.Keys()[0])
	}
	more := a.pos[min(len(d.args), len(a.pos)):]
	if d.varargs != nil {
		*e.at(*d.varargs) = &tuple{items: more}
	} else if len(more) > 0 {
		return typeError("macro '%s' takes not more than %d argument(s)", d.name, len(d.args))
	}
	return nil
}

// setDefaults sets the parameters that were not given.
func (f *macro) setDefaults(m *machine, e *env) error {
	d := f.def
	first := len(d.args) - len(d.defaults)
	for i, slot := range d.params {
		if e.slots[slot] != nil {
			continue
		}
		if i < first {
			e.slots[slot] = &undefined{hint: "parameter '" + d.args[i] + "' was not provided", name: plain(d.args[i])}
			continue
		}
		v, err := d.defaults[i-first].eval(m, e)
		if err != nil {
			return err
		}
		e.slots[slot] = v
	}
	return nil
}

// attribute is macro.name.
func (f *macro) attribute(name string) Value {
	switch name {
	case "name":
		if f.def.name == "" {
			return None
		}
		return plain(f.def.name)
	case "arguments":
		t := &tuple{}
		for _, a := range f.def.args {
			t.items = append(t.items, plain(a))
		}
		return t
	case "catch_kwargs":
		return boolean(f.def.kwargs != nil)
	case "catch_varargs":
		return boolean(f.def.varargs != nil)
	case "caller":
		return boolean(f.def.usesCaller)
	case "explicit_caller":
		return boolean(slices.Contains(f.def.args, "caller"))
	}
	return nil
}

type (
	// templateRef is the variable self, whose items are blocks.
	templateRef struct{ scope *scope }

	// blockRef is self.name.
	blockRef struct {
		name  string
		scope *scope
	}
)

func (*templateRef) kind() string { return "TemplateReference" }
func (*blockRef) kind() string    { return "BlockReference" }

// call is self.name().
func (b *blockRef) call(m *machine, a *args) (Value, error) {
	if len(a.pos) > 0 || a.kw.Len() > 0 {
		return nil, typeError("BlockReference.__call__() takes no arguments")
	}
	out := m.text()
	if err := m.block(b.scope.blocks[b.name], b.scope, out); err != nil {
		return nil, err
	}
	s, err := out.str()
	return s, err
}
