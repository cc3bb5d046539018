package jinja

import "strings"

// parseExpr reads a if b else c.
func parseExpr(p *parser) expr {
	depth := p.depth
	p.deeper()
	line, known := p.now.line, len(p.unknown)
	x := parseOr(p)
	for p.skipName("if") {
		p.deeper()
		c := &condExpr{then: x, test: parseOr(p), line: line}
		if p.skipName("else") {
			c.els = parseExpr(p)
		}
		p.forgive(known)
		x, line = c, p.now.line
	}
	p.depth = depth
	return x
}

func parseOr(p *parser) expr  { return parseLogic(p, "or", parseAnd) }
func parseAnd(p *parser) expr { return parseLogic(p, "and", parseNot) }

// parseLogic reads operands between which a word stands.
func parseLogic(p *parser, word string, operand func(*parser) expr) expr {
	depth := p.depth
	x := operand(p)
	for p.skipName(word) {
		p.deeper()
		x = &logicExpr{word == "or", x, operand(p)}
	}
	p.depth = depth
	return x
}

func parseNot(p *parser) expr {
	p.deeper()
	var x expr
	if p.skipName("not") {
		x = &notExpr{parseNot(p)}
	} else {
		x = parseComparison(p)
	}
	p.depth--
	return x
}

func parseComparison(p *parser) expr {
	c := &compareExpr{line: p.now.line, x: parseSum(p)}
	for {
		op := p.now.kind
		switch {
		case p.atName("in"):
			op = "in"
		case p.atName("not") && p.after.kind == tokName && p.after.text == "in":
			p.next()
			op = "not in"
		case op != "==" && op != "!=" && op != "<" && op != "<=" && op != ">" && op != ">=":
			if len(c.ops) == 0 {
				return c.x
			}
			return c
		}
		p.next()
		c.ops = append(c.ops, op)
		c.ys = append(c.ys, parseSum(p))
	}
}

// parseBinary reads a chain of operators of the same rank.
func parseBinary(p *parser, operand func(*parser) expr, ops string) expr {
	depth, line := p.depth, p.now.line
	x := operand(p)
	for op := p.now.kind; strings.Contains(ops, " "+op+" "); op = p.now.kind {
		p.deeper()
		p.next()
		x = &binaryExpr{op, x, operand(p), line}
		line = p.now.line
	}
	p.depth = depth
	return x
}

func parseSum(p *parser) expr { return parseBinary(p, parseConcat, " + - ") }

func parseConcat(p *parser) expr {
	c := &concatExpr{line: p.now.line, items: []expr{parseProduct(p)}}
	for p.skip("~") {
		c.items = append(c.items, parseProduct(p))
	}
	if len(c.items) == 1 {
		return c.items[0]
	}
	return c
}

func parseProduct(p *parser) expr { return parseBinary(p, parsePower, " * / // % ") }

func parsePower(p *parser) expr { return parseBinary(p, parseFiltered, " ** ") }

// parseFiltered reads an operand with its filters and tests.
func parseFiltered(p *parser) expr {
	depth := p.depth
	x := parseUnary(p)
	for {
		p.deeper()
		switch {
		case p.at("|"):
			x = parseFilters(p, x)
		case p.atName("is"):
			x = parseTest(p, x)
		case p.at("("):
			x = parseCall(p, x)
		default:
			p.depth = depth
			return x
		}
	}
}

func parseUnary(p *parser) expr {
	p.deeper()
	var x expr
	if t := p.now; t.kind == "-" || t.kind == "+" {
		p.next()
		x = &signExpr{t.kind, parseUnary(p), t.line}
	} else {
		x = parsePrimary(p)
	}
	x = parsePostfix(p, x)
	p.depth--
	return x
}

func parsePrimary(p *parser) expr {
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
		x := &nameExpr{t.text, p.id(t.text), t.line}
		p.frame.read(x.id)
		p.noteSpecial(t.text, x.id)
		return x
	case tokString:
		var b strings.Builder
		b.WriteString(t.text)
		for p.at(tokString) {
			b.WriteString(p.next().text)
		}
		return &constExpr{unmarked(b.String())}
	case tokInteger, tokFloat:
		return &constExpr{t.num}
	case "(":
		x := parseTuple(p, tupleRules{parens: true})
		p.expect(")")
		return x
	case "[":
		return &listExpr{items: parseItems(p, "]", false)}
	case "{":
		return &dictExpr{parseItems(p, "}", true)}
	}
	panic(syntaxError(t.line, "unexpected '%s'", t))
}

// tupleRules say how a tuple without brackets may look.
type tupleRules struct {
	noCond bool   // no inline if
	parens bool   // the tuple is in parentheses, and may be empty
	end    string // word ending the tuple
}

// parseTuple reads a, b, c, or a single expression.
func parseTuple(p *parser, r tupleRules) expr {
	parse := parseExpr
	if r.noCond {
		parse = parseOr
	}
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if atTupleEnd(p, r.end) {
			break
		}
		items = append(items, parse(p))
		if !p.at(",") {
			break
		}
		comma = true
	}
	if !comma && len(items) == 1 {
		return items[0]
	}
	if !comma && !r.parens {
		panic(syntaxError(p.now.line, "Expected an expression, got '%s'", p.now))
	}
	return &listExpr{items, true}
}

func atTupleEnd(p *parser, word string) bool {
	return p.at(tokVarEnd) || p.at(tokEnd) || p.at(")") || word != "" && p.atName(word)
}

// parseItems reads the rest of a list, or of a dict as keys and values.
func parseItems(p *parser, end string, pairs bool) []expr {
	var items []expr
	for !p.at(end) {
		if len(items) > 0 {
			if p.expect(","); p.at(end) {
				break
			}
		}
		items = append(items, parseExpr(p))
		if pairs {
			p.expect(":")
			items = append(items, parseExpr(p))
		}
	}
	p.expect(end)
	return items
}

// parsePostfix reads .a, [b] and (c) after an expression.
func parsePostfix(p *parser, x expr) expr {
	depth := p.depth
	for {
		p.deeper()
		switch {
		case p.at("."):
			line := p.next().line
			switch t := p.next(); t.kind {
			case tokName:
				x = &attrExpr{x, t.text, line}
			case tokInteger:
				x = &itemExpr{x, &constExpr{t.num}, line}
			default:
				panic(syntaxError(t.line, "expected name or number"))
			}
		case p.at("["):
			x = parseSubscript(p, x)
		case p.at("("):
			x = parseCall(p, x)
		default:
			p.depth = depth
			return x
		}
	}
}

func parseSubscript(p *parser, x expr) expr {
	line := p.next().line
	var items []expr
	var slice *sliceExpr
	for !p.at("]") {
		if len(items) > 0 {
			p.expect(",")
		}
		var start expr
		if !p.at(":") {
			start = parseExpr(p)
		}
		if p.at(":") {
			slice = parseSlice(p, start)
		}
		items = append(items, start)
	}
	p.expect("]")
	switch {
	case slice != nil && len(items) == 1:
		slice.x, slice.line = x, line
		return slice
	case slice != nil:
		panic(syntaxError(line, "invalid syntax"))
	case len(items) == 1:
		return &itemExpr{x, items[0], line}
	}
	return &itemExpr{x, &listExpr{items, true}, line}
}

// parseSlice reads the rest of a slice after its start.
func parseSlice(p *parser, start expr) *sliceExpr {
	p.next()
	part := func() expr {
		if p.at(":") || p.at("]") || p.at(",") {
			return nil
		}
		return parseExpr(p)
	}
	s := &sliceExpr{start: start, stop: part()}
	if p.skip(":") {
		s.step = part()
	}
	return s
}

func parseCall(p *parser, x expr) expr {
	line := p.now.line
	return &callExpr{x, parseArguments(p), line}
}

func parseArguments(p *parser) argExprs {
	line := p.expect("(").line
	var a argExprs
	need := func(ok bool) {
		if !ok {
			panic(syntaxError(line, "invalid syntax for function call expression"))
		}
	}
	for comma := false; !p.at(")"); comma = true {
		if comma {
			if p.expect(","); p.at(")") {
				break
			}
		}
		switch {
		case p.skip("*"):
			need(a.rest == nil && a.dict == nil)
			a.rest = parseExpr(p)
		case p.skip("**"):
			need(a.dict == nil)
			a.dict = parseExpr(p)
		case p.at(tokName) && p.after.kind == "=":
			need(a.dict == nil)
			parseNamed(p, &a)
		default:
			need(a.rest == nil && a.dict == nil && len(a.named) == 0)
			a.pos = append(a.pos, parseExpr(p))
		}
	}
	p.expect(")")
	return a
}

// parseNamed reads name=value.
func parseNamed(p *parser, a *argExprs) {
	t := p.next()
	p.next()
	if len(a.names) >= maxNames {
		panic(syntaxError(t.line, "more than %d names", maxNames))
	}
	for _, n := range a.names {
		if n == t.text {
			panic(syntaxError(t.line, "keyword argument repeated: %s", n))
		}
	}
	a.names = append(a.names, t.text)
	a.named = append(a.named, parseExpr(p))
}

// parseFilters reads | a | b(c).
func parseFilters(p *parser, x expr) expr {
	depth := p.depth
	for p.skip("|") {
		p.deeper()
		x = parseFilter(p, x)
	}
	p.depth = depth
	return x
}

// parseDotted reads the name of a filter or test, and notes a name absent from the table.
func parseDotted(p *parser, what string, table map[string]*builtin) (string, int) {
	t := p.expect(tokName)
	parts := []string{t.text}
	for p.skip(".") {
		parts = append(parts, p.expect(tokName).text)
	}
	name := strings.Join(parts, ".")
	switch b := table[name]; {
	case b == nil:
		p.unknown = append(p.unknown, unknownName{p.frame, syntaxError(t.line, "No %s named '%s'.", what, name)})
	case b.absent:
		e := unsupported("%s", b.name)
		e.Line = t.line
		p.unknown = append(p.unknown, unknownName{p.frame, e})
	}
	return name, t.line
}

func parseFilter(p *parser, x expr) expr {
	f := &filterExpr{x: x}
	f.name, f.line = parseDotted(p, "filter", filters)
	if p.at("(") {
		f.args = parseArguments(p)
	}
	return f
}

// parseTest reads is [not] name [argument].
func parseTest(p *parser, x expr) expr {
	t := &testExpr{x: x, line: p.next().line}
	negated := p.skipName("not")
	t.name, _ = parseDotted(p, "test", tests)
	switch p.now.kind {
	case "(":
		t.args = parseArguments(p)
	case tokName, tokString, tokInteger, tokFloat, "[", "{":
		if p.atName("else", "or", "and") {
			break
		}
		if p.atName("is") {
			panic(syntaxError(t.line, "You cannot chain multiple tests with is"))
		}
		t.args.pos = []expr{parsePostfix(p, parsePrimary(p))}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}
