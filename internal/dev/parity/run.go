package parity

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Run runs the cases in a random order, so that the cases finished when ctx ends are a
// sample of all: then the report is of that, and the error is ctx's.
func Run(ctx context.Context, o Options) (*Report, error) {
	start := time.Now()
	cases := plan(&o)
	r := &Report{Seed: o.Seed, Every: max(o.Every, 1), Most: o.Most, Numerics: o.Class.String(), Cases: len(cases),
		Total: map[Condition]*Sum{}, Results: []*Result{}}
	for _, m := range o.Models {
		r.Models = append(r.Models, ModelSum{m.Name, map[Condition]*Sum{}})
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan *example)
	var mu sync.Mutex // of r
	var workers sync.WaitGroup
	done := 0
	for range max(o.Jobs, 1) {
		workers.Go(func() {
			for c := range queue {
				begun := processor()
				x, err := c.run(ctx)
				if x != nil && o.Jobs <= 1 {
					x.Processor = processor() - begun
				}
				mu.Lock()
				switch done++; {
				case ctx.Err() != nil:
				case err != nil:
					stop(fmt.Errorf("%s: %s: %w", c.model.Name, c.name(), err))
				case x == nil:
					r.Unmade++
				default:
					r.add(x)
				}
				if o.Progress != nil && ctx.Err() == nil {
					o.Progress(done, len(cases), x)
				}
				mu.Unlock()
			}
		})
	}
	for _, c := range cases {
		if ctx.Err() != nil {
			break
		}
		select {
		case queue <- c:
		case <-ctx.Done():
		}
	}
	close(queue)
	workers.Wait()
	r.Seconds = time.Since(start).Seconds()
	return r, context.Cause(ctx)
}

func (r *Report) add(x *Result) {
	r.Results = append(r.Results, x)
	totals := []map[Condition]*Sum{r.Total}
	for _, m := range r.Models {
		if m.Model == x.Model {
			totals = append(totals, m.Total)
		}
	}
	for _, t := range totals {
		if t[x.Condition] == nil {
			t[x.Condition] = &Sum{}
		}
		s := t[x.Condition]
		s.Runs++
		s.Slowest = max(s.Slowest, x.Scores.Seconds)
		s.Scores.add(&x.Scores)
	}
}
