package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A spec is how a value is formatted: Python's format specification, or the
// flags of % formatting, which are a part of it.
type spec struct {
	fill      string // one character, "" for a space
	align     byte   // < > = ^, or 0
	sign      byte   // + - space, or 0
	alternate bool
	width     int
	group     byte // , _ or 0
	precision int  // -1 if there is none
	verb      byte // or 0
}

// parseSpec reads [[fill]align][sign][z][#][0][width][group][.precision][type].
func parseSpec(s string) (spec, error) {
	f := spec{precision: -1}
	wrong := valueError("Invalid format specifier '%s'", s)
	_, w := utf8.DecodeRuneInString(s)
	switch {
	case len(s) > w && strings.IndexByte("<>=^", s[w]) >= 0:
		f.fill, f.align, s = s[:w], s[w], s[w+1:]
	case s != "" && strings.IndexByte("<>=^", s[0]) >= 0:
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		f.sign, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, "z") {
		return f, valueError("the z option is not supported")
	}
	if strings.HasPrefix(s, "#") {
		f.alternate, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		if f.fill == "" {
			f.fill = "0"
			if f.align == 0 {
				f.align = '='
			}
		}
		s = s[1:]
	}
	var err error
	if f.width, s, err = decimal(s, 0); err != nil {
		return f, err
	}
	if s != "" && (s[0] == ',' || s[0] == '_') {
		f.group, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		if f.precision, s, err = decimal(s[1:], -1); err != nil {
			return f, err
		}
		if f.precision < 0 {
			return f, valueError("Format specifier missing precision")
		}
	}
	if len(s) > 1 {
		return f, wrong
	}
	if s != "" {
		f.verb = s[0]
	}
	return f, nil
}

// maxWidth bounds widths and precisions before memory does.
const maxWidth = 1 << 24

// decimal reads a number at the start of s.
func decimal(s string, missing int) (int, string, error) {
	n := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if n == 0 {
		return missing, s, nil
	}
	v, err := strconv.Atoi(s[:n])
	if err != nil || v > maxWidth {
		return 0, s, limitError("a width or precision of more than %d", maxWidth)
	}
	return v, s[n:], nil
}

// formatValue is format(v, s).
func (m *machine) formatValue(v Value, s string) (str, error) {
	switch v := v.(type) {
	case str:
		return m.formatText(v, s)
	case boolean, integer, float:
		if s == "" {
			return m.str(v)
		}
		n, _ := numberOf(v)
		f, err := parseSpec(s)
		if err != nil {
			return str{}, err
		}
		return m.formatNumber(n, v.kind(), f)
	}
	if s != "" {
		return str{}, typeError("unsupported format string passed to %s.__format__", v.kind())
	}
	return m.str(v)
}

func (m *machine) formatText(v str, s string) (str, error) {
	f, err := parseSpec(s)
	if err != nil {
		return str{}, err
	}
	switch {
	case f.verb != 0 && f.verb != 's':
		return str{}, valueError("Unknown format code '%c' for object of type 'str'", f.verb)
	case f.sign != 0:
		return str{}, valueError("Sign not allowed in string format specifier")
	case f.alternate:
		return str{}, valueError("Alternate form (#) not allowed in string format specifier")
	case f.group != 0:
		return str{}, valueError("Cannot specify '%c' with 's'.", f.group)
	case f.align == '=' && f.fill == "0" && !strings.Contains(s, "="):
		f.align = '<' // a leading zero only fills
	case f.align == '=':
		return str{}, valueError("'=' alignment not allowed in string format specifier")
	}
	if f.align == 0 {
		f.align = '<'
	}
	return m.padded(f, str{}, f.cut(v))
}

// padded fills up to the width; a sign comes before '=' filling.
func (m *machine) padded(f spec, sign, body str) (str, error) {
	fill := plain(f.fill)
	if f.fill == "" {
		fill = plain(" ")
	}
	n := max(0, f.width-sign.length()-body.length())
	left := 0
	switch f.align {
	case '>', 0:
		left = n
	case '^':
		left = n / 2
	}
	t := m.text()
	t.repeat(fill, left)
	t.add(sign)
	if f.align == '=' {
		t.repeat(fill, n)
	}
	t.add(body)
	if f.align != '=' {
		t.repeat(fill, n-left)
	}
	return t.str()
}

// formatNumber formats a number of the class by a spec of str.format.
func (m *machine) formatNumber(n number, class string, f spec) (str, error) {
	verb := f.verb
	if !n.isFloat && (verb == 0 || strings.IndexByte("bcdoxXn", verb) >= 0) {
		return m.formatInt(n.i, f)
	}
	if verb != 0 && strings.IndexByte("eEfFgGn%", verb) < 0 {
		return str{}, valueError("Unknown format code '%c' for object of type '%s'", verb, class)
	}
	x, err := n.float()
	if err != nil {
		return str{}, err
	}
	if err := m.alloc(2*max(f.precision, 0) + 400); err != nil {
		return str{}, err
	}
	sign, body := floatText(x, f)
	if f.group != 0 && !math.IsInf(x, 0) && !math.IsNaN(x) {
		body = grouped(body, f.group, 3, f.zeroWidth(sign))
	}
	return m.padded(f, plain(sign), plain(body))
}

// zeroWidth is the width that zeros with separators between them must fill.
func (f spec) zeroWidth(sign string) int {
	if f.fill == "0" && f.align == '=' {
		return f.width - len(sign)
	}
	return 0
}

func (m *machine) formatInt(i integer, f spec) (str, error) {
	if f.precision >= 0 {
		return str{}, valueError("Precision not allowed in integer format specifier")
	}
	if f.verb == 'c' {
		return m.formatChar(i, f)
	}
	digits, prefix, err := intDigits(i, f.verb)
	if err != nil {
		return str{}, err
	}
	if !f.alternate {
		prefix = ""
	}
	sign := signText(i.sign() < 0, f.sign) + prefix
	if f.group != 0 {
		size := 3
		if f.verb != 0 && f.verb != 'd' {
			size = 4
			if f.group == ',' {
				return str{}, valueError("Cannot specify ',' with '%c'.", f.verb)
			}
		}
		digits = grouped(digits, f.group, size, f.zeroWidth(sign))
	}
	return m.padded(f, plain(sign), plain(digits))
}

func (m *machine) formatChar(i integer, f spec) (str, error) {
	if f.sign != 0 || f.group != 0 {
		return str{}, valueError("Sign not allowed with integer format specifier 'c'")
	}
	if i.big != nil || i.small < 0 || i.small > utf8.MaxRune {
		return str{}, valueError("%%c arg not in range(0x110000)")
	}
	return m.padded(f, str{}, plain(string(rune(i.small))))
}

// intDigits are the digits of |i| in the base of the verb, and its prefix.
func intDigits(i integer, verb byte) (digits, prefix string, err error) {
	abs := new(big.Int).Abs(i.wide())
	switch verb {
	case 'b':
		return abs.Text(2), "0b", nil
	case 'o':
		return abs.Text(8), "0o", nil
	case 'x':
		return abs.Text(16), "0x", nil
	case 'X':
		return strings.ToUpper(abs.Text(16)), "0X", nil
	}
	digits, err = normal(abs).text()
	return digits, "", err
}

func signText(negative bool, sign byte) string {
	switch {
	case negative:
		return "-"
	case sign == '+' || sign == ' ':
		return string(sign)
	}
	return ""
}

// grouped puts separators between groups of digits of the integer part of s, and
// zeros before it up to the width.
func grouped(s string, sep byte, size, width int) string {
	n := strings.IndexFunc(s, func(r rune) bool { return r == '.' || r == 'e' || r == 'E' || r == '%' })
	if n < 0 || size == 4 {
		n = len(s)
	}
	whole, rest := s[:n], s[n:]
	for width > 0 && len(whole)+(len(whole)-1)/size+len(rest) < width {
		whole = "0" + whole
	}
	var b strings.Builder
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%size == 0 {
			b.WriteByte(sep)
		}
		b.WriteByte(whole[i])
	}
	return b.String() + rest
}

// floatText formats |x| and gives its sign apart.
func floatText(x float64, f spec) (sign, body string) {
	sign = signText(math.Signbit(x) && !math.IsNaN(x), f.sign)
	x = math.Abs(x)
	verb := f.verb
	percent := ""
	if verb == '%' {
		x, verb, percent = x*100, 'f', "%"
	}
	switch {
	case math.IsInf(x, 0):
		body = "inf"
	case math.IsNaN(x):
		body = "nan"
	default:
		body = digitsOf(x, verb, f)
	}
	if verb >= 'A' && verb <= 'Z' {
		body = strings.ToUpper(body)
	}
	return sign, body + percent
}

func digitsOf(x float64, verb byte, f spec) string {
	precision := f.precision
	switch verb {
	case 'e', 'E', 'f', 'F':
		if precision < 0 {
			precision = 6
		}
		s := strconv.FormatFloat(x, verb|0x20, precision, 64)
		if f.alternate && precision == 0 {
			mantissa, exp, ok := strings.Cut(s, "e")
			if s = mantissa + "."; ok {
				s += "e" + exp
			}
		}
		return s
	case 0:
		if precision < 0 {
			return formatFloat(x)
		}
		s := general(x, max(precision, 1), f.alternate, max(precision, 1)-1)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return s
	}
	if precision < 0 {
		precision = 6
	}
	return general(x, max(precision, 1), f.alternate, max(precision, 1))
}

// general is C's %g: precision digits, with an exponent below -4 or from limit
// on, and no zeros at the end unless keep is set.
func general(x float64, precision int, keep bool, limit int) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, e, _ := strings.Cut(s, "e")
	exp, _ := strconv.Atoi(e)
	if exp >= -4 && exp < limit {
		mantissa, e = strconv.FormatFloat(x, 'f', max(precision-1-exp, 0), 64), ""
	}
	if strings.Contains(mantissa, ".") && !keep {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	} else if keep && !strings.Contains(mantissa, ".") {
		mantissa += "."
	}
	if e != "" {
		e = "e" + e
	}
	return mantissa + e
}
