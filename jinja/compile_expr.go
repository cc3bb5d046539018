package jinja

// expr compiles an expression: it binds the names to variables, checks filters
// and tests, and marks what Jinja2 would have computed at compile time.
func (c *compiler) expr(x expr, f *frame) expr {
	y, _ := c.fold(x, f)
	return y
}

// all compiles operands in place, and reports whether all are constant.
func (c *compiler) all(f *frame, operands ...*expr) bool {
	constant := true
	for _, p := range operands {
		if *p == nil {
			continue
		}
		x, ok := c.fold(*p, f)
		*p = x
		constant = constant && ok
	}
	return constant
}

func (c *compiler) items(f *frame, items []expr) bool {
	constant := true
	for i := range items {
		constant = c.all(f, &items[i]) && constant
	}
	return constant
}

func (c *compiler) arguments(f *frame, a *argExprs) bool {
	pos, named := c.items(f, a.pos), c.items(f, a.named)
	return c.all(f, &a.rest, &a.dict) && pos && named
}

// fold compiles x, and reports whether it may be constant: whether it is, shows
// when it is evaluated, since an operand may not count.
func (c *compiler) fold(x expr, f *frame) (expr, bool) {
	constant, line := c.operands(x, f)
	if !constant {
		return x, false
	}
	if k, ok := x.(*constExpr); ok && safeRepr(k.v) == nil {
		return x, true
	}
	return &foldExpr{x: x, line: line}, true
}

// operands compiles what x is made of.
func (c *compiler) operands(x expr, f *frame) (constant bool, line int) {
	switch x := x.(type) {
	case *constExpr:
		return true, 0
	case *nameExpr:
		x.ref = c.ref(x.name, x.line, f)
		return false, x.line
	case *tupleExpr:
		return c.items(f, x.items), 0
	case *listExpr:
		return c.items(f, x.items), 0
	case *dictExpr:
		return c.items(f, x.items), 0
	case *condExpr:
		soft := f.softly()
		test, then := c.all(soft, &x.test), c.all(soft, &x.then)
		els := x.els != nil && c.all(soft, &x.els)
		return test && (then || els), x.line
	case *logicExpr:
		left := c.all(f, &x.left)
		c.all(f, &x.right)
		return left, 0
	case *notExpr:
		return c.all(f, &x.x), 0
	case *signExpr:
		return c.all(f, &x.x), x.line
	case *binaryExpr:
		return c.all(f, &x.left, &x.right), x.line
	case *concatExpr:
		return c.items(f, x.items), 0
	case *compareExpr:
		first, second := c.all(f, &x.x), c.all(f, &x.ys[0])
		c.items(f, x.ys[1:])
		return first && second, x.line
	case *attrExpr:
		return c.all(f, &x.x), x.line
	case *itemExpr:
		return c.all(f, &x.x, &x.index), x.line
	case *sliceExpr:
		return c.all(f, &x.x, &x.start, &x.stop, &x.step), x.line
	case *callExpr:
		c.all(f, &x.f)
		c.arguments(f, &x.args)
		return false, x.line
	case *filterExpr:
		return c.filter(x, f), x.line
	case *testExpr:
		return c.test(x, f), x.line
	}
	return false, 0
}

func (c *compiler) filter(x *filterExpr, f *frame) bool {
	known, ok := filters[x.name]
	if !ok && !f.soft {
		c.fail(x.line, "No filter named '%s'.", x.name)
	}
	constant := x.x != nil
	if x.x != nil {
		constant = c.all(f, &x.x)
	}
	return c.arguments(f, &x.args) && constant && ok && !known.lazy
}

func (c *compiler) test(x *testExpr, f *frame) bool {
	_, ok := tests[x.name]
	if !ok && !f.soft {
		c.fail(x.line, "No test named '%s'.", x.name)
	}
	constant := c.all(f, &x.x)
	return c.arguments(f, &x.args) && constant && ok
}
