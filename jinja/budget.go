package jinja

import "context"

// Limits of a rendering. A zero field means the default.
const (
	defaultMaxSource = 256 << 10
	defaultMaxSteps  = 10_000_000
	defaultMaxMemory = 64 << 20
	defaultMaxOutput = 16 << 20
	defaultMaxDepth  = 200
)

// The limits grow by these factors for each byte of the variables: a template may look at each message of a long
// conversation for each other message.
const (
	stepsPerByte  = 64
	memoryPerByte = 32
	outputPerByte = 4
)

// Options are the limits of a template, and its names beside the variables. The zero value is safe for templates and
// variables from anyone: the size of the variables bounds the time of a rendering. The defaults of steps, memory and
// output grow with this size, which counts the bytes of all strings and 16 for each value.
type Options struct {
	MaxSource int // bytes of source; default 256 KiB, 15 times the longest template published
	MaxSteps  int // nodes, items and each 64 bytes of text; default 10 million, and 64 per byte of the variables
	MaxMemory int // bytes of values made; default 64 MiB, and 32 per byte of the variables
	MaxOutput int // bytes of text rendered; default 16 MiB, and 4 for each byte of the variables
	MaxDepth  int // calls of macros and loops inside each other; default 200

	// Watch, if set, receives each marked string that the template searches or compares, and the unmarked string that
	// the template compares it with.
	Watch func(marked, with string)

	// Globals are variables that Execute's own shadow: functions, mostly.
	Globals map[string]Value
}

// withDefaults fills in the unset options, for variables of a number of bytes.
func (o Options) withDefaults(bytes int) Options {
	set := func(p *int, d int) {
		if *p <= 0 {
			*p = d
		}
	}
	set(&o.MaxSource, defaultMaxSource)
	set(&o.MaxSteps, defaultMaxSteps+stepsPerByte*bytes)
	set(&o.MaxMemory, defaultMaxMemory+memoryPerByte*bytes)
	set(&o.MaxOutput, defaultMaxOutput+outputPerByte*bytes)
	set(&o.MaxDepth, defaultMaxDepth)
	return o
}

const (
	maxNesting = 900     // depth to which values are printed, compared or encoded; Python gives up at about the same
	checkEvery = 2048    // steps between two looks at the context
	lookEvery  = 1 << 20 // bytes of text between two looks at the context
	itemSize   = 16      // bytes of a value in a list
	dictItem   = 8       // values of a list in the room of an item of a dict
)

// A rendering is the budget of one Execute, and the rest of the budget.
type rendering struct {
	ctx      context.Context
	opt      Options
	steps    int     // steps left
	memory   int     // bytes left for values
	check    int     // steps until the next look at the context
	unlooked int     // bytes of text since the last look at the context
	calls    int     // macros and recursive loops entered
	nesting  int     // containers entered by a walk
	line     int     // line of the expression or statement under way
	printing []Value // containers whose text is under way
}

func newRendering(ctx context.Context, o Options, vars *Dict) *rendering {
	bytes := 0
	if vars != nil {
		bytes = weight(vars)
	}
	o = o.withDefaults(bytes)
	return &rendering{ctx: ctx, opt: o, steps: o.MaxSteps, memory: o.MaxMemory, check: checkEvery}
}

// weight returns the bytes of the strings in v, and 16 for each value.
func weight(v Value) int {
	n := itemSize
	switch v := v.(type) {
	case str:
		n += len(v.s)
	case *list:
		for _, x := range v.items {
			n += weight(x)
		}
	case *Dict:
		for i, k := range v.keys {
			n += weight(k) + weight(v.values[i])
		}
	}
	return n
}

// step pays for n units of work.
func (r *rendering) step(n int) {
	if r.steps -= n; r.steps < 0 {
		panic(limitError("more than %d steps", r.opt.MaxSteps))
	}
	if r.check -= n; r.check <= 0 {
		r.check = checkEvery
		r.look()
	}
}

// look asks the context.
func (r *rendering) look() {
	if err := r.ctx.Err(); err != nil {
		panic(&Error{Kind: KindCanceled, Message: err.Error(), cause: err})
	}
}

// pass notes that n bytes of text were read or written, in steps already paid for. An operation pays for all of a long
// text at once, and still ends within the text when the context is done.
func (r *rendering) pass(n int) {
	if r.unlooked += n; r.unlooked >= lookEvery {
		r.unlooked = 0
		r.look()
	}
}

// alloc pays for n bytes before they are made.
func (r *rendering) alloc(n int) {
	if n < 0 || n > r.memory {
		panic(limitError("more than %d bytes of values", r.opt.MaxMemory))
	}
	r.memory -= n
	r.step(n / 64)
}

// allocItems pays for n values of a list.
func (r *rendering) allocItems(n int) {
	if n > r.opt.MaxMemory/itemSize {
		n = -1
	}
	r.alloc(itemSize * n)
	r.step(n)
}

// enter begins a macro or a recursive loop, which leave ends.
func (r *rendering) enter() {
	if r.calls++; r.calls > r.opt.MaxDepth {
		panic(limitError("more than %d calls inside each other", r.opt.MaxDepth))
	}
}

func (r *rendering) leave() { r.calls-- }

// nest enters a container during a walk; unnest leaves the container.
func (r *rendering) nest() {
	if r.nesting++; r.nesting > maxNesting {
		panic(limitError("values nested deeper than %d", maxNesting))
	}
	r.step(1)
}

func (r *rendering) unnest() { r.nesting-- }
