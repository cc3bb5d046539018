package grammar

import (
	"context"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Lark returns the texts of the rule start of a grammar in the notation of the Python library Lark. Rules and terminals
// are treated alike: the text is characters, and no lexer decides between terminals.
func Lark(source string) (*Grammar, error) {
	return compile(context.Background(), nil, func(b *builder) (*node, error) {
		return larkNode(b, source, b.t.utf8, false), nil
	})
}

// larkNode returns the rule start of a grammar of texts whose characters are spelled by char.
func larkNode(b *builder, source string, char func(runes) *term, inner bool) *node {
	if len(source) > MaxSource {
		giveUp("it has %d bytes, at most %d are taken", len(source), MaxSource)
	}
	p := lark{gbnf{text: source, b: b, rules: map[string]*gbnfRule{}, blanks: " \t\r\f", comment: "//", ends: "|)]\n",
		wraps: true}, char, map[string]*term{}, inner}
	p.piece = p.readCounted
	for p.space(true); p.text != ""; p.space(true) {
		if p.text[0] == '%' {
			p.directive()
		} else {
			p.rule()
		}
	}
	return p.root("start")
}

// lark reads the notation.
type lark struct {
	gbnf
	char  func(runes) *term
	known map[string]*term // terminals imported from common
	inner bool             // the text is inside a JSON string
}

// name reads the name of a rule or a terminal.
func (p *lark) name() string {
	n := 0
	for n < len(p.text) && p.text[n] != '-' && isName(p.text[n]) {
		n++
	}
	if n == 0 || p.text[0] >= '0' && p.text[0] <= '9' {
		c, _ := utf8.DecodeRuneInString(p.text)
		p.fail("%q, want a name", c)
	}
	name := p.text[:n]
	p.text = p.text[n:]
	return name
}

// ended wants the end of the line.
func (p *lark) ended() {
	if p.space(false); p.text != "" && p.text[0] != '\n' {
		c, _ := utf8.DecodeRuneInString(p.text)
		p.fail("%q is not expected", c)
	}
}

func (p *lark) define(name string, body *gbnfItem) {
	r := p.ref(name)
	if r.defined {
		p.fail("%s is there twice", name)
	}
	r.body, r.defined = body, true
}

// directive reads an import. Other directives, about white space and the tree, do not affect the text.
func (p *lark) directive() {
	if !p.accept("%import") {
		word := strings.Fields(p.text)[0]
		if word == "%ignore" {
			p.fail("%%ignore is not supported: say in the rules where white space may be")
		}
		p.fail("%.20q is not supported", word)
	}
	p.space(false)
	if p.name() != "common" {
		p.fail("only terminals of common can be imported")
	}
	p.space(false)
	if p.accept(".") {
		name := p.name()
		as := name
		if p.space(false); p.accept("->") {
			p.space(false)
			as = p.name()
		}
		p.imported(name, as)
	} else {
		for p.want('('); ; p.want(',') {
			p.space(true)
			name := p.name()
			p.imported(name, name)
			if p.space(true); p.accept(")") {
				break
			}
		}
	}
	p.ended()
}

func (p *lark) imported(name, as string) {
	pattern, ok := known().Lark[name]
	if !ok {
		p.fail("common.%s is not known", name)
	}
	x := p.known[name]
	if x == nil {
		x = patternTerm(&p.b.t, pattern, p.char)
		p.known[name] = x
	}
	p.define(as, &gbnfItem{term: x})
}

// rule reads a rule or a terminal. The shape of its tree, and its priority, do not affect the text.
func (p *lark) rule() {
	p.text = strings.TrimLeft(p.text, "?!")
	name := p.name()
	if p.accept("{") {
		p.fail("templates of rules, such as %s, are not supported", name)
	}
	if p.accept(".") {
		p.text = strings.TrimLeft(p.text, "-0123456789")
	}
	p.space(false)
	p.want(':')
	p.b.t.place, p.within = "rule "+name, name
	p.define(name, p.choices(false))
	p.ended()
}

func (p *lark) item() *gbnfItem {
	switch c := p.text[0]; {
	case c == '"':
		return &gbnfItem{term: p.readQuoted()}
	case c == '<' || strings.HasPrefix(p.text, "!<"):
		if p.inner {
			p.fail("a string has no special tokens")
		}
		return &gbnfItem{term: p.token()}
	case c == '/':
		return &gbnfItem{term: p.expression()}
	case p.accept("("):
		x := p.choices(true)
		p.space(true)
		p.want(')')
		return x
	case p.accept("["):
		x := p.choices(true)
		p.space(true)
		p.want(']')
		return &gbnfItem{many: x, to: 1}
	}
	name := p.name()
	if p.accept("{") {
		p.fail("templates of rules, such as %s, are not supported", name)
	}
	return &gbnfItem{rule: p.ref(name)}
}

// readQuoted reads a text, in any case if an i follows, or a range of characters.
func (p *lark) readQuoted() *term {
	text := p.literal()
	if p.accept("i") {
		return patternTerm(&p.b.t, "(?i:"+regexp.QuoteMeta(text)+")", p.char)
	}
	if !p.accept("..") {
		var all []*term
		for _, c := range text {
			all = append(all, p.char(runes{c, c}))
		}
		return p.b.t.seq(all...)
	}
	lo, hi := []rune(text), []rune(p.literal())
	if len(lo) != 1 || len(hi) != 1 || hi[0] < lo[0] {
		p.fail("want a range of two characters, the lower one first")
	}
	return p.char(runes{lo[0], hi[0]})
}

// expression reads a regular expression between slashes, and its flags.
func (p *lark) expression() *term {
	end := 1
	for end < len(p.text) && p.text[end] != '/' && p.text[end] != '\n' {
		if p.text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(p.text) || p.text[end] != '/' {
		p.fail("the regular expression does not end")
	}
	pattern := p.text[1:end]
	p.text = p.text[end+1:]
	flags := p.text[:len(p.text)-len(strings.TrimLeft(p.text, "imsluxa"))]
	p.text = p.text[len(flags):]
	if strings.Trim(flags, "imsu") != "" {
		p.fail("the flags %s of a regular expression, want i, m and s", flags)
	}
	if flags = strings.ReplaceAll(flags, "u", ""); flags != "" {
		pattern = "(?" + flags + ":" + pattern + ")"
	}
	return patternTerm(&p.b.t, pattern, p.char)
}

// readCounted reads an item, and the number of its repetitions: ?, *, +, ~n or ~n..m. The name of an alternative ends
// its row.
func (p *lark) readCounted(bool) *gbnfItem {
	if p.accept("->") {
		p.space(false)
		p.name()
		return nil
	}
	x := p.item()
	p.space(false)
	switch {
	case p.accept("?"):
		return &gbnfItem{many: x, to: 1}
	case p.accept("*"):
		return &gbnfItem{many: x, to: inf}
	case p.accept("+"):
		return &gbnfItem{many: x, min: 1, to: inf}
	case !p.accept("~"):
		return x
	}
	lo := p.count()
	hi := lo
	if p.accept("..") {
		hi = p.count()
	}
	if hi < lo {
		p.fail("%d..%d is the wrong way round", lo, hi)
	}
	return &gbnfItem{many: x, min: lo, to: hi}
}

func (p *lark) count() int32 {
	p.space(false)
	digits := p.text[:len(p.text)-len(strings.TrimLeft(p.text, "0123456789"))]
	n, ok := number(digits)
	if !ok {
		p.fail("want a number up to %d", maxCount)
	}
	p.text = p.text[len(digits):]
	return n
}
