package backend

import "context"

// Turn is a mutex for which a context ends the wait: a step of another engine, with a
// slow tap for one, may hold it for long. Its zero value is of no use.
type Turn chan struct{}

// NewTurn is an unlocked one.
func NewTurn() Turn { return make(Turn, 1) }

// Lock waits for as long as it takes.
func (t Turn) Lock() { t <- struct{}{} }

// Unlock lets the next one have it.
func (t Turn) Unlock() { <-t }

// Take is Lock, or the error of a context that has ended.
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
