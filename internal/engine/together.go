package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// together is the context of a step of several requests. It ends when the contexts of all of them have. Backends look
// at Err between two nodes, so Err asks the requests' own contexts: a step allocates nothing for it. Only Done makes a
// context.
type together struct {
	free func() // release, bound once

	mu    sync.Mutex
	batch []*work         // nil after the step
	made  context.Context // nil before Done is called
	close context.CancelFunc
	stops []func() bool
}

func (*together) Deadline() (end time.Time, ok bool) { return }
func (*together) Value(any) any                      { return nil }

// begin makes c the context of a step of batch, and returns how to end the step.
func (c *together) begin(batch []*work) (ctx context.Context, release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.free == nil {
		c.free = c.release
	}
	c.batch = batch
	return c, c.free
}

// Err returns context.Canceled once all requests have ended, or the step has: a goroutine that a backend or a tap left
// running may ask then.
func (c *together) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.batch {
		if w.ctx.Err() == nil {
			return nil
		}
	}
	return context.Canceled
}

// Done returns a channel that is closed when all requests have ended, or the step has.
func (c *together) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.close = context.WithCancel(context.Background())
		left, end := atomic.Int32{}, c.close
		left.Store(int32(len(c.batch)))
		for _, w := range c.batch {
			c.stops = append(c.stops, context.AfterFunc(w.ctx, func() {
				if left.Add(-1) == 0 {
					end()
				}
			}))
		}
	}
	return c.made.Done()
}

// release ends the step, and with it the context that Done has made.
func (c *together) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, stop := range c.stops {
		stop()
	}
	if c.made != nil {
		c.close()
	}
	c.batch, c.made, c.close, c.stops = nil, nil, nil, nil
}
