package jinja

import (
	"context"
	"time"
)

// Limits of what one rendering may use. A zero field means the default.
const (
	defaultMaxSource = 256 << 10
	defaultMaxSteps  = 10_000_000
	defaultMaxMemory = 32 << 20
	defaultMaxOutput = 16 << 20
	defaultMaxDepth  = 200
	defaultTimeout   = 900 * time.Millisecond
)

// Options are the limits of a template and what it finds beside its variables.
// The zero value is safe for templates and variables from anyone.
type Options struct {
	MaxSource int           // bytes of source; default 256 KiB, 15 times the longest template published
	MaxSteps  int           // nodes evaluated, items visited, and each 64 bytes of text made; default 10 million
	MaxMemory int           // bytes of values made in one rendering, garbage included; default 32 MiB and 32 for each byte of the variables' strings
	MaxOutput int           // bytes of text rendered; default 16 MiB
	MaxDepth  int           // calls of macros and loops inside each other; default 200
	Timeout   time.Duration // wall time of one rendering; default 0.9 s, negative for none

	// Globals are variables that Execute's own shadow: functions, mostly.
	Globals map[string]Value
}

func (o Options) withDefaults() Options {
	set := func(p *int, d int) {
		if *p <= 0 {
			*p = d
		}
	}
	set(&o.MaxSource, defaultMaxSource)
	set(&o.MaxSteps, defaultMaxSteps)
	set(&o.MaxOutput, defaultMaxOutput)
	set(&o.MaxDepth, defaultMaxDepth)
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	return o
}

// maxNesting bounds how deep values are walked when they are printed, compared
// or encoded; Python gives up at about the same depth.
const maxNesting = 900

// checkEvery is how many steps pass between two looks at the clock.
const checkEvery = 2048

// A machine is one rendering: its budgets and what it has used of them.
type machine struct {
	ctx      context.Context
	opt      Options
	steps    int // left
	memory   int // left
	check    int // steps until the clock is read
	calls    int // macros and recursive loops entered
	nesting  int // values entered by a walk
	deadline time.Time
	folding  bool // a constant expression is evaluated as at compile time
	printing []Value
}

func newMachine(ctx context.Context, o Options, vars *Dict) *machine {
	if o.MaxMemory <= 0 {
		o.MaxMemory = defaultMaxMemory
		if vars != nil {
			o.MaxMemory += 32 * weight(vars)
		}
	}
	m := &machine{ctx: ctx, opt: o, steps: o.MaxSteps, memory: o.MaxMemory, check: checkEvery}
	if o.Timeout > 0 {
		m.deadline = time.Now().Add(o.Timeout)
	}
	return m
}

// weight is the bytes of the strings in v.
func weight(v Value) int {
	n := 0
	switch v := v.(type) {
	case str:
		n = len(v.s)
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
	if err := m.ctx.Err(); err != nil {
		return &Error{Kind: KindCanceled, Message: err.Error(), cause: err}
	}
	if !m.deadline.IsZero() && time.Now().After(m.deadline) {
		return limitError("longer than %v", m.opt.Timeout)
	}
	return nil
}

// alloc pays for n bytes that are about to be made.
func (m *machine) alloc(n int) error {
	if n < 0 || n > m.memory {
		m.memory = 0
		return limitError("more than %d bytes of values", m.opt.MaxMemory)
	}
	m.memory -= n
	return m.step(n / 64)
}

// allocItems pays for n values of a list.
func (m *machine) allocItems(n int) error {
	if n > m.memory/16 {
		return m.alloc(m.memory + 1)
	}
	if err := m.step(n); err != nil {
		return err
	}
	return m.alloc(16 * n)
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
