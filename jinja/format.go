package jinja

import (
	"strconv"
	"strings"
)

// A fieldFormatter is one call of str.format, as Python's string.Formatter does
// it behind the sandbox: attributes and items go through getattr and getitem.
type fieldFormatter struct {
	m      *machine
	pos    []Value
	kw     *Dict
	auto   int  // the next automatic number
	manual bool // numbers were given
	safe   bool // Markup: inserted values are escaped
}

func strFormat(m *machine, s str, a *args) (Value, error) {
	return m.format(s, &fieldFormatter{m: m, pos: a.pos, kw: a.kw, safe: s.safe})
}

func strFormatMap(m *machine, s str, p []Value) (Value, error) {
	d, ok := p[0].(*Dict)
	if !ok {
		return nil, typeError("'%s' object is not subscriptable", p[0].kind())
	}
	return m.format(s, &fieldFormatter{m: m, kw: d, safe: s.safe})
}

func (m *machine) format(s str, f *fieldFormatter) (Value, error) {
	t := m.text()
	if err := f.write(t, s, 2); err != nil {
		return nil, err
	}
	r, err := t.str()
	r.safe = s.safe
	return r, err
}

// write formats s, whose fields may hold fields in their specs down to a depth.
func (f *fieldFormatter) write(t *text, s str, depth int) error {
	if depth < 0 {
		return valueError("Max string recursion exceeded")
	}
	for at := 0; at < len(s.s); {
		i := strings.IndexAny(s.s[at:], "{}")
		if i < 0 {
			t.add(s.sub(at, len(s.s)))
			break
		}
		if err := t.m.step(1); err != nil {
			return err
		}
		i += at
		if strings.HasPrefix(s.s[i+1:], s.s[i:i+1]) {
			t.add(s.sub(at, i+1))
			at = i + 2
			continue
		}
		t.add(s.sub(at, i))
		if s.s[i] == '}' {
			return valueError("Single '}' encountered in format string")
		}
		n := fieldLength(s.s[i:])
		if n == 0 {
			return valueError("expected '}' before end of string")
		}
		if err := f.field(t, s.sub(i+1, i+n-1), depth); err != nil {
			return err
		}
		at = i + n
	}
	return t.err
}

// fieldLength is the length of the braces at the start of s, 0 if they do not
// close.
func fieldLength(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// field writes one field: name!conversion:spec.
func (f *fieldFormatter) field(t *text, s str, depth int) error {
	name, conversion, specText, err := splitField(s)
	if err != nil {
		return err
	}
	v, err := f.lookup(name)
	if err != nil {
		return err
	}
	if v, err = f.convert(v, conversion); err != nil {
		return err
	}
	nested := f.m.text()
	if err := f.write(nested, specText, depth-1); err != nil {
		return err
	}
	spec, err := nested.str()
	if err != nil {
		return err
	}
	x, _ := v.(str)
	if f.safe && x.safe && spec.s != "" {
		return valueError("Unsupported format specification for Markup.")
	}
	text, err := f.m.formatValue(v, spec.s)
	if err == nil && f.safe && !x.safe {
		text, err = f.m.escape(text.unsafe())
	}
	t.add(text)
	return err
}

// splitField cuts a field at the first ! or : outside brackets.
func splitField(s str) (name string, conversion string, spec str, err error) {
	brackets := false
	end := len(s.s)
scan:
	for i := range len(s.s) {
		switch c := s.s[i]; {
		case c == '[':
			brackets = true
		case c == ']':
			brackets = false
		case c == '{' && !brackets:
			return "", "", spec, valueError("unexpected '{' in field name")
		case (c == '!' || c == ':') && !brackets:
			end = i
			break scan
		}
	}
	name = s.s[:end]
	rest := s.sub(end, len(s.s))
	if strings.HasPrefix(rest.s, "!") {
		cut := strings.IndexByte(rest.s, ':')
		if cut < 0 {
			cut = len(rest.s)
		}
		if conversion = rest.s[1:cut]; len(conversion) != 1 {
			return "", "", spec, valueError("expected ':' after conversion specifier")
		}
		rest = rest.sub(cut, len(rest.s))
	}
	if rest.s != "" {
		spec = rest.sub(1, len(rest.s))
	}
	return name, conversion, spec, nil
}

func (f *fieldFormatter) convert(v Value, conversion string) (Value, error) {
	switch conversion {
	case "":
		return v, nil
	case "s":
		s, err := f.m.str(v)
		return s, err
	case "r":
		s, err := f.m.repr(v)
		return s, err
	case "a":
		s, err := f.m.repr(v)
		return s.mapped(asciiOnly(s.s)), err
	}
	return nil, valueError("Unknown conversion specifier %s", conversion)
}

// lookup finds the value of a name such as a.b[0].
func (f *fieldFormatter) lookup(name string) (Value, error) {
	n := strings.IndexAny(name, ".[")
	if n < 0 {
		n = len(name)
	}
	v, err := f.first(name, name[:n])
	rest := name[n:]
	for err == nil && rest != "" {
		var part string
		attribute := rest[0] == '.'
		if attribute {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			part, rest = rest[1:end], rest[end:]
		} else {
			end := strings.IndexByte(rest, ']')
			if rest[0] != '[' {
				return nil, valueError("Only '.' or '[' may follow ']' in format field specifier")
			}
			if end < 0 {
				return nil, valueError("Missing ']' in format string")
			}
			part, rest = rest[1:end], rest[end+1:]
		}
		if part == "" {
			return nil, valueError("Empty attribute in format string")
		}
		if attribute {
			v, err = f.m.getattr(v, part)
		} else if i, e := strconv.Atoi(part); e == nil && isASCIIDigit(part[0]) {
			v, err = f.m.getitem(v, Int(int64(i)))
		} else {
			v, err = f.m.getitem(v, plain(part))
		}
	}
	return v, err
}

// first finds the argument that a field begins with.
func (f *fieldFormatter) first(field, name string) (Value, error) {
	number, err := strconv.Atoi(name)
	isNumber := err == nil && isASCIIDigit(name[0])
	switch {
	case field == "":
		if f.manual {
			return nil, valueError("cannot switch from manual field specification to automatic field numbering")
		}
		number, isNumber = f.auto, true
		f.auto++
	case isNumber && field == name:
		if f.auto > 0 {
			return nil, valueError("cannot switch from automatic field numbering to manual field specification")
		}
		f.manual = true
	}
	if isNumber {
		if number >= len(f.pos) {
			return nil, lookupError("Replacement index %d out of range for positional args tuple", number)
		}
		return f.pos[number], nil
	}
	v, ok := f.kw.Get(name)
	if !ok {
		return nil, lookupError("%s", brief(plain(name)))
	}
	return v, nil
}
