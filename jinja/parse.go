package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// maxParseDepth bounds how deep tags and expressions lie inside each other, and how long a chain of operators is.
const maxParseDepth = 250

// maxNames bounds the parameters of a macro and the arguments by name of a call: each is compared with its
// predecessors.
const maxNames = 1000

// A parser reads the tokens of a template, by the grammar of jinja2/parser.py. The functions with a parser as their
// first argument are the grammar.
type parser struct {
	lexer      *lexer
	now, after token // next two tokens
	depth      int
	tags       []string       // open tags, for messages
	ends       [][]string     // possible ends of the open tags
	names      map[string]int // numbers of the variables
	unknown    []unknownName  // unknown filters and tests
	macros     []*macroDef    // macros around, for the variables in their bodies
	frame      *frame         // frame under way
	frames     []*frame
	inLoop     bool // break and continue have something to act on
	inFor      bool // the name loop cannot be assigned to
}

// An unknownName is the error of an unknown filter or test.
type unknownName struct {
	frame *frame
	err   *Error
}

// forgive drops the unknown names of the frame under way after the first n: a branch of an if or of an inline if may
// use unknown filters and tests until the branch is reached.
func (p *parser) forgive(n int) {
	kept := slices.DeleteFunc(p.unknown[n:], func(u unknownName) bool { return u.frame == p.frame })
	p.unknown = p.unknown[:n+len(kept)]
}

// parseTemplate makes the statements of a template, its frame and the numbers of its variables.
func parseTemplate(src string) (body []stmt, top *frame, names map[string]int, err error) {
	p := &parser{lexer: newLexer(src), names: map[string]int{}}
	defer catch(&err, &p.lexer.line)
	p.next()
	p.next()
	top = p.begin()
	body = parseBody(p, nil)
	if len(p.unknown) > 0 {
		return nil, nil, nil, p.unknown[0].err
	}
	for _, f := range p.frames {
		f.close()
	}
	return body, top, p.names, nil
}

// begin begins a frame within the frame under way. The caller restores the outer frame.
func (p *parser) begin() *frame {
	p.frame = &frame{parent: p.frame, known: map[int]bool{}}
	p.frames = append(p.frames, p.frame)
	return p.frame
}

// deeper goes a level down; the caller sets depth back.
func (p *parser) deeper() {
	if p.depth++; p.depth > maxParseDepth {
		panic(syntaxError(p.now.line, "nested deeper than %d", maxParseDepth))
	}
}

// id returns the number of a variable.
func (p *parser) id(name string) int {
	n, ok := p.names[name]
	if !ok {
		n = len(p.names)
		p.names[name] = n
	}
	return n
}

func (p *parser) at(kind string) bool { return p.now.kind == kind }

// atName reports whether any of the words is next.
func (p *parser) atName(words ...string) bool {
	return p.now.kind == tokName && slices.Contains(words, p.now.text)
}

func (p *parser) next() token {
	t := p.now
	p.now, p.after = p.after, p.lexer.next()
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

func (t token) String() string {
	if t.kind == tokName || t.kind == tokData {
		return t.text
	}
	return t.kind
}

// expect takes a token of a kind.
func (p *parser) expect(kind string) token {
	switch p.now.kind {
	case kind:
		return p.next()
	case tokEOF:
		panic(syntaxError(p.now.line, "unexpected end of template, expected '%s'.", kind))
	}
	panic(syntaxError(p.now.line, "expected token '%s', got '%s'", kind, p.now))
}

// listExpected ends a message with the expected ends of the open tags.
func (p *parser) listExpected(message, tag string) string {
	if n := len(p.ends); n > 0 {
		looking := "'" + strings.Join(p.ends[n-1], "' or '") + "'"
		if slices.ContainsFunc(p.ends, func(e []string) bool { return tag != "" && slices.Contains(e, tag) }) {
			message += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " +
				looking + "."
		} else {
			message += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if n := len(p.tags); n > 0 {
		message += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.tags[n-1])
	}
	return message
}

// parseBody reads up to a tag among ends, which stays next, or to the end of the template.
func parseBody(p *parser, ends []string) []stmt {
	p.deeper()
	var body []stmt
	for !p.at(tokEOF) {
		switch t := p.next(); t.kind {
		case tokData:
			body = append(body, &dataStmt{t.text})
		case tokVarBegin:
			body = append(body, &printStmt{parseTuple(p, tupleRules{}), t.line})
			p.expect(tokVarEnd)
		case tokBegin:
			if p.atName(ends...) {
				p.depth--
				return body
			}
			body = append(body, parseStatement(p))
			p.expect(tokEnd)
		default:
			panic(syntaxError(t.line, "unexpected '%s'", t))
		}
	}
	p.depth--
	return body
}

// parseUntil reads the end of a tag and its body up to an end tag, whose name it returns.
func parseUntil(p *parser, ends ...string) ([]stmt, string) {
	p.skip(":")
	p.expect(tokEnd)
	p.ends = append(p.ends, ends)
	body := parseBody(p, ends)
	if p.at(tokEOF) {
		panic(syntaxError(p.now.line, "%s", p.listExpected("Unexpected end of template.", "")))
	}
	p.ends = p.ends[:len(p.ends)-1]
	return body, p.next().text
}

// unsupportedTags lists Jinja2's tags that no published chat template uses.
var unsupportedTags = []string{"autoescape", "block", "extends", "from", "import", "include", "print"}

func parseStatement(p *parser) stmt {
	t := p.now
	if t.kind != tokName {
		panic(syntaxError(t.line, "tag name expected"))
	}
	var parse func(p *parser, line int) stmt
	switch t.text {
	case "if":
		parse = parseIf
	case "for":
		parse = parseFor
	case "set":
		parse = parseSet
	case "macro":
		parse = parseMacro
	case "call":
		parse = parseCallBlock
	case "filter":
		parse = parseFilterBlock
	case "with":
		parse = parseWith
	case "generation":
		parse = parseGeneration
	case "break", "continue":
		parse = parseJump
	default:
		if slices.Contains(unsupportedTags, t.text) {
			e := unsupported("the tag '%s'", t.text)
			e.Line = t.line
			panic(e)
		}
		panic(syntaxError(t.line, "%s", p.listExpected("Encountered unknown tag '"+t.text+"'.", t.text)))
	}
	p.tags = append(p.tags, t.text)
	if t.text != "break" && t.text != "continue" {
		p.next()
	}
	s := parse(p, t.line)
	p.tags = p.tags[:len(p.tags)-1]
	return s
}

func parseIf(p *parser, _ int) stmt {
	known := len(p.unknown)
	x := &ifStmt{}
	p.frame.ifs++
	for end := "elif"; end == "elif"; {
		arm := ifArm{test: parseTuple(p, tupleRules{noCond: true})}
		arm.body, end = parseUntil(p, "elif", "else", "endif")
		x.arms = append(x.arms, arm)
		if end == "else" {
			x.els, _ = parseUntil(p, "endif")
		}
	}
	p.forgive(known)
	p.frame.ifs--
	return x
}

func parseFor(p *parser, line int) stmt {
	x := &forStmt{line: line, loop: p.id("loop")}
	inLoop, inFor, around := p.inLoop, p.inFor, p.frame
	p.inFor = true
	x.target = parseTarget(p, false, "in")
	p.inFor = inFor
	if !p.skipName("in") {
		panic(syntaxError(p.now.line, "expected token '%s', got '%s'", "in", p.now))
	}
	x.iter = parseTuple(p, tupleRules{noCond: true, end: "recursive"})
	x.frame = p.begin()
	x.frame.known[x.loop] = true
	x.frame.assign(x.target, true)
	if p.skipName("if") {
		x.test = p.begin()
		x.filter = parseExpr(p)
		p.frame = x.frame
	}
	x.recursive = p.skipName("recursive")
	p.inLoop, p.inFor = true, true
	var end string
	x.body, end = parseUntil(p, "endfor", "else")
	p.frame = around
	x.elseFrame = p.begin()
	if p.inLoop = inLoop && !x.recursive; end == "else" {
		x.hasElse = true
		x.els, _ = parseUntil(p, "endfor")
	}
	p.inLoop, p.inFor, p.frame = inLoop, inFor, around
	return x
}

func parseJump(p *parser, line int) stmt {
	x := &jumpStmt{signalContinue}
	if p.next().text == "break" {
		x.signal = signalBreak
	}
	if !p.inLoop {
		panic(syntaxError(line, "break or continue outside a loop"))
	}
	return x
}

func parseSet(p *parser, line int) stmt {
	target := parseTarget(p, true, "")
	if p.skip("=") {
		x := &assignStmt{target, parseTuple(p, tupleRules{}), line}
		p.frame.assign(target, false)
		return x
	}
	p.frame.assign(target, false)
	x := &captureStmt{target: target, given: p.id(""), line: line, frame: p.begin()}
	if p.at("|") {
		x.filter = parseFilters(p, &nameExpr{id: x.given, line: line})
	}
	x.body, _ = parseUntil(p, "endset")
	p.frame = x.frame.parent
	return x
}

func parseFilterBlock(p *parser, line int) stmt {
	x := &captureStmt{given: p.id(""), line: line, frame: p.begin()}
	x.filter = parseFilters(p, parseFilter(p, &nameExpr{id: x.given, line: line}))
	x.body, _ = parseUntil(p, "endfilter")
	p.frame = x.frame.parent
	return x
}

// parseGeneration reads {% generation %}, by which a template marks the model's text.
func parseGeneration(p *parser, line int) stmt {
	x := &captureStmt{line: line, frame: p.begin()}
	x.body = parseFunction(p, nil, "endgeneration")
	p.frame = x.frame.parent
	return x
}

func parseWith(p *parser, line int) stmt {
	x := &withStmt{line: line}
	inFor := p.inFor
	for p.inFor = false; !p.at(tokEnd); { // {% with loop = ... %} is allowed
		if len(x.targets) > 0 {
			p.expect(",")
		}
		x.targets = append(x.targets, parseTarget(p, false, ""))
		p.expect("=")
		x.values = append(x.values, parseExpr(p))
	}
	p.inFor = inFor
	x.frame = p.begin()
	for _, t := range x.targets {
		x.frame.assign(t, true)
	}
	x.body, _ = parseUntil(p, "endwith")
	p.frame = x.frame.parent
	return x
}

func parseMacro(p *parser, line int) stmt {
	d := &macroDef{line: line, name: parseName(p)}
	x := &macroStmt{d, p.id(d.name)}
	p.frame.assign(&target{id: x.id}, false)
	d.frame = p.begin()
	parseSignature(p, d)
	d.body = parseFunction(p, d, "endmacro")
	p.frame = d.frame.parent
	if i := slices.Index(d.names, "caller"); i >= 0 {
		if d.caller >= 0 && i < len(d.names)-len(d.defaults) {
			panic(syntaxError(line, `the special "caller" argument must be omitted or be given a default`))
		}
		d.caller = -1
	}
	return x
}

// parseFunction reads a body that breaks out of no loop around. Special variables that d does not read become -1.
func parseFunction(p *parser, d *macroDef, end string) []stmt {
	inLoop := p.inLoop
	p.inLoop = false
	if d != nil {
		d.caller, d.kwargs, d.varargs = -1, -1, -1
		p.macros = append(p.macros, d)
	}
	body, _ := parseUntil(p, end)
	if d != nil {
		p.macros = p.macros[:len(p.macros)-1]
	}
	p.inLoop = inLoop
	return body
}

// noteSpecial notes for the macros around that their bodies read a special variable.
func (p *parser) noteSpecial(name string, id int) {
	for _, d := range p.macros {
		switch name {
		case "caller":
			d.caller = id
		case "kwargs":
			d.kwargs = id
		case "varargs":
			d.varargs = id
		}
	}
}

// parseSignature reads (a, b=1).
func parseSignature(p *parser, d *macroDef) {
	for p.expect("("); !p.at(")"); {
		if len(d.names) > 0 {
			p.expect(",")
		}
		line := p.now.line
		name := parseName(p)
		if len(d.names) >= maxNames {
			panic(syntaxError(line, "more than %d names", maxNames))
		}
		if slices.Contains(d.names, name) {
			panic(syntaxError(line, "duplicate argument '%s' in function definition", name))
		}
		if p.skip("=") {
			d.defaults = append(d.defaults, parseExpr(p))
		} else if len(d.defaults) > 0 {
			panic(syntaxError(line, "non-default argument follows default argument"))
		}
		d.names = append(d.names, name)
		d.params = append(d.params, p.id(name))
		d.frame.known[p.id(name)] = true
	}
	p.expect(")")
}

func parseCallBlock(p *parser, line int) stmt {
	around := p.frame
	d := &macroDef{line: line, frame: p.begin()}
	if p.at("(") {
		parseSignature(p, d)
	}
	p.frame = around
	call, ok := parseExpr(p).(*callExpr)
	if !ok {
		panic(syntaxError(line, "expected call"))
	}
	if slices.Contains(call.args.names, "caller") {
		panic(syntaxError(line, "keyword argument repeated: caller"))
	}
	p.frame = d.frame
	d.body = parseFunction(p, d, "endcall")
	p.frame = around
	return &callStmt{d, call, line}
}

// parseName reads a name to assign to.
func parseName(p *parser) string {
	t := p.expect(tokName)
	checkAssignable(t)
	return t.text
}

func checkAssignable(t token) {
	switch t.text {
	case "true", "True", "false", "False", "none", "None":
		panic(syntaxError(t.line, "can't assign to '%s'", t.text))
	}
}

// parseTarget reads the target of an assignment up to the word end: names, tuples of names, with attr also ns.name.
func parseTarget(p *parser, attr bool, end string) *target {
	depth := p.depth
	p.deeper()
	all := &target{line: p.now.line, items: []*target{}}
	comma := false
	for {
		if len(all.items) > 0 {
			p.expect(",")
		}
		if atTupleEnd(p, end) {
			break
		}
		all.items = append(all.items, parseOneTarget(p, attr))
		if !p.at(",") {
			break
		}
		comma = true
	}
	p.depth = depth
	switch {
	case comma:
		return all
	case len(all.items) == 1:
		return all.items[0]
	}
	panic(syntaxError(p.now.line, "Expected an expression, got '%s'", p.now))
}

func parseOneTarget(p *parser, attr bool) *target {
	t := p.next()
	if t.kind == "(" {
		x := &target{line: t.line, items: []*target{}}
		if !p.at(")") {
			x = parseTarget(p, false, "")
		}
		p.expect(")")
		return x
	}
	if t.kind != tokName {
		panic(syntaxError(t.line, "can't assign to '%s'", t))
	}
	x := &target{name: t.text, id: p.id(t.text), line: t.line}
	if attr && p.skip(".") {
		x.attr = p.expect(tokName).text
		return x
	}
	checkAssignable(t)
	if t.text == "loop" && p.inFor {
		panic(syntaxError(t.line, "Can't assign to special loop variable in for-loop target"))
	}
	return x
}
