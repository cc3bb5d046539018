package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Attempts without any progress, and the pauses between them.
const (
	attempts   = 6
	firstPause = time.Second
	longPause  = 30 * time.Second
	mostAfter  = 5 * time.Minute // that a server may have us wait
)

// againKey is the context's key of a function that is told of each new try.
type againKey struct{}

// telling returns a context whose retries call tell with what failed, and the number of the next try.
func telling(ctx context.Context, tell func(err error, n int)) context.Context {
	return context.WithValue(ctx, againKey{}, tell)
}

// unreachable returns the host that a connection was not made to, "" if err is another error.
func unreachable(err error) string {
	if e := (*net.DNSError)(nil); errors.As(err, &e) {
		return e.Name
	}
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Op == "dial" && e.Addr != nil {
		return e.Addr.String()
	}
	return ""
}

// retry tries until try succeeds, fails for good, or fails too often without having come on. A name that nobody knows
// is not asked for again.
func retry(ctx context.Context, try func(context.Context) (progress bool, err error)) error {
	for n, pause := 1, firstPause; ; n++ {
		progress, err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var status *statusError
		var refused refusal
		var halted halt
		wait := pause/2 + rand.N(pause)
		switch {
		case errors.As(err, &refused), errors.As(err, &halted), errors.As(err, &status) && !status.again():
			return err
		case status != nil && status.after > mostAfter:
			return fmt.Errorf("%w; the server asks to wait %v", err, status.after.Round(time.Second))
		case status != nil && status.after >= 0:
			wait = status.after
		}
		if e := (*net.DNSError)(nil); errors.As(err, &e) && e.IsNotFound {
			return halt{fmt.Errorf("cannot reach %s: no host of that name is known, or there is no network", e.Name)}
		}
		if pause = min(2*pause, longPause); progress {
			n, pause = 0, firstPause
		}
		if n == attempts {
			return fmt.Errorf("%w (tried %d times)", err, n)
		}
		if tell, ok := ctx.Value(againKey{}).(func(error, int)); ok {
			tell(err, n+1)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// limiter keeps the bytes of all that share it below a rate.
type limiter struct {
	rate float64 // bytes a second; 0 is no limit
	mu   sync.Mutex
	next time.Time // when what was taken has been paid for
}

// wait takes n bytes, and reports whether it waited for that.
func (l *limiter) wait(ctx context.Context, n int) (bool, error) {
	if l.rate <= 0 {
		return false, nil
	}
	l.mu.Lock()
	now := time.Now()
	if l.next.Before(now) {
		l.next = now
	}
	l.next = l.next.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	d := l.next.Sub(now)
	l.mu.Unlock()
	return true, sleep(ctx, d)
}
