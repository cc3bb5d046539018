package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxJSONDepth bounds arrays and objects inside each other.
const maxJSONDepth = 500

// DecodeJSON makes a value of one JSON text as Python's json.loads does: keys
// keep their order, of equal keys the last value counts, and a number is a float
// if it is spelt with a point or an exponent, otherwise an integer of 64 bits.
// Half a surrogate pair becomes U+FFFD. Errors name the byte offset.
func DecodeJSON(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("json: not UTF-8")
	}
	d := &decoder{s: string(data)}
	d.space()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if d.space(); d.at < len(d.s) {
		return nil, d.errorf("text after the value")
	}
	return v, nil
}

type decoder struct {
	s  string
	at int
}

func (d *decoder) errorf(format string, a ...any) error {
	return fmt.Errorf("json: byte %d: %s", d.at, fmt.Sprintf(format, a...))
}

func (d *decoder) space() {
	for d.at < len(d.s) && strings.IndexByte(" \t\r\n", d.s[d.at]) >= 0 {
		d.at++
	}
}

// skip passes over a character if it is next.
func (d *decoder) skip(c byte) bool {
	if d.at < len(d.s) && d.s[d.at] == c {
		d.at++
		return true
	}
	return false
}

var jsonWords = map[string]Value{"null": None, "true": boolean(true), "false": boolean(false)}

func (d *decoder) value(depth int) (Value, error) {
	if depth > maxJSONDepth {
		return nil, d.errorf("nested deeper than %d", maxJSONDepth)
	}
	if d.at == len(d.s) {
		return nil, d.errorf("a value is missing")
	}
	switch c := d.s[d.at]; {
	case c == '"':
		s, err := d.string()
		return plain(s), err
	case c == '[':
		return d.array(depth)
	case c == '{':
		return d.object(depth)
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	}
	for word, v := range jsonWords {
		if strings.HasPrefix(d.s[d.at:], word) {
			d.at += len(word)
			return v, nil
		}
	}
	return nil, d.errorf("a value cannot begin with %q", d.s[d.at])
}

func (d *decoder) array(depth int) (Value, error) {
	d.at++
	items := []Value{}
	for d.space(); !d.skip(']'); d.space() {
		if len(items) > 0 {
			if !d.skip(',') {
				return nil, d.errorf("a comma or ] is missing")
			}
			d.space()
		}
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, v)
	}
	return List(items...), nil
}

func (d *decoder) object(depth int) (Value, error) {
	d.at++
	o := NewDict()
	for first := true; ; first = false {
		if d.space(); d.skip('}') {
			return o, nil
		}
		if !first {
			if !d.skip(',') {
				return nil, d.errorf("a comma or } is missing")
			}
			d.space()
		}
		if d.at == len(d.s) || d.s[d.at] != '"' {
			return nil, d.errorf("a key is missing")
		}
		name, err := d.string()
		if err != nil {
			return nil, err
		}
		if d.space(); !d.skip(':') {
			return nil, d.errorf("a colon is missing")
		}
		d.space()
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(name, v)
	}
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (d *decoder) number() (Value, error) {
	from := d.at
	d.skip('-')
	if !d.skip('0') && d.digits() == 0 {
		return nil, d.errorf("a digit is missing")
	}
	whole := true
	if d.skip('.') {
		whole = false
		if d.digits() == 0 {
			return nil, d.errorf("a digit is missing")
		}
	}
	if d.skip('e') || d.skip('E') {
		whole = false
		if !d.skip('+') {
			d.skip('-')
		}
		if d.digits() == 0 {
			return nil, d.errorf("a digit is missing")
		}
	}
	spelt := d.s[from:d.at]
	if !whole {
		f, _ := strconv.ParseFloat(spelt, 64) // out of range: infinite, as in Python
		return float(f), nil
	}
	i, err := strconv.ParseInt(spelt, 10, 64)
	if err != nil {
		d.at = from
		return nil, d.errorf("an integer of more than 64 bits is not supported")
	}
	return integer(i), nil
}

func (d *decoder) digits() int {
	from := d.at
	for d.at < len(d.s) && d.s[d.at] >= '0' && d.s[d.at] <= '9' {
		d.at++
	}
	return d.at - from
}

func (d *decoder) string() (string, error) {
	d.at++
	var b strings.Builder
	for d.at < len(d.s) {
		switch c := d.s[d.at]; {
		case c == '"':
			d.at++
			return b.String(), nil
		case c < ' ':
			return "", d.errorf("a control character in a string")
		case c == '\\':
			if err := d.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			d.at++
		}
	}
	return "", d.errorf("a string does not end")
}

func (d *decoder) escape(b *strings.Builder) error {
	d.at++
	if d.at == len(d.s) {
		return d.errorf("a string does not end")
	}
	c := d.s[d.at]
	d.at++
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		return nil
	}
	if c != 'u' {
		return d.errorf("unknown escape \\%c", c)
	}
	r, err := d.hex()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) && strings.HasPrefix(d.s[d.at:], `\u`) {
		before := d.at
		d.at += 2
		low, err := d.hex()
		if err != nil {
			return err
		}
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			r = pair
		} else {
			d.at = before
		}
	}
	b.WriteRune(r) // half a pair becomes U+FFFD
	return nil
}

func (d *decoder) hex() (rune, error) {
	if len(d.s)-d.at < 4 {
		return 0, d.errorf("four hexadecimal digits are missing")
	}
	n, err := strconv.ParseUint(d.s[d.at:d.at+4], 16, 16)
	if err != nil {
		return 0, d.errorf("four hexadecimal digits are missing")
	}
	d.at += 4
	return rune(n), nil
}
