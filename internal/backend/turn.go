package backend

import "context"

// Turn is a mutex with waits that a context can end: a step of another engine, with a slow tap for example, may hold
// the mutex for long. The zero value is of no use.
type Turn chan struct{}

// NewTurn returns an unlocked Turn.
func NewTurn() Turn { return make(Turn, 1) }

// Lock waits without a bound.
func (t Turn) Lock() { t <- struct{}{} }

// Unlock lets the next waiter go on.
func (t Turn) Unlock() { <-t }

// Take locks t, or returns the error of a context that has ended.
func (t Turn) Take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case t <- struct{}{}: // most often; Done makes a context allocate
		return nil
	default:
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
