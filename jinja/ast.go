package jinja

// An expr is an expression; eval gives its value in an environment.
type expr interface {
	eval(m *machine, e *env) (Value, error)
	children() []expr // in the order of Jinja2's fields
}

type (
	// A name reads a variable. The compiler sets ref.
	nameExpr struct {
		name string
		ref  ref
		line int
	}

	constExpr struct{ v Value }

	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ items []expr } // key, value, key, value, ...

	condExpr struct {
		then, test, els expr // els may be nil
		line            int
	}

	logicExpr struct {
		or          bool
		left, right expr
	}

	notExpr struct{ x expr }

	signExpr struct {
		op   string
		x    expr
		line int
	}

	binaryExpr struct {
		op          string
		left, right expr
		line        int
	}

	concatExpr struct{ items []expr }

	// A compareExpr is x op[0] y[0] and y[0] op[1] y[1] ...
	compareExpr struct {
		x    expr
		ops  []string
		ys   []expr
		line int
	}

	attrExpr struct {
		x    expr
		name string
		line int
	}

	itemExpr struct {
		x, index expr
		line     int
	}

	// A sliceExpr is x[start:stop:step], each of which may be nil.
	sliceExpr struct {
		x, start, stop, step expr
		line                 int
	}

	callExpr struct {
		f    expr
		args argExprs
		line int
	}

	filterExpr struct {
		x    expr // nil in {% filter %} and {% set x | f %}
		name string
		args argExprs
		line int
	}

	testExpr struct {
		x    expr
		name string
		args argExprs
		line int
	}

	// A foldExpr has constants for all operands, and so is evaluated as
	// Jinja2's compiler would.
	foldExpr struct {
		x      expr
		output bool // an operand of a print statement
		line   int
	}
)

// argExprs are the arguments of a call.
type argExprs struct {
	pos        []expr
	names      []string // of named
	named      []expr
	rest, dict expr // *rest, **dict; may be nil
}

// A target is what a value is assigned to, before the compiler has its say.
type targetNode struct {
	name  string
	attr  string // of a namespace
	items []*targetNode
	line  int
}

// A node is a statement.
type node interface{}

type (
	outputNode struct{ parts []outputPart }
	outputPart struct {
		data string
		x    expr // nil for data
		line int
	}

	ifNode struct {
		test  expr
		body  []node
		elifs []*ifNode
		els   []node
	}

	forNode struct {
		target     *targetNode
		iter, test expr // test may be nil
		recursive  bool
		body, els  []node
		line       int
	}

	assignNode struct {
		target *targetNode
		x      expr
		line   int
	}

	setBlockNode struct {
		target *targetNode
		filter expr // or nil
		body   []node
		line   int
	}

	filterBlockNode struct {
		filter expr
		body   []node
		line   int
	}

	withNode struct {
		targets []*targetNode
		values  []expr
		body    []node
		line    int
	}

	macroNode struct {
		name     string // "" of a call block
		args     []string
		defaults []expr // of the last args
		body     []node
		line     int
	}

	// A callNode gives its body as caller to a call. Without a call it is
	// {% generation %}, which renders its body.
	callNode struct {
		call *callExpr
		macroNode
	}

	blockNode struct {
		name             string
		scoped, required bool
		body             []node
		line             int
	}

	jumpNode struct {
		stop bool // break, not continue
		line int
	}

	// A loadNode is a tag that wants another template. There is none.
	loadNode struct {
		x       expr
		names   []string // that it would set
		extends bool
		line    int
	}

	autoescapeNode struct {
		x    expr
		body []node
		line int
	}
)

func (a *argExprs) children() []expr {
	all := append(append([]expr{}, a.pos...), a.named...)
	return append(all, a.rest, a.dict)
}

func (x *nameExpr) children() []expr    { return nil }
func (x *constExpr) children() []expr   { return nil }
func (x *tupleExpr) children() []expr   { return x.items }
func (x *listExpr) children() []expr    { return x.items }
func (x *dictExpr) children() []expr    { return x.items }
func (x *condExpr) children() []expr    { return []expr{x.test, x.then, x.els} }
func (x *logicExpr) children() []expr   { return []expr{x.left, x.right} }
func (x *notExpr) children() []expr     { return []expr{x.x} }
func (x *signExpr) children() []expr    { return []expr{x.x} }
func (x *binaryExpr) children() []expr  { return []expr{x.left, x.right} }
func (x *concatExpr) children() []expr  { return x.items }
func (x *compareExpr) children() []expr { return append([]expr{x.x}, x.ys...) }
func (x *attrExpr) children() []expr    { return []expr{x.x} }
func (x *itemExpr) children() []expr    { return []expr{x.x, x.index} }
func (x *sliceExpr) children() []expr   { return []expr{x.x, x.start, x.stop, x.step} }
func (x *callExpr) children() []expr    { return append([]expr{x.f}, x.args.children()...) }
func (x *filterExpr) children() []expr  { return append([]expr{x.x}, x.args.children()...) }
func (x *testExpr) children() []expr    { return append([]expr{x.x}, x.args.children()...) }
func (x *foldExpr) children() []expr    { return []expr{x.x} }
