package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// maxParseDepth bounds how deep tags and expressions lie inside each other, and
// how long a chain of operators is.
const maxParseDepth = 250

// maxNames bounds the parameters of a macro and the arguments by name of a call:
// each is compared with those before it.
const maxNames = 1000

// A parser makes the tree of a template, by the grammar of jinja2/parser.py.
// After the first error it sees nothing but the end of the template.
type parser struct {
	lexer      *lexer
	now, after token // the next two tokens
	depth      int
	tags       []string   // open tags, for messages
	ends       [][]string // what would end them
	err        error
}

func parse(src string) ([]node, error) {
	p := &parser{lexer: newLexer(src)}
	p.next()
	p.next()
	body := p.body(nil)
	return body, p.err
}

func (p *parser) fail(line int, format string, a ...any) {
	p.stop(syntaxError(line, format, a...))
}

func (p *parser) stop(err error) {
	if p.err == nil {
		p.err = err
		p.now = token{kind: tokEOF, line: p.now.line}
		p.after = p.now
	}
}

// deeper goes a level down; the caller must set depth back.
func (p *parser) deeper() {
	if p.depth++; p.depth > maxParseDepth {
		p.fail(p.cur().line, "nested deeper than %d", maxParseDepth)
	}
}

// counted refuses one more name than a macro or call may have.
func (p *parser) counted(n int) {
	if n >= maxNames {
		p.fail(p.cur().line, "more than %d names", maxNames)
	}
}

func (p *parser) restore(depth int) { p.depth = depth }

func (p *parser) cur() token { return p.now }

func (p *parser) at(kind string) bool { return p.now.kind == kind }

// atName reports whether one of the words is next.
func (p *parser) atName(words ...string) bool {
	t := p.cur()
	return t.kind == tokName && slices.Contains(words, t.text)
}

// look is the token after the next.
func (p *parser) look() token { return p.after }

func (p *parser) next() token {
	t := p.now
	if p.err != nil {
		return t
	}
	p.now = p.after
	after, err := p.lexer.next()
	if err != nil {
		p.stop(err)
	} else {
		p.after = after
	}
	return t
}

func (p *parser) skip(kind string) bool {
	if p.at(kind) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(word string) bool {
	if p.atName(word) {
		p.next()
		return true
	}
	return false
}

func describe(t token) string {
	if t.kind == tokName || t.kind == tokData {
		return t.text
	}
	return t.kind
}

// expect takes a token of a kind.
func (p *parser) expect(kind string) token {
	t := p.cur()
	switch {
	case t.kind == kind:
		return p.next()
	case t.kind == tokEOF:
		p.fail(t.line, "unexpected end of template, expected '%s'.", kind)
	default:
		p.fail(t.line, "expected token '%s', got '%s'", kind, describe(t))
	}
	return t
}

func (p *parser) expectName(word string) token {
	t := p.cur()
	if !p.skipName(word) {
		p.fail(t.line, "expected token '%s', got '%s'", word, describe(t))
	}
	return t
}

// body reads up to a tag that is one of ends, which stays next, or to the end of
// the template.
func (p *parser) body(ends []string) []node {
	defer p.restore(p.depth)
	p.deeper()
	var nodes []node
	var out *outputNode
	add := func(part outputPart) {
		if out == nil {
			out = &outputNode{}
			nodes = append(nodes, out)
		}
		out.parts = append(out.parts, part)
	}
	for p.err == nil && !p.at(tokEOF) {
		switch t := p.next(); t.kind {
		case tokData:
			add(outputPart{data: t.text})
		case tokVarBegin:
			add(outputPart{x: p.tuple(tupleRules{}), line: t.line})
			p.expect(tokVarEnd)
		case tokBegin:
			out = nil
			if p.atName(ends...) {
				return nodes
			}
			if n := p.statement(); n != nil {
				nodes = append(nodes, n)
			}
			p.expect(tokEnd)
		default:
			p.fail(t.line, "unexpected '%s'", describe(t))
		}
	}
	return nodes
}

// statements reads the end of a tag and its body up to one of the end tags,
// whose name it returns.
func (p *parser) statements(ends ...string) ([]node, string) {
	p.skip(":")
	p.expect(tokEnd)
	p.ends = append(p.ends, ends)
	nodes := p.body(ends)
	if p.at(tokEOF) {
		p.fail(p.cur().line, "%s", p.expected("Unexpected end of template.", ""))
	}
	p.ends = p.ends[:len(p.ends)-1]
	return nodes, p.next().text
}

// expected ends a message with what the open tags wait for.
func (p *parser) expected(message, tag string) string {
	if n := len(p.ends); n > 0 {
		looking := "'" + strings.Join(p.ends[n-1], "' or '") + "'"
		if slices.ContainsFunc(p.ends, func(e []string) bool { return tag != "" && slices.Contains(e, tag) }) {
			message += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " + looking + "."
		} else {
			message += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if n := len(p.tags); n > 0 {
		message += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.tags[n-1])
	}
	return message
}

func (p *parser) statement() node {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "tag name expected")
		return nil
	}
	parse := p.tagParser(t.text)
	if parse == nil {
		p.fail(t.line, "%s", p.expected("Encountered unknown tag '"+t.text+"'.", t.text))
		return nil
	}
	p.tags = append(p.tags, t.text)
	p.next()
	n := parse(t.line)
	p.tags = p.tags[:len(p.tags)-1]
	return n
}

func (p *parser) tagParser(tag string) func(line int) node {
	switch tag {
	case "if":
		return p.parseIf
	case "for":
		return p.parseFor
	case "set":
		return p.parseSet
	case "macro":
		return p.parseMacro
	case "call":
		return p.parseCallBlock
	case "filter":
		return p.parseFilterBlock
	case "with":
		return p.parseWith
	case "block":
		return p.parseBlock
	case "print":
		return p.parsePrint
	case "generation":
		return p.parseGeneration
	case "break", "continue":
		return func(line int) node { return &jumpNode{tag == "break", line} }
	case "autoescape":
		return p.parseAutoescape
	case "extends", "include", "import", "from":
		return func(line int) node { return p.parseLoad(tag, line) }
	}
	return nil
}

func (p *parser) parseIf(int) node {
	first := &ifNode{}
	for n := first; ; {
		n.test = p.tuple(tupleRules{noCond: true})
		var end string
		n.body, end = p.statements("elif", "else", "endif")
		switch {
		case p.err != nil:
			return first
		case end == "elif":
			n = &ifNode{}
			first.elifs = append(first.elifs, n)
			continue
		case end == "else":
			first.els, _ = p.statements("endif")
		}
		return first
	}
}

func (p *parser) parseFor(line int) node {
	n := &forNode{line: line}
	n.target = p.assignTarget(false, "in")
	p.expectName("in")
	n.iter = p.tuple(tupleRules{noCond: true, end: "recursive"})
	if p.skipName("if") {
		n.test = p.expression()
	}
	n.recursive = p.skipName("recursive")
	var end string
	if n.body, end = p.statements("endfor", "else"); end == "else" {
		n.els, _ = p.statements("endfor")
	}
	return n
}

func (p *parser) parseSet(line int) node {
	target := p.assignTarget(true, "")
	if p.skip("=") {
		return &assignNode{target, p.tuple(tupleRules{}), line}
	}
	n := &setBlockNode{target: target, line: line}
	if p.at("|") {
		n.filter = p.filters(nil)
	}
	n.body, _ = p.statements("endset")
	return n
}

func (p *parser) parseMacro(line int) node {
	n := &macroNode{line: line, name: p.nameTarget()}
	p.signature(n)
	n.body, _ = p.statements("endmacro")
	return n
}

// signature reads (a, b=1).
func (p *parser) signature(n *macroNode) {
	for p.expect("("); p.err == nil && !p.at(")"); {
		if len(n.args) > 0 {
			p.expect(",")
		}
		line := p.cur().line
		name := p.nameTarget()
		p.counted(len(n.args))
		if slices.Contains(n.args, name) {
			p.fail(line, "duplicate argument '%s' in function definition", name)
		}
		if p.skip("=") {
			n.defaults = append(n.defaults, p.expression())
		} else if len(n.defaults) > 0 {
			p.fail(line, "non-default argument follows default argument")
		}
		n.args = append(n.args, name)
	}
	p.expect(")")
}

func (p *parser) parseCallBlock(line int) node {
	n := &callNode{macroNode: macroNode{line: line}}
	if p.at("(") {
		p.signature(&n.macroNode)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail(line, "expected call")
		return nil
	}
	if slices.Contains(call.args.names, "caller") {
		p.fail(line, "keyword argument repeated: caller")
	}
	n.call = call
	n.body, _ = p.statements("endcall")
	return n
}

func (p *parser) parseGeneration(line int) node {
	n := &callNode{macroNode: macroNode{line: line}}
	n.body, _ = p.statements("endgeneration")
	return n
}

func (p *parser) parseFilterBlock(line int) node {
	n := &filterBlockNode{line: line}
	n.filter = p.filters(p.filter(nil))
	n.body, _ = p.statements("endfilter")
	return n
}

func (p *parser) parseWith(line int) node {
	n := &withNode{line: line}
	for p.err == nil && !p.at(tokEnd) {
		if len(n.targets) > 0 {
			p.expect(",")
		}
		n.targets = append(n.targets, p.assignTarget(false, ""))
		p.expect("=")
		n.values = append(n.values, p.expression())
	}
	n.body, _ = p.statements("endwith")
	return n
}

func (p *parser) parseAutoescape(line int) node {
	n := &autoescapeNode{line: line, x: p.expression()}
	n.body, _ = p.statements("endautoescape")
	return n
}

func (p *parser) parseBlock(line int) node {
	n := &blockNode{line: line, name: p.expect(tokName).text}
	n.scoped = p.skipName("scoped")
	n.required = p.skipName("required")
	n.body, _ = p.statements("endblock")
	if n.required && !blank(n.body) {
		p.fail(line, "Required blocks can only contain comments or whitespace")
	}
	p.skipName(n.name)
	return n
}

func (p *parser) parsePrint(line int) node {
	n := &outputNode{}
	for p.err == nil && !p.at(tokEnd) {
		if len(n.parts) > 0 {
			p.expect(",")
		}
		n.parts = append(n.parts, outputPart{x: p.expression(), line: line})
	}
	return n
}

// blank reports whether a body is nothing but white space.
func blank(body []node) bool {
	for _, n := range body {
		out, ok := n.(*outputNode)
		if !ok || slices.ContainsFunc(out.parts, func(p outputPart) bool { return p.x != nil || !everyRune(isSpace)(p.data) }) {
			return false
		}
	}
	return true
}

// parseLoad reads extends, include, import and from.
func (p *parser) parseLoad(tag string, line int) node {
	n := &loadNode{line: line, x: p.expression(), extends: tag == "extends"}
	switch tag {
	case "include":
		if p.atName("ignore") && p.look().text == "missing" {
			p.next()
			p.next()
		}
	case "import":
		p.expectName("as")
		n.names = append(n.names, p.nameTarget())
	case "from":
		p.expectName("import")
		for first := true; p.err == nil && !p.atContext(); first = false {
			if !first {
				p.expect(",")
			}
			name := p.nameTarget()
			if p.skipName("as") {
				name = p.nameTarget()
			}
			if n.names = append(n.names, name); !p.at(",") {
				break
			}
		}
	}
	if tag != "extends" && p.atContext() {
		p.next()
		p.next()
	}
	return n
}

func (p *parser) atContext() bool {
	return p.atName("with", "without") && p.look().text == "context"
}
