package jinja

import "strings"

func (p *parser) expression() expr { return p.cond() }

// cond reads a if b else c.
func (p *parser) cond() expr {
	defer p.restore(p.depth)
	p.deeper()
	line := p.cur().line
	x := p.or()
	for p.skipName("if") {
		p.deeper()
		c := &condExpr{then: x, test: p.or(), line: line}
		if p.skipName("else") {
			c.els = p.cond()
		}
		x, line = c, p.cur().line
	}
	return x
}

func (p *parser) or() expr {
	defer p.restore(p.depth)
	x := p.and()
	for p.skipName("or") {
		p.deeper()
		x = &logicExpr{true, x, p.and()}
	}
	return x
}

func (p *parser) and() expr {
	defer p.restore(p.depth)
	x := p.not()
	for p.skipName("and") {
		p.deeper()
		x = &logicExpr{false, x, p.not()}
	}
	return x
}

func (p *parser) not() expr {
	defer p.restore(p.depth)
	p.deeper()
	if p.skipName("not") {
		return &notExpr{p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expr {
	line := p.cur().line
	c := &compareExpr{x: p.sum(), line: line}
	for p.err == nil {
		op := ""
		switch t := p.cur(); t.kind {
		case "==", "!=", "<", "<=", ">", ">=":
			op = t.kind
		default:
			if p.atName("in") {
				op = "in"
			} else if p.atName("not") && p.look().kind == tokName && p.look().text == "in" {
				p.next()
				op = "not in"
			}
		}
		if op == "" {
			break
		}
		p.next()
		c.ops = append(c.ops, op)
		c.ys = append(c.ys, p.sum())
	}
	if len(c.ops) == 0 {
		return c.x
	}
	return c
}

// binary reads a chain of operators of the same rank.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	defer p.restore(p.depth)
	line := p.cur().line
	x := operand()
	for {
		op := ""
		for _, o := range ops {
			if p.at(o) {
				op = o
			}
		}
		if op == "" {
			return x
		}
		p.deeper()
		p.next()
		x = &binaryExpr{op, x, operand(), line}
		line = p.cur().line
	}
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	x := p.product()
	if !p.at("~") {
		return x
	}
	c := &concatExpr{[]expr{x}}
	for p.skip("~") {
		c.items = append(c.items, p.product())
	}
	return c
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }

func (p *parser) power() expr {
	return p.binary(func() expr { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expr {
	defer p.restore(p.depth)
	p.deeper()
	var x expr
	if t := p.cur(); t.kind == "-" || t.kind == "+" {
		p.next()
		x = &signExpr{t.kind, p.unary(false), t.line}
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if !filters {
		return x
	}
	for p.err == nil {
		p.deeper()
		switch {
		case p.at("|"):
			x = p.filters(x)
		case p.atName("is"):
			x = p.test(x)
		case p.at("("):
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

func (p *parser) primary() expr {
	t := p.next()
	switch t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{boolean(true)}
		case "false", "False":
			return &constExpr{boolean(false)}
		case "none", "None":
			return &constExpr{None}
		}
		return &nameExpr{name: t.text, line: t.line}
	case tokString:
		var b strings.Builder
		b.WriteString(t.text)
		for p.at(tokString) {
			b.WriteString(p.next().text)
		}
		return &constExpr{plain(b.String())}
	case tokInteger, tokFloat:
		return &constExpr{t.num}
	case "(":
		x := p.tuple(tupleRules{parens: true})
		p.expect(")")
		return x
	case "[":
		return p.list()
	case "{":
		return p.dict()
	}
	p.fail(t.line, "unexpected '%s'", describe(t))
	return &constExpr{None}
}

// tupleRules say how a tuple without brackets may look.
type tupleRules struct {
	noCond bool   // no inline if
	parens bool   // it is in parentheses, and may be empty
	end    string // a word that ends it
}

// tuple reads a, b, c, or one expression.
func (p *parser) tuple(r tupleRules) expr {
	parse := p.cond
	if r.noCond {
		parse = p.or
	}
	var items []expr
	comma := false
	for p.err == nil {
		if len(items) > 0 {
			p.expect(",")
		}
		if p.tupleEnds(r.end) {
			break
		}
		items = append(items, parse())
		if !p.at(",") {
			break
		}
		comma = true
	}
	if !comma && len(items) == 1 {
		return items[0]
	}
	if !comma && !r.parens {
		p.fail(p.cur().line, "Expected an expression, got '%s'", describe(p.cur()))
	}
	return &tupleExpr{items}
}

func (p *parser) tupleEnds(word string) bool {
	return p.at(tokVarEnd) || p.at(tokEnd) || p.at(")") || word != "" && p.atName(word)
}

func (p *parser) list() expr {
	x := &listExpr{}
	for p.err == nil && !p.at("]") {
		if len(x.items) > 0 {
			if p.expect(","); p.at("]") {
				break
			}
		}
		x.items = append(x.items, p.expression())
	}
	p.expect("]")
	return x
}

func (p *parser) dict() expr {
	x := &dictExpr{}
	for p.err == nil && !p.at("}") {
		if len(x.items) > 0 {
			if p.expect(","); p.at("}") {
				break
			}
		}
		x.items = append(x.items, p.expression())
		p.expect(":")
		x.items = append(x.items, p.expression())
	}
	p.expect("}")
	return x
}

// postfix reads .a, [b] and (c) after an expression.
func (p *parser) postfix(x expr) expr {
	defer p.restore(p.depth)
	for p.err == nil {
		p.deeper()
		switch {
		case p.at("."):
			x = p.attribute(x)
		case p.at("["):
			x = p.subscript(x)
		case p.at("("):
			x = p.call(x)
		default:
			return x
		}
	}
	return x
}

func (p *parser) attribute(x expr) expr {
	line := p.next().line
	switch t := p.next(); t.kind {
	case tokName:
		return &attrExpr{x, t.text, line}
	case tokInteger:
		return &itemExpr{x, &constExpr{t.num}, line}
	default:
		p.fail(t.line, "expected name or number")
		return x
	}
}

func (p *parser) subscript(x expr) expr {
	line := p.next().line
	var items []expr
	var slice *sliceExpr
	for p.err == nil && !p.at("]") {
		if len(items) > 0 {
			p.expect(",")
		}
		start := expr(nil)
		if !p.at(":") {
			start = p.expression()
		}
		if p.at(":") {
			slice = p.slice(start)
		}
		items = append(items, start)
	}
	p.expect("]")
	switch {
	case slice != nil && len(items) == 1:
		slice.x, slice.line = x, line
		return slice
	case slice != nil:
		p.fail(line, "invalid syntax")
	case len(items) == 1:
		return &itemExpr{x, items[0], line}
	}
	return &itemExpr{x, &tupleExpr{items}, line}
}

// slice reads the rest of a slice after its start.
func (p *parser) slice(start expr) *sliceExpr {
	p.next()
	part := func() expr {
		if p.at(":") || p.at("]") || p.at(",") {
			return nil
		}
		return p.expression()
	}
	s := &sliceExpr{start: start, stop: part()}
	if p.skip(":") {
		s.step = part()
	}
	return s
}

func (p *parser) call(x expr) expr {
	line := p.cur().line
	return &callExpr{x, p.arguments(), line}
}

func (p *parser) arguments() argExprs {
	line := p.expect("(").line
	var a argExprs
	need := func(ok bool) {
		if !ok {
			p.fail(line, "invalid syntax for function call expression")
		}
	}
	for comma := false; p.err == nil && !p.at(")"); comma = true {
		if comma {
			if p.expect(","); p.at(")") {
				break
			}
		}
		switch {
		case p.skip("*"):
			need(a.rest == nil && a.dict == nil)
			a.rest = p.expression()
		case p.skip("**"):
			need(a.dict == nil)
			a.dict = p.expression()
		case p.at(tokName) && p.look().kind == "=":
			need(a.dict == nil)
			p.named(&a)
		default:
			need(a.rest == nil && a.dict == nil && len(a.named) == 0)
			a.pos = append(a.pos, p.expression())
		}
	}
	p.expect(")")
	return a
}

// named reads name=value.
func (p *parser) named(a *argExprs) {
	t := p.next()
	p.next()
	p.counted(len(a.names))
	for _, n := range a.names {
		if n == t.text {
			p.fail(t.line, "keyword argument repeated: %s", n)
		}
	}
	a.names = append(a.names, t.text)
	a.named = append(a.named, p.expression())
}

// filters reads | a | b(c).
func (p *parser) filters(x expr) expr {
	defer p.restore(p.depth)
	for p.skip("|") {
		p.deeper()
		x = p.filter(x)
	}
	return x
}

// dotted reads the name of a filter or test.
func (p *parser) dotted() (string, int) {
	t := p.expect(tokName)
	parts := []string{t.text}
	for p.skip(".") {
		parts = append(parts, p.expect(tokName).text)
	}
	return strings.Join(parts, "."), t.line
}

func (p *parser) filter(x expr) expr {
	f := &filterExpr{x: x}
	f.name, f.line = p.dotted()
	if p.at("(") {
		f.args = p.arguments()
	}
	return f
}

// test reads is [not] name [argument].
func (p *parser) test(x expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	name, _ := p.dotted()
	t := &testExpr{x: x, name: name, line: line}
	switch p.cur().kind {
	case "(":
		t.args = p.arguments()
	case tokName, tokString, tokInteger, tokFloat, "[", "{":
		if p.atName("else", "or", "and") {
			break
		}
		if p.atName("is") {
			p.fail(line, "You cannot chain multiple tests with is")
		}
		t.args.pos = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}

// nameTarget reads a name to assign to.
func (p *parser) nameTarget() string {
	t := p.expect(tokName)
	p.assignable(t)
	return t.text
}

func (p *parser) assignable(t token) {
	switch t.text {
	case "true", "True", "false", "False", "none", "None":
		p.fail(t.line, "can't assign to '%s'", t.text)
	}
}

// assignTarget reads the target of an assignment: names, with attr also ns.name, and
// tuples of them, up to the word end.
func (p *parser) assignTarget(attr bool, end string) *targetNode {
	defer p.restore(p.depth)
	p.deeper()
	all := &targetNode{line: p.cur().line}
	comma := false
	for p.err == nil {
		if len(all.items) > 0 {
			p.expect(",")
		}
		if p.tupleEnds(end) {
			break
		}
		all.items = append(all.items, p.oneTarget(attr))
		if !p.at(",") {
			break
		}
		comma = true
	}
	switch {
	case comma:
		return all
	case len(all.items) == 1:
		return all.items[0]
	}
	p.fail(p.cur().line, "Expected an expression, got '%s'", describe(p.cur()))
	return all
}

func (p *parser) oneTarget(attr bool) *targetNode {
	t := p.next()
	if t.kind == "(" {
		x := &targetNode{line: t.line}
		if !p.at(")") {
			x = p.assignTarget(false, "")
		}
		p.expect(")")
		return x
	}
	if t.kind != tokName {
		p.fail(t.line, "can't assign to '%s'", describe(t))
		return &targetNode{}
	}
	if attr && p.skip(".") {
		return &targetNode{name: t.text, attr: p.expect(tokName).text, line: t.line}
	}
	p.assignable(t)
	return &targetNode{name: t.text, line: t.line}
}
