package grammar

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GBNF returns the texts of the rule root of a grammar in llama.cpp's notation.
func GBNF(source string) (*Grammar, error) {
	return compile(context.Background(), nil, func(b *builder) (*node, error) { return gbnfNode(b, source), nil })
}

// gbnfNode returns the rule root of a grammar.
func gbnfNode(b *builder, source string) *node {
	if len(source) > MaxSource {
		giveUp("it has %d bytes, at most %d are taken", len(source), MaxSource)
	}
	p := gbnf{text: source, b: b, rules: map[string]*gbnfRule{}, blanks: " \t", comment: "#", ends: "|)\r\n"}
	p.piece = func(nested bool) *gbnfItem { return p.readCounted(p.item(), nested) }
	for p.space(true); p.text != ""; p.space(true) {
		p.rule()
	}
	return p.root("root")
}

// root returns the node of the rule from which a text begins.
func (p *gbnf) root(name string) *node {
	root := p.rules[name]
	if root == nil || !root.defined {
		giveUp("there is no rule %s", name)
	}
	for _, name := range p.order {
		if r := p.rules[name]; !r.defined {
			giveUp("line %d: there is no rule %s", r.line, name)
		}
	}
	return p.node(&gbnfItem{rule: root})
}

// gbnf reads GBNF, and the notation that Lark shares with GBNF.
type gbnf struct {
	text   string
	line   int
	depth  int
	within string // rule
	b      *builder
	rules  map[string]*gbnfRule
	order  []string

	blanks  string                      // characters between pieces of a line
	comment string                      // beginning of a comment
	ends    string                      // characters that end a row
	wraps   bool                        // an alternative may have a separate line
	piece   func(nested bool) *gbnfItem // reads a piece of a row; nil is the end of the row
}

// gbnfRule is a rule. A rule that refers to no rules with references is a part: a string of quotes and characters, for
// example.
type gbnfRule struct {
	name    string
	line    int // line of the first mention
	defined bool
	body    *gbnfItem
	height  int // levels of references below; 0 means unknown, and tall rules are no parts
	open    bool
	node    *node
	term    *term
}

const tall = 3

// gbnfItem is a piece of a rule: exactly one of the fields is set.
type gbnfItem struct {
	term    *term
	rule    *gbnfRule
	row     []*gbnfItem
	choice  []*gbnfItem
	many    *gbnfItem
	min, to int32
}

func (p *gbnf) fail(format string, args ...any) {
	giveUp("line %d: %s", p.line+1, fmt.Sprintf(format, args...))
}

// space skips blanks and comments, with lines also line ends.
func (p *gbnf) space(lines bool) {
	for p.text != "" {
		switch c := p.text[0]; {
		case strings.IndexByte(p.blanks, c) >= 0 || lines && (c == '\n' || c == '\r'):
			if c == '\n' {
				p.line++
			}
			p.text = p.text[1:]
		case strings.HasPrefix(p.text, p.comment):
			end := strings.IndexByte(p.text, '\n')
			if end < 0 {
				end = len(p.text)
			}
			p.text = p.text[end:]
		default:
			return
		}
	}
}

func isName(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (p *gbnf) name() *gbnfRule {
	n := 0
	for n < len(p.text) && isName(p.text[n]) {
		n++
	}
	if n == 0 {
		c, _ := utf8.DecodeRuneInString(p.text)
		p.fail("%q, want the name of a rule", c)
	}
	name := p.text[:n]
	p.text = p.text[n:]
	return p.ref(name)
}

// ref returns the rule of a name, defined or not yet.
func (p *gbnf) ref(name string) *gbnfRule {
	r := p.rules[name]
	if r == nil {
		r = &gbnfRule{name: name, line: p.line + 1}
		p.rules[name] = r
		p.order = append(p.order, name)
	}
	return r
}

func (p *gbnf) rule() {
	r := p.name()
	p.space(false)
	rest, ok := strings.CutPrefix(p.text, "::=")
	if !ok {
		p.fail("%s has no ::= after it", r.name)
	}
	if r.defined {
		p.fail("the rule %s is there twice", r.name)
	}
	p.text = rest
	p.b.t.place, p.within = "rule "+r.name, r.name
	p.space(true)
	r.body, r.defined = p.choices(false), true
	if p.text != "" && p.text[0] != '\n' && p.text[0] != '\r' {
		p.fail("%q after the rule %s", p.text[0], r.name)
	}
}

// choices reads alternatives. Nested alternatives are in parentheses, and may contain line ends.
func (p *gbnf) choices(nested bool) *gbnfItem {
	if p.depth++; p.depth > maxNested {
		p.fail("more than %d levels", maxNested)
	}
	defer func() { p.depth-- }()
	list := []*gbnfItem{p.row(nested)}
	for {
		text, line := p.text, p.line
		if p.wraps {
			p.space(true)
		}
		if !p.accept("|") {
			p.text, p.line = text, line
			break
		}
		if !p.wraps {
			p.space(true)
		}
		list = append(list, p.row(nested))
	}
	if len(list) == 1 {
		return list[0]
	}
	return &gbnfItem{choice: list}
}

func (p *gbnf) row(nested bool) *gbnfItem {
	row := &gbnfItem{row: []*gbnfItem{}}
	for {
		p.space(nested)
		if p.text == "" || strings.IndexByte(p.ends, p.text[0]) >= 0 {
			return row
		}
		x := p.piece(nested)
		if x == nil {
			return row
		}
		row.row = append(row.row, x)
	}
}

// accept reports whether a text comes next, and takes the text.
func (p *gbnf) accept(text string) bool {
	rest, ok := strings.CutPrefix(p.text, text)
	p.text = rest
	return ok
}

// item reads a literal, a class, a name, or parentheses.
func (p *gbnf) item() *gbnfItem {
	t := &p.b.t
	switch c := p.text[0]; {
	case c == '"':
		return &gbnfItem{term: t.text(p.literal())}
	case p.accept("["):
		return &gbnfItem{term: p.class()}
	case p.accept("."):
		return &gbnfItem{term: t.utf8(anyRune)}
	case c == '<' || strings.HasPrefix(p.text, "!<"):
		return &gbnfItem{term: p.token()}
	case p.accept("("):
		p.space(true)
		x := p.choices(true)
		p.want(')')
		return x
	case isName(c):
		return &gbnfItem{rule: p.name()}
	default:
		p.fail("%q is not expected", c)
	}
	return nil
}

// literal reads a text in quotes.
func (p *gbnf) literal() string {
	p.want('"')
	var text strings.Builder
	for p.text != "" && p.text[0] != '"' {
		text.WriteRune(p.char())
	}
	p.want('"')
	return text.String()
}

func (p *gbnf) want(c byte) {
	if p.text == "" || p.text[0] != c {
		p.fail("want %q", c)
	}
	p.text = p.text[1:]
}

// char reads a character, perhaps an escape.
func (p *gbnf) char() rune {
	c, n := utf8.DecodeRuneInString(p.text)
	switch {
	case n == 0:
		p.fail("the grammar ends within a literal")
	case c == utf8.RuneError && n == 1:
		p.fail("it is not UTF-8")
	case c == '\n':
		p.line++
	}
	p.text = p.text[n:]
	if c != '\\' {
		return c
	}
	if p.text == "" {
		p.fail("the grammar ends within a literal")
	}
	e := p.text[0]
	p.text = p.text[1:]
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[e]; digits > 0 {
		if len(p.text) < digits || !isHex(p.text[:digits]) {
			p.fail(`want %d hexadecimal digits after \%c`, digits, e)
		}
		n, _ := strconv.ParseUint(p.text[:digits], 16, 32) // of digits alone
		r := rune(n)
		p.text = p.text[digits:]
		if !utf8.ValidRune(r) {
			p.fail("%#x is no character", n)
		}
		return r
	}
	if at := strings.IndexByte("ntr", e); at >= 0 {
		return rune("\n\t\r"[at])
	}
	if strings.IndexByte(`\"[]^-'/`, e) < 0 {
		p.fail(`\%c is no escape`, e)
	}
	return rune(e)
}

func (p *gbnf) class() *term {
	not := p.accept("^")
	var r runes
	for p.text != "" && p.text[0] != ']' {
		lo := p.char()
		hi := lo
		if len(p.text) > 1 && p.text[0] == '-' && p.text[1] != ']' {
			p.text = p.text[1:]
			if hi = p.char(); hi < lo {
				p.fail("the range %q-%q is the wrong way round", lo, hi)
			}
		}
		if r = append(r, lo, hi); len(r) > 1<<14 {
			p.fail("a class of too many ranges")
		}
	}
	p.want(']')
	if r = r.merge(); not {
		r = r.complement()
	}
	return p.b.t.utf8(r)
}

// readCounted reads the number of repetitions of an item.
func (p *gbnf) readCounted(x *gbnfItem, nested bool) *gbnfItem {
	for n := 0; ; n++ {
		if p.space(nested); p.text == "" {
			return x
		}
		lo, hi := int32(0), int32(inf)
		switch p.text[0] {
		case '*':
		case '+':
			lo = 1
		case '?':
			hi = 1
		case '{':
			p.text = p.text[1:]
			lo, hi = p.bounds()
		default:
			return x
		}
		if n > 0 {
			p.fail("%q after a count", p.text[0])
		}
		if len(p.text) > 0 {
			p.text = p.text[1:]
		}
		x = &gbnfItem{many: x, min: lo, to: hi}
	}
}

// bounds reads the text between braces, without the closing brace.
func (p *gbnf) bounds() (lo, hi int32) {
	inner, _, ok := strings.Cut(p.text, "}")
	a, b, two := strings.Cut(inner, ",")
	a, b = strings.TrimSpace(a), strings.TrimSpace(b)
	lo, okA := number(a)
	hi = lo
	okB := true
	if two {
		if hi = inf; b != "" {
			hi, okB = number(b)
		}
	}
	if two && a == "" {
		lo, okA = 0, true
	}
	if !ok || !okA || !okB || hi < lo {
		p.fail("want {m}, {m,}, {m,n} or {,n}, with numbers up to %d", maxCount)
	}
	p.text = p.text[len(inner):]
	return lo, hi
}

// maxCount bounds the counts of repetitions.
const maxCount = 1 << 30

// number reads a count.
func number(s string) (n int32, ok bool) {
	v, err := strconv.ParseUint(s, 10, 31)
	return int32(min(v, maxCount)), err == nil && v <= maxCount
}

// measure returns how many references are below an item, at most tall.
func (p *gbnf) measure(x *gbnfItem) int {
	p.b.t.burn(1)
	most := 0
	for _, list := range [][]*gbnfItem{x.row, x.choice} {
		for _, y := range list {
			most = max(most, p.measure(y))
		}
	}
	if x.many != nil {
		most = p.measure(x.many)
	}
	if r := x.rule; r != nil {
		if r.open {
			return tall
		}
		if r.height == 0 {
			r.open = true
			r.height = min(1+p.measure(r.body), tall)
			r.open = false
		}
		most = r.height
	}
	return most
}

// node makes nodes of an item, parts where possible.
func (p *gbnf) node(x *gbnfItem) *node {
	if p.measure(x) < tall {
		return p.b.regular(p.term(x))
	}
	switch {
	case x.rule != nil:
		r := x.rule
		if r.node == nil {
			p.b.t.place = "rule " + r.name
			r.node = p.b.rule(r.name)
			r.node.list = []*node{p.node(r.body)}
		}
		return r.node
	case x.many != nil:
		return p.b.many(p.node(x.many), x.min, x.to)
	case x.choice != nil:
		var list []*node
		for _, y := range x.choice {
			list = append(list, p.node(y))
		}
		return p.b.choice(list...)
	}
	var list []*node
	for _, y := range x.row {
		list = append(list, p.node(y))
	}
	return p.b.row(list...)
}

// term makes a term of an item without recursion.
func (p *gbnf) term(x *gbnfItem) *term {
	t := &p.b.t
	t.burn(1)
	switch {
	case x.term != nil:
		return x.term
	case x.rule != nil:
		if x.rule.term == nil {
			t.place = "rule " + x.rule.name
			x.rule.term = p.term(x.rule.body)
		}
		return x.rule.term
	case x.many != nil:
		return t.repeat(p.term(x.many), x.min, x.to)
	}
	var list []*term
	for _, y := range append(x.row, x.choice...) {
		list = append(list, p.term(y))
	}
	if x.choice != nil {
		return t.or(list...)
	}
	return t.seq(list...)
}
