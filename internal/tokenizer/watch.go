package tokenizer

import "context"

// lookEvery is how much work is done between looks at the context: bytes that are read and steps of merging. That takes
// about a millisecond.
const lookEvery = 1 << 14

// A watch counts the work of encoding a text, which ends once err is set. The zero value never ends it.
type watch struct {
	ctx  context.Context
	work int // since the last look
	err  error
}

// did counts work, and reports whether there is to be more.
func (w *watch) did(n int) bool {
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
