package jinja

import "context"

// Limits of what one rendering may use. A zero field means the default.
const (
	defaultMaxSource = 256 << 10
	defaultMaxSteps  = 10_000_000
	defaultMaxMemory = 32 << 20
	defaultMaxOutput = 16 << 20
	defaultMaxDepth  = 200
)

// The limits grow by this for each byte of the variables: a template
// may look at each message of a long conversation for each other one.
const (
	stepsPerByte  = 64
	memoryPerByte = 16
	outputPerByte = 4
)

// Options are the limits of a template and what it finds beside its variables.
// The zero value is safe for templates and variables from anyone: how long a
// rendering takes is bounded by the size of its variables. The defaults of steps,
// memory and output grow with it, counting the bytes of all strings and 16 for
// each value.
type Options struct {
	MaxSource int // bytes of source; default 256 KiB, 15 times the longest template published
	MaxSteps  int // nodes evaluated, items visited, and each 64 bytes of text read or made; default 10 million, and 64 for each byte of the variables
	MaxMemory int // bytes of values that live at a time, without those of the variables; default 32 MiB, and 16 for each byte of the variables
	MaxOutput int // bytes of text rendered; default 16 MiB, and 4 for each byte of the variables
	MaxDepth  int // calls of macros and loops inside each other; default 200

	// Watch, if it is not nil, is called with each marked string that is looked into
	// or compared, and the unmarked one that it is compared with.
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

// maxNesting bounds how deep values are walked when they are printed, compared
// or encoded; Python gives up at about the same depth.
const maxNesting = 900

// checkEvery is how many steps pass between two looks at the context.
const checkEvery = 2048

// lookEvery is how many bytes of text are read or written between two looks at the context.
const lookEvery = 1 << 20

// itemSize is what a value takes in a list, in bytes.
const itemSize = 16

// A machine is one rendering: its budgets and what it has used of them.
type machine struct {
	ctx      context.Context
	opt      Options
	steps    int // left
	check    int // steps until the context is asked
	bytes    int // of text since it was asked for them
	calls    int // macros and recursive loops entered
	nesting  int // values entered by a walk
	live     live
	folding  bool // a constant expression is evaluated as at compile time
	printing []Value
}

func newMachine(ctx context.Context, o Options, vars *Dict) *machine {
	bytes := 0
	if vars != nil {
		bytes = weight(vars)
	}
	o = o.withDefaults(bytes)
	return &machine{ctx: ctx, opt: o, steps: o.MaxSteps, check: checkEvery}
}

// weight is the bytes of the strings in v, and 16 for each value.
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

func limitError(format string, args ...any) error { return errorf(KindLimit, format, args...) }

// step pays for n units of work.
func (m *machine) step(n int) error {
	if m.steps -= n; m.steps < 0 {
		return limitError("more than %d steps", m.opt.MaxSteps)
	}
	if m.check -= n; m.check > 0 {
		return nil
	}
	m.check = checkEvery
	return m.look()
}

// look asks the context.
func (m *machine) look() error {
	if err := m.ctx.Err(); err != nil {
		return &Error{Kind: KindCanceled, Message: err.Error(), cause: err}
	}
	return nil
}

// pass notes that n bytes of text were read or written, in steps that are paid for. An
// operation pays for all of a long text at once, but is to end within it.
func (m *machine) pass(n int) error {
	if m.bytes += n; m.bytes < lookEvery {
		return nil
	}
	m.bytes = 0
	return m.look()
}

// room fails if n more bytes would exceed the limit.
func (m *machine) room(n int) error {
	most := m.opt.MaxMemory
	if n >= 0 && n <= most-m.live.counted-m.live.fresh {
		return nil
	}
	if n >= 0 && n <= most {
		if err := m.count(); err != nil {
			return err
		}
	}
	if n < 0 || n > most-m.live.counted {
		return limitError("more than %d bytes of values", most)
	}
	return nil
}

// alloc pays for n bytes that are about to be made.
func (m *machine) alloc(n int) error {
	if err := m.room(n); err != nil {
		return err
	}
	m.live.fresh += n
	m.live.temporary += n
	return m.step(n / 64)
}

// allocItems pays for n values of a list.
func (m *machine) allocItems(n int) error {
	if n > m.opt.MaxMemory/itemSize {
		return m.room(-1)
	}
	if err := m.step(n); err != nil {
		return err
	}
	return m.alloc(itemSize * n)
}

// call enters a macro or a recursive loop; the caller must return with leave.
func (m *machine) call() error {
	if m.calls++; m.calls > m.opt.MaxDepth {
		return limitError("more than %d calls inside each other", m.opt.MaxDepth)
	}
	return nil
}

func (m *machine) leave() { m.calls-- }

// nest enters a value that is walked; the caller must return with unnest.
func (m *machine) nest() error {
	if m.nesting++; m.nesting > maxNesting {
		return limitError("values nested deeper than %d", maxNesting)
	}
	return m.step(1)
}

func (m *machine) unnest() { m.nesting-- }
