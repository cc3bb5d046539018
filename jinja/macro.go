package jinja

import "slices"

type (
	// A macroDef is the code of a macro or call block.
	macroDef struct {
		name     string // "" for a call block
		params   []int  // numbers of the parameters
		names    []string
		defaults []expr // defaults of the last params
		frame    *frame
		body     []stmt
		line     int

		// Numbers of the special variables read by the body, or -1.
		caller, kwargs, varargs int
	}

	// A macro is a macroDef with the scope around it.
	macro struct {
		def   *macroDef
		scope *scope
	}

	macroStmt struct {
		def *macroDef
		id  int
	}

	// A callStmt passes its body as caller to a call.
	callStmt struct {
		def  *macroDef
		call *callExpr
		line int
	}
)

func (*macro) kind() string { return "Macro" }

func (x *macroStmt) exec(r *rendering, s *scope, _ *text) signal {
	s.set(r, x.id, &macro{x.def, s})
	return signalNone
}

func (x *callStmt) exec(r *rendering, s *scope, out *text) signal {
	v := x.call.with(r, s, &macro{x.def, s})
	r.line = x.line
	out.join(v)
	return signalNone
}

// call returns f(a): the text of the macro's body.
func (f *macro) call(r *rendering, a *args) Value {
	r.enter()
	s := newScope(r, f.scope, f.def.frame)
	f.bind(r, a, s)
	out := r.text()
	execute(r, s, f.def.body, out)
	r.leave()
	return out.str()
}

// bind sets the parameters, as jinja2.runtime.Macro does.
func (f *macro) bind(r *rendering, a *args, s *scope) {
	d := f.def
	rest := NewDict()
	foundCaller := slices.Contains(d.names, "caller")
	for i, k := range a.kw.Keys() {
		if at := slices.Index(d.names, k); at >= len(a.pos) {
			s.set(r, d.params[at], a.kw.values[i])
		} else if k != "caller" || d.caller < 0 || foundCaller {
			rest.Set(k, a.kw.values[i])
		}
	}
	if d.caller >= 0 && !foundCaller {
		v, ok := a.kw.Get("caller")
		if !ok || v == None {
			v = &undefined{hint: "No caller defined", name: unmarked("caller")}
		}
		s.set(r, d.caller, v)
	}
	switch {
	case d.kwargs >= 0:
		s.set(r, d.kwargs, rest)
	case slices.Contains(rest.Keys(), "caller"):
		panic(typeError("macro '%s' was invoked with two values for the special caller argument. "+
			"This is most likely a bug.", d.name))
	case rest.Len() > 0:
		panic(typeError("macro '%s' takes no keyword argument '%s'", d.name, rest.Keys()[0]))
	}
	more := a.pos[min(len(d.params), len(a.pos)):]
	if d.varargs >= 0 {
		s.set(r, d.varargs, tupleOf(more...))
	} else if len(more) > 0 {
		panic(typeError("macro '%s' takes not more than %d argument(s)", d.name, len(d.params)))
	}
	f.setDefaults(r, a, s)
}

// setDefaults sets the parameters by position and, in their order, the parameters that were not given.
func (f *macro) setDefaults(r *rendering, a *args, s *scope) {
	d := f.def
	first := len(d.params) - len(d.defaults)
	for i, p := range d.params {
		switch {
		case i < len(a.pos):
			s.set(r, p, a.pos[i])
		case s.place(p) >= 0:
		case i < first:
			s.set(r, p, &undefined{hint: "parameter '" + d.names[i] + "' was not provided", name: unmarked(d.names[i])})
		default:
			r.line = d.line
			s.set(r, p, d.defaults[i-first].eval(r, s))
		}
	}
}

// attribute returns macro.name, or nil.
func (f *macro) attribute(name string) Value {
	switch name {
	case "name":
		if f.def.name == "" {
			return None
		}
		return unmarked(f.def.name)
	case "arguments":
		t := tupleOf()
		for _, a := range f.def.names {
			t.items = append(t.items, unmarked(a))
		}
		return t
	case "catch_kwargs":
		return boolean(f.def.kwargs >= 0)
	case "catch_varargs":
		return boolean(f.def.varargs >= 0)
	case "caller":
		return boolean(f.def.caller >= 0)
	case "explicit_caller":
		return boolean(slices.Contains(f.def.names, "caller"))
	}
	return nil
}
