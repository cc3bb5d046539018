package webgpu

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Shaders are templates in a part of the language of text/template: values are int, bool, string, lists of strings and
// numbers, and variants; range counts to a number; and printing a missing name is an error. text/template itself looks
// for methods by name, so the linker would keep every exported method of every type: 4 MB. Its parser alone would be
// 65 kB of the page's program.

// templates are parsed texts and their definitions, by name.
type templates map[string]*shaderText

// shaderText is the sections of a text, or of a definition in it.
type shaderText struct {
	name, text string
	sections   []section
}

// section is a text, an action or a block of a template.
type section struct {
	kind        string // text, print, set, if, range or template
	name        string // the text, the variable that is set, or the template
	of          *operand
	list, other []section
}

// operand is a value in an action.
type operand struct {
	from, to int      // the place in the text
	name     string   // of a function, or of a variable such as $ or $i; "." for the dot, "" for a literal
	literal  any      // int, bool or string
	fields   []string // from a variable or the dot
	args     []*operand
}

// parseTemplates reads texts by their names.
func parseTemplates(texts map[string]string) (t templates, err error) {
	r := &reader{templates: templates{}}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: %w", r.place(r.at), p.(failure).err) // check's
		}
	}()
	for name, text := range texts {
		r.shaderText, r.at = &shaderText{name: name, text: text}, 0
		r.templates[name] = r.shaderText
		if r.sections, r.words = r.list(); r.words != nil {
			check(fmt.Errorf("unexpected %s", r.words[0].text))
		}
	}
	return r.templates, nil
}

// place names a place in a text: the line, and the bytes before the place there.
func (t *shaderText) place(at int) string {
	line := strings.LastIndex(t.text[:at], "\n") + 1
	return fmt.Sprintf("%s:%d:%d", t.name, strings.Count(t.text[:at], "\n")+1, at-line)
}

// reader reads a text.
type reader struct {
	templates
	*shaderText
	at    int    // where the text goes on
	words []word // left of an action
}

// word is a word of an action.
type word struct {
	at   int
	text string
}

var (
	actionText = regexp.MustCompile(`\{\{(- )?([^{}]*?)( -)?\}\}\s*`)
	actionWord = regexp.MustCompile(`"[^"]*"|[()|]|[^\s()|"]+`)
)

// list reads sections up to an else or end and returns the words there, or reads to the text's end.
func (r *reader) list() (all []section, last []word) {
	for {
		m := actionText.FindStringSubmatchIndex(r.text[r.at:])
		text := r.text[r.at:]
		if m != nil {
			text = text[:m[0]]
		}
		if m != nil && m[2] >= 0 {
			text = strings.TrimRight(text, " \t\r\n")
		}
		if strings.Contains(text, "{{") {
			check(errors.New("an action is not closed"))
		}
		if text != "" {
			all = append(all, section{kind: "text", name: text})
		}
		if m == nil {
			return all, nil
		}
		r.words = nil
		for _, w := range actionWord.FindAllStringIndex(r.text[r.at+m[4]:r.at+m[5]], -1) {
			from := r.at + m[4] + w[0]
			r.words = append(r.words, word{from, r.text[from : from+w[1]-w[0]]})
		}
		end := m[1]
		if m[6] < 0 { // what follows keeps its blanks
			end = m[0] + strings.Index(r.text[r.at+m[0]:], "}}") + 2
		}
		r.at += end
		if w := r.words; len(w) > 0 && (w[0].text == "else" || w[0].text == "end") {
			return all, w
		}
		all = append(all, r.section()...)
	}
}

// section reads the section that an action begins: none of a definition.
func (r *reader) section() []section {
	switch first := r.next(); first.text {
	case "define":
		outer, name := r.shaderText, r.string()
		r.shaderText = &shaderText{name: outer.name, text: outer.text}
		r.templates[name] = r.shaderText
		r.sections, r.words = r.list()
		r.end()
		r.shaderText = outer
		return nil
	case "template":
		p := section{kind: first.text, name: r.string()}
		if len(r.words) > 0 {
			p.of = r.call()
		}
		return []section{p}
	case "if":
		p := section{kind: first.text, of: r.call()}
		if p.list, r.words = r.list(); len(r.words) > 1 { // else if: both have one end
			r.words = r.words[1:]
			p.other = r.section()
			return []section{p}
		}
		if len(r.words) > 0 && r.words[0].text == "else" {
			p.other, r.words = r.list()
		}
		r.end()
		return []section{p}
	case "range":
		p := section{kind: first.text, name: r.variable()}
		p.of = r.call()
		p.list, r.words = r.list()
		r.end()
		return []section{p}
	default:
		r.words = append([]word{first}, r.words...)
		p := section{kind: "print", name: r.variable()}
		if p.name != "" {
			p.kind = "set"
		}
		p.of = r.call()
		return []section{p}
	}
}

// next takes the next word.
func (r *reader) next() word {
	if len(r.words) == 0 {
		check(errors.New("missing value"))
	}
	w := r.words[0]
	r.words = r.words[1:]
	return w
}

// end wants the end of a block.
func (r *reader) end() {
	if len(r.words) != 1 || r.words[0].text != "end" {
		check(errors.New("an end is missing"))
	}
}

// string takes the name of a template.
func (r *reader) string() string {
	w := r.next()
	s, err := strconv.Unquote(w.text)
	if err != nil {
		check(fmt.Errorf("%s is no name in quotes", w.text))
	}
	return s
}

// variable takes the variable that a value gets, if there is one.
func (r *reader) variable() string {
	if len(r.words) < 2 || r.words[1].text != ":=" {
		return ""
	}
	name := r.words[0].text
	r.words = r.words[2:]
	return name
}

// call reads an operand, or a function with its arguments, up to the action's end or a bracket.
func (r *reader) call() *operand {
	o := r.operand()
	for len(r.words) > 0 && r.words[0].text != ")" {
		x := r.operand()
		o.args, o.to = append(o.args, x), x.to
	}
	if len(o.args) > 0 && templateFuncs[o.name] == nil {
		check(fmt.Errorf("%s is not supported", r.text[o.from:o.to]))
	}
	return o
}

// operand reads one value.
func (r *reader) operand() *operand {
	w := r.next()
	o := &operand{from: w.at, to: w.at + len(w.text)}
	number, err := strconv.Atoi(w.text)
	names := strings.Split(w.text, ".")
	switch {
	case w.text == "(":
		o = r.call()
		if len(r.words) == 0 {
			check(errors.New("a bracket is missing"))
		}
		o.from, o.to = w.at, r.next().at+1
	case w.text == ".":
		o.name = "."
	case names[0] == "" || names[0][0] == '$':
		o.name, o.fields = cmp.Or(names[0], "."), names[1:]
	case err == nil:
		o.literal = number
	case w.text == "true" || w.text == "false":
		o.literal = w.text == "true"
	case w.text[0] == '"':
		o.literal, err = strconv.Unquote(w.text)
		check(err)
	case templateFuncs[w.text] != nil:
		o.name = w.text
	default:
		check(fmt.Errorf("{{%s}} is not supported", w.text))
	}
	return o
}

// fill writes the template of a name, with data as its dot.
func (t templates) fill(w *strings.Builder, name string, data any) (err error) {
	text := t[name]
	if text == nil {
		return fmt.Errorf("there is no template %q", name)
	}
	f := &filling{templates: t, shaderText: text, w: w, vars: []variable{{"$", data}}}
	defer func() {
		if p := recover(); p != nil { // an error, or a function with wrong arguments
			if e, ok := p.(failure); ok {
				err = fmt.Errorf("%s: %w", text.place(f.at), e.err)
			} else {
				err = fmt.Errorf("%s: %v", text.place(f.at), p)
			}
		}
	}()
	f.walk(data, text.sections)
	return nil
}

// filling is a template at work. Errors are failures.
type filling struct {
	templates
	*shaderText
	w    *strings.Builder
	vars []variable
	at   int // for errors
}

type variable struct {
	name  string
	value any
}

func (f *filling) walk(dot any, list []section) {
	for i := range list {
		f.write(dot, &list[i])
	}
}

func (f *filling) write(dot any, p *section) {
	if p.kind == "text" {
		f.w.WriteString(p.name)
		return
	}
	var v any
	if p.of != nil {
		v = f.value(dot, p.of)
	}
	had := len(f.vars)
	switch p.kind {
	case "set":
		f.vars = append(f.vars, variable{p.name, v})
		return
	case "print":
		if v == nil {
			check(fmt.Errorf("there is no value of %s to print", f.text[p.of.from:p.of.to]))
		}
		fmt.Fprint(f.w, v)
	case "if":
		if isTrue(v) {
			f.walk(dot, p.list)
		} else {
			f.walk(dot, p.other)
		}
	case "range":
		for i := range v.(int) {
			f.vars = append(f.vars[:had], variable{p.name, i})
			f.walk(i, p.list)
		}
	case "template":
		check(f.fill(f.w, p.name, v))
	}
	f.vars = f.vars[:had]
}

// value returns the value of an operand: of a function, with its arguments.
func (f *filling) value(dot any, o *operand) any {
	f.at = o.from
	switch {
	case o.name == "":
		return o.literal
	case o.name == ".":
		return fields(dot, o.fields)
	case o.name[0] == '$':
		for i := len(f.vars) - 1; i >= 0; i-- {
			if f.vars[i].name == o.name {
				return fields(f.vars[i].value, o.fields)
			}
		}
		check(fmt.Errorf("there is no %s", o.name))
	}
	var values []any
	for _, x := range o.args {
		values = append(values, f.value(dot, x))
	}
	f.at = o.from
	return templateFuncs[o.name](values)
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
	"begins": func(a []any) any { return highBits(a[0].(int), a[1].(int), a[2].(int)) },
	"unit":   func(a []any) any { return nthUnit(a[0].(linearVariant), a[1].(int)) },
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
