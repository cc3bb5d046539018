package syntax

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// python reads Python's literals, and writes JSON.
type python struct {
	r     *reader // reader whose text ends with s
	s     string
	all   []Call
	b     bytes.Buffer
	depth int
}

// lacks returns the reading where a call is not complete, or none.
func (p *python) lacks() reading {
	if p.s == "" {
		return p.r.lacks()
	}
	return no
}

// calls reads a list of calls, or calls in sequence.
func (p *python) calls() reading {
	list := p.take("[")
	for {
		c, ok := p.call()
		if !ok {
			return p.lacks()
		}
		p.all = append(p.all, c)
		more := p.take(",")
		more = p.take(";") || more
		end := p.r.marks.End
		switch {
		case list && p.take("]"), !list && end != "" && strings.HasPrefix(p.s, end), !list && p.s == "" && p.r.final:
			return yes
		case p.s == "" || !list && end != "" && strings.HasPrefix(end, p.s):
			return p.r.lacks()
		case list && !more:
			return no
		}
	}
}

// take cuts a mark off the rest, and the white space around it.
func (p *python) take(mark string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(p.s, " \t\r\n"), mark)
	p.s = strings.TrimLeft(rest, " \t\r\n")
	return ok
}

// word cuts a name off the rest.
func (p *python) word() string {
	p.take("")
	n := strings.IndexAny(p.s, "()[]{}=,:'\" \t\r\n")
	if n < 0 {
		n = len(p.s)
	}
	word := p.s[:n]
	p.s = p.s[n:]
	return word
}

func (p *python) call() (c Call, ok bool) {
	c.Name = p.word()
	if _, ok := p.r.tools[c.Name]; c.Name == "" || !p.take("(") || !ok {
		return c, false
	}
	var o parameters
	for !p.take(")") {
		name := p.word()
		if !p.take("=") {
			return c, false
		}
		p.b.Reset()
		if !p.value() || o.set(name, p.b.Bytes()) != nil || !p.take(",") && !strings.HasPrefix(p.s, ")") {
			return c, false
		}
	}
	arguments, err := o.object()
	c.Arguments = arguments
	return c, err == nil
}

// value writes the next literal.
func (p *python) value() bool {
	p.take("")
	if p.s == "" || p.depth == maxDepth {
		return false
	}
	p.depth++
	defer func() { p.depth-- }()
	switch p.s[0] {
	case '\'', '"':
		return p.text()
	case '[':
		return p.list("[", "]")
	case '(':
		return p.list("(", ")")
	case '{':
		return p.dict()
	}
	word := p.word()
	if json := pythonWords[word]; json != "" {
		p.b.WriteString(json)
		return true
	}
	return p.number(word)
}

// pythonWords are words that are values, with their JSON.
var pythonWords = map[string]string{"True": "true", "true": "true", "False": "false", "false": "false",
	"None": "null", "null": "null"}

func (p *python) number(word string) bool {
	if word == "" || !strings.ContainsRune("+-.0123456789", rune(word[0])) {
		return false
	}
	if !json.Valid([]byte(word)) { // +1, .5, 1.
		f, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return false
		}
		b, err := json.Marshal(f)
		if err != nil {
			return false
		}
		word = string(b)
	}
	p.b.WriteString(word)
	return true
}

func (p *python) list(open, end string) bool {
	p.take(open)
	p.b.WriteByte('[')
	for n := 0; !p.take(end); n++ {
		if n > 0 {
			p.b.WriteByte(',')
		}
		if !p.value() || !p.take(",") && !strings.HasPrefix(p.s, end) {
			return false
		}
	}
	p.b.WriteByte(']')
	return true
}

func (p *python) dict() bool {
	p.take("{")
	p.b.WriteByte('{')
	for n := 0; !p.take("}"); n++ {
		if n > 0 {
			p.b.WriteByte(',')
		}
		if p.s == "" || p.s[0] != '\'' && p.s[0] != '"' || !p.text() || !p.take(":") {
			return false
		}
		p.b.WriteByte(':')
		if !p.value() || !p.take(",") && !strings.HasPrefix(p.s, "}") {
			return false
		}
	}
	p.b.WriteByte('}')
	return true
}

// text writes a string. Templates write strings without escapes, so a quote ends a string only if a string may end
// there: 'it's'.
func (p *python) text() bool {
	quote, base := p.s[0], len(p.r.s)-len(p.s)
	var b []byte
	for i := 1; i < len(p.s); i++ {
		if n := p.r.control[base+i]; n > 0 {
			i += n - 1
			continue
		}
		switch c := p.s[i]; {
		case c == quote && ends(p.s[i+1:]):
			p.s = p.s[i+1:]
			s, err := json.Marshal(string(b))
			p.b.Write(s)
			return err == nil
		case c == '\\' && i+1 < len(p.s):
			n := 0
			b, n = unescape(b, p.s[i+1:])
			i += n
		default:
			b = append(b, c)
		}
	}
	p.s = ""
	return false
}

// ends reports whether a literal may end before a text.
func ends(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	return text == "" || strings.IndexByte(",:)]}", text[0]) >= 0
}

// unescape appends an escaped character, given the text behind the backslash, and returns the length of the escape.
func unescape(b []byte, text string) ([]byte, int) {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[0]]
	if digits > 0 && len(text) > digits {
		if n, err := strconv.ParseUint(text[1:1+digits], 16, 32); err == nil {
			// half of a pair, as in JSON
			if text[0] == 'u' && n >= 0xd800 && n < 0xdc00 && len(text) >= 11 && text[5:7] == `\u` {
				if low, err := strconv.ParseUint(text[7:11], 16, 32); err == nil && low >= 0xdc00 && low < 0xe000 {
					return utf8.AppendRune(b, rune(0x10000+(n-0xd800)<<10+(low-0xdc00))), 11
				}
			}
			return utf8.AppendRune(b, rune(n)), 1 + digits
		}
	}
	if i := strings.IndexByte("nrtbf0", text[0]); i >= 0 {
		return append(b, "\n\r\t\b\f\x00"[i]), 1
	}
	if strings.IndexByte(`\'"/`, text[0]) >= 0 {
		return append(b, text[0]), 1
	}
	return append(b, '\\'), 0 // as Python does
}
