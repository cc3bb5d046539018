package tokenizer

import "context"

// lookEvery is the amount of work between looks at the context, in bytes read and steps of merging, about a
// millisecond.
const lookEvery = 1 << 14

// A watch counts the work of encoding a text, which ends once err is set. The zero value never ends the work.
type watch struct {
	ctx  context.Context
	work int // since the last look
	err  error
}

// spend counts work, and reports whether there is to be more.
func (w *watch) spend(n int) bool {
	if w.work += n; w.work >= lookEvery {
		w.look()
	}
	return w.err == nil
}

func (w *watch) look() {
	w.work = 0
	if w.err == nil && w.ctx != nil {
		w.err = w.ctx.Err()
	}
}
