package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/karat-run/karat/internal/engine"
)

// settled is how many tokens each sequence decodes before the prompt arrives.
const settled = 8

// arrivals measures prompts of n tokens arriving while t's sequences decode. The samples count the tokens of
// the prompt and the tokens decoded meanwhile.
func (m *runner) arrivals(ctx context.Context, t *Result, n int) error {
	m.say(t.name())
	all, err := m.sequences(ctx, t)
	late := m.engine.NewSequence()
	defer func() {
		for _, s := range append(all, late) {
			s.Close()
		}
	}()
	if err != nil {
		return err
	}
	late.Prefix(nil, "late")
	t.Arrival = &Arrival{Tokens: n}
	var before, mixed []float64
	for i := range m.o.Repeat + 1 { // the first warms up
		if err := ctx.Err(); err != nil {
			return err
		}
		var g gaps
		busy, err := measureOthers(func() (err error) {
			g, err = m.arrive(ctx, all, late, t.Depth, n)
			return err
		})
		if err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		t.Others = max(t.Others, busy)
		meanwhile := slices.Concat(g.mixed...)
		t.Samples = append(t.Samples, float64(n+len(meanwhile))/g.seconds)
		before, mixed = append(before, g.alone...), append(mixed, meanwhile...)
		t.Arrival.count(&g)
	}
	t.Median, t.Stddev = spread(t.Samples)
	t.Arrival.Alone, _ = spread(before)
	t.Arrival.Mixed, _ = spread(mixed)
	if len(mixed) > 0 {
		t.Arrival.Longest = slices.Max(mixed)
	}
	return nil
}

// gaps holds the seconds between tokens of a run, and the seconds of the prompt.
type gaps struct {
	alone   []float64
	mixed   [][]float64 // by sequence
	seconds float64
}

// count adds the steps of a run, and the slowest step.
func (a *Arrival) count(g *gaps) {
	for _, list := range g.mixed {
		if a.Fewest == 0 || len(list) < a.Fewest {
			a.Fewest = len(list)
		}
		a.Steps = max(a.Steps, len(list))
	}
	for i := range a.Steps {
		var step []float64
		for _, list := range g.mixed {
			if i < len(list) {
				step = append(step, list[i])
			}
		}
		median, _ := spread(step)
		a.Slowest = max(a.Slowest, median)
	}
}

// arrive computes a prompt of n tokens while all of some sequences decode.
func (m *runner) arrive(ctx context.Context, all []*engine.Sequence, late *engine.Sequence, depth, n int) (g gaps,
	err error) {
	for _, s := range all {
		if err := m.deepen(ctx, s, depth); err != nil {
			return g, err
		}
	}
	late.Rewind(m.tokens[:1]) // all is computed again
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done, ready := make(chan struct{}), make(chan struct{}, len(all))
	times, errs := make([][]time.Time, len(all)), make(chan error, len(all))
	for i, s := range all {
		go func() {
			var err error
			times[i], err = m.decode(ctx, s, m.tokens[depth:], ready, done)
			if err != nil {
				stop() // the others
			}
			errs <- err
		}()
	}
	for range all {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	start := time.Now()
	_, err = late.Feed(ctx, m.tokens[:n], 1)
	end := time.Now()
	close(done)
	for range all {
		err = cmp.Or(<-errs, err) // the first cause of the stop
	}
	g.seconds = end.Sub(start).Seconds()
	g.mixed = make([][]float64, len(all))
	for k, list := range times {
		for i := 1; i < len(list); i++ {
			gap := list[i].Sub(list[i-1]).Seconds()
			switch {
			case !list[i].After(start):
				g.alone = append(g.alone, gap)
			case list[i-1].Before(end):
				g.mixed[k] = append(g.mixed[k], gap)
			}
		}
	}
	return g, err
}

// decode computes tokens until done is closed, and returns the time of each. After a few tokens decode signals ready.
func (m *runner) decode(ctx context.Context, s *engine.Sequence, tokens []int32, ready chan<- struct{},
	done <-chan struct{}) (times []time.Time, err error) {
	for i := range tokens {
		select {
		case <-done:
			return times, nil
		default:
		}
		if m.engine.Chooses() {
			_, err = s.Follow(ctx, tokens[i:i+1], 1)
		} else {
			var logits [][]float32
			if logits, err = s.Feed(ctx, tokens[i:i+1], 1); err == nil {
				s.Reuse(logits[0])
			}
		}
		if err != nil {
			return times, err
		}
		if times = append(times, time.Now()); len(times) == settled {
			ready <- struct{}{}
		}
	}
	return times, nil
}

// text describes a as part of a test's name.
func (a *Arrival) text(name string) string {
	missed := "none of which a sequence missed"
	if a.Fewest < a.Steps {
		missed = fmt.Sprintf("at least %d of each sequence", a.Fewest)
	}
	return fmt.Sprintf("%s: a sequence waits %.1f ms for a token, and %.1f ms in the %d steps with the prompt, %s. "+
		"The slowest step takes %.1f ms, the longest wait is %.1f ms (%.2f times)\n",
		name, 1e3*a.Alone, 1e3*a.Mixed, a.Steps, missed, 1e3*a.Slowest, 1e3*a.Longest, a.Longest/a.Slowest)
}

// cells returns the columns of CSV, empty without an arrival.
func (a *Arrival) cells() []string {
	if a == nil {
		return make([]string, 7)
	}
	cells := []string{strconv.Itoa(a.Tokens), strconv.Itoa(a.Steps), strconv.Itoa(a.Fewest)}
	for _, x := range []float64{a.Alone, a.Mixed, a.Slowest, a.Longest} {
		cells = append(cells, strconv.FormatFloat(x, 'f', 6, 64))
	}
	return cells
}
