package jinja

import (
	"strings"
	"unicode/utf8"
)

// A percentFormatter is one use of the % operator on a string.
type percentFormatter struct {
	m    *machine
	out  *text
	args []Value // by position
	next int
	dict Value // by name, or nil
	safe bool  // Markup: inserted values are escaped
}

// percent is s % v.
func (m *machine) percent(s str, v Value) (Value, error) {
	p := &percentFormatter{m: m, out: m.text(), args: []Value{v}, safe: s.safe}
	switch v := v.(type) {
	case *tuple:
		p.args = v.items
	case *Dict, *list, *undefined, *rangeValue:
		p.dict = v
	}
	at := 0
	for at < len(s.s) {
		i := strings.IndexByte(s.s[at:], '%')
		if i < 0 {
			break
		}
		if err := m.step(1); err != nil {
			return nil, err
		}
		p.out.add(s.sub(at, at+i))
		n, err := p.directive(s.s[at+i:])
		if err != nil {
			return nil, err
		}
		at += i + n
	}
	p.out.add(s.sub(at, len(s.s)))
	if p.next < len(p.args) && p.dict == nil {
		return nil, typeError("not all arguments converted during string formatting")
	}
	r, err := p.out.str()
	r.safe = s.safe
	return r, err
}

// take is the next argument.
func (p *percentFormatter) take() (Value, error) {
	if p.next >= len(p.args) {
		return nil, typeError("not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1], nil
}

// directive formats one % at the start of s, and returns its length.
func (p *percentFormatter) directive(s string) (int, error) {
	incomplete := valueError("incomplete format")
	at := 1
	var named Value
	if strings.HasPrefix(s[at:], "(") {
		name, n := parenthesized(s[at:])
		if n == 0 {
			return 0, valueError("incomplete format key")
		}
		if p.dict == nil {
			return 0, typeError("format requires a mapping")
		}
		v, err := p.m.index(p.dict, plain(name))
		if err != nil {
			return 0, err
		}
		named = v
		at += n
	}
	f := spec{precision: -1, align: '>'}
	for ; at < len(s) && strings.IndexByte("-+ #0", s[at]) >= 0; at++ {
		f.flag(s[at])
	}
	var err error
	if f.width, at, err = p.count(s, at, 0); err != nil {
		return 0, err
	}
	if f.width < 0 {
		f.width, f.align = -f.width, '<'
	}
	if at < len(s) && s[at] == '.' {
		if f.precision, at, err = p.count(s, at+1, 0); err != nil {
			return 0, err
		}
		f.precision = max(f.precision, 0)
	}
	for at < len(s) && strings.IndexByte("hlL", s[at]) >= 0 {
		at++
	}
	if at == len(s) {
		return 0, incomplete
	}
	f.verb = s[at]
	if f.verb == '%' {
		p.out.raw("%")
		return at + 1, nil
	}
	if named == nil {
		if p.dict != nil && len(p.args) != 1 {
			return 0, incomplete
		}
		if named, err = p.take(); err != nil {
			return 0, err
		}
	}
	return at + 1, p.value(named, f)
}

func (f *spec) flag(c byte) {
	switch c {
	case '-':
		f.align = '<'
	case '0':
		f.fill = "0"
	case '#':
		f.alternate = true
	case '+':
		f.sign = '+'
	case ' ':
		if f.sign == 0 {
			f.sign = ' '
		}
	}
}

// parenthesized is the text in the parentheses at the start of s, and the length
// with them, 0 if they do not close.
func parenthesized(s string) (string, int) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[1:i], i + 1
			}
		}
	}
	return "", 0
}

// count reads a width or precision, which may be an argument.
func (p *percentFormatter) count(s string, at, missing int) (int, int, error) {
	if at < len(s) && s[at] == '*' {
		v, err := p.take()
		if err != nil {
			return 0, 0, err
		}
		i, ok := intOf(v)
		if !ok {
			return 0, 0, typeError("* wants int")
		}
		n, err := indexOf(i)
		if err != nil || n > maxWidth || n < -maxWidth {
			return 0, 0, limitError("a width or precision of more than %d", maxWidth)
		}
		return n, at + 1, nil
	}
	n, rest, err := decimal(s[at:], missing)
	return n, len(s) - len(rest), err
}

// value writes one argument.
func (p *percentFormatter) value(v Value, f spec) error {
	var s str
	var err error
	switch f.verb {
	case 's', 'r', 'a':
		s, err = p.text(v, f)
	case 'd', 'i', 'u', 'o', 'x', 'X':
		s, err = p.integer(v, f)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		s, err = p.float(v, f)
	case 'c':
		s, err = p.char(v, f)
	default:
		err = valueError("unsupported format character '%c' (0x%x)", f.verb, f.verb)
	}
	p.out.add(s)
	return err
}

func (p *percentFormatter) text(v Value, f spec) (s str, err error) {
	switch f.verb {
	case 's':
		s, err = p.m.softStr(v)
	case 'r':
		s, err = p.m.repr(v)
	default:
		if s, err = p.m.repr(v); err == nil {
			s = s.mapped(asciiOnly(s.s))
		}
	}
	if err == nil && p.safe {
		s, err = p.m.escape(s)
	}
	if err != nil {
		return str{}, err
	}
	f.fill = "" // zeros are for numbers
	return p.m.padded(f, str{}, f.cut(s))
}

// cut is at most as many characters of s as the precision says, if there is one.
func (f spec) cut(s str) str {
	n := f.precision
	if n < 0 || n >= len(s.s) {
		return s
	}
	for at := range s.s {
		if n == 0 {
			return s.sub(0, at)
		}
		n--
	}
	return s
}

// asciiOnly escapes characters beyond ASCII.
func asciiOnly(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
		} else {
			b.WriteString(escapeRune(r))
		}
	}
	return b.String()
}

func (p *percentFormatter) number(v Value, f spec) (number, error) {
	if u, ok := v.(*undefined); ok && p.safe {
		return number{}, u.fail()
	}
	n, ok := numberOf(v)
	if !ok {
		return number{}, typeError("%%%c format: a real number is required, not %s", f.verb, v.kind())
	}
	return n, nil
}

func (p *percentFormatter) integer(v Value, f spec) (str, error) {
	n, err := p.number(v, f)
	if err != nil {
		return str{}, err
	}
	if n.isFloat {
		if f.verb == 'o' || f.verb == 'x' || f.verb == 'X' {
			return str{}, typeError("%%%c format: an integer is required, not float", f.verb)
		}
		if n.i, err = truncate(n.f); err != nil {
			return str{}, err
		}
	}
	digits, prefix, err := intDigits(n.i, f.verb)
	if err != nil {
		return str{}, err
	}
	if !f.alternate {
		prefix = ""
	}
	body := p.m.text()
	body.repeat(plain("0"), f.precision-len(digits))
	body.raw(digits)
	text, err := body.str()
	if err != nil {
		return str{}, err
	}
	return p.m.padded(f.zeros(), plain(signText(n.i.sign() < 0, f.sign)+prefix), text)
}

// zeros turns the flag 0 into alignment, if no minus is there.
func (f spec) zeros() spec {
	switch {
	case f.fill == "0" && f.align == '>':
		f.align = '='
	case f.align == '<':
		f.fill = ""
	}
	return f
}

func (p *percentFormatter) float(v Value, f spec) (str, error) {
	n, err := p.number(v, f)
	if err != nil {
		return str{}, err
	}
	x, err := n.float()
	if err != nil {
		return str{}, err
	}
	if err := p.m.alloc(2*max(f.precision, 0) + 400); err != nil {
		return str{}, err
	}
	sign, body := floatText(x, f)
	return p.m.padded(f.zeros(), plain(sign), plain(body))
}

func (p *percentFormatter) char(v Value, f spec) (str, error) {
	f.fill = ""
	if s, ok := v.(str); ok && len(s.s) <= utf8.UTFMax && s.length() == 1 {
		return p.m.padded(f, str{}, s)
	}
	i, ok := intOf(v)
	if !ok {
		return str{}, typeError("%%c requires int or char")
	}
	f.sign, f.group = 0, 0
	return p.m.formatChar(i, f)
}
