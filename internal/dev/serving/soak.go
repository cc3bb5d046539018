package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// Soak says how long a server is tried, and by how many clients. Some of them leave, as Workload.Abort says; some read
// slowly, and some leave while they send.
type Soak struct {
	Workload
	Clients  int
	Time     time.Duration
	Slow     float64 // share of the requests whose client reads slowly
	Uploads  float64 // share of the requests whose client leaves before all is sent
	Progress func(string)
}

// Gauges are what a server's /metrics says of what it holds while it computes nothing. -1: it does not say.
type Gauges struct {
	Memory     float64 `json:"memory_bytes"`
	Goroutines float64 `json:"goroutines"`
	Files      float64 `json:"open_files"`
	Pages      float64 `json:"kv_use"`     // share of the room for keys and values
	Kept       float64 `json:"kept_bytes"` // of keys and values, for later requests
}

// Soaked is what became of the requests, and what the server held before, halfway and after.
type Soaked struct {
	Seconds  float64 `json:"seconds"`
	Complete int     `json:"complete"`
	Left     int     `json:"left"`
	Uploads  int     `json:"cancelled_uploads"`
	Slow     int     `json:"slow"` // of the complete ones
	Failed   int     `json:"failed"`
	Error    string  `json:"error,omitempty"` // the first one

	Start, Middle, End Gauges
}

// Run tries a server: a fifth of the time to warm up, the rest between three looks at what it holds.
func (s *Soak) Run(ctx context.Context, t *Target) (*Soaked, error) {
	if s.Clients < 1 || s.Clients > 10000 || s.Time <= 0 {
		return nil, fmt.Errorf("%d clients for %v: want 1 to 10000, and some time", s.Clients, s.Time)
	}
	if err := s.Workload.check(); err != nil {
		return nil, err
	}
	if err := t.Find(ctx); err != nil {
		return nil, err
	}
	o := Options{Workload: s.Workload}
	if err := o.calibrate(ctx, []*Target{t}); err != nil {
		return nil, err
	}
	s.Workload = o.Workload
	r := &Soaked{Seconds: s.Time.Seconds()}
	for i, part := range []struct {
		name string
		long time.Duration
		held *Gauges
	}{{"start", s.Time / 5, &r.Start}, {"middle", s.Time * 2 / 5, &r.Middle}, {"end", s.Time * 2 / 5, &r.End}} {
		s.drive(ctx, t, part.long, uint64(i+1), r)
		g, err := settle(ctx, t)
		if err != nil {
			return r, err
		}
		if *part.held = g; s.Progress != nil {
			s.Progress(part.name + ": " + g.String())
		}
	}
	return r, nil
}

// drive has all clients ask again and again for some time. Requests under way then are finished.
func (s *Soak) drive(ctx context.Context, t *Target, long time.Duration, part uint64, r *Soaked) {
	over, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	for c := range s.Clients {
		group.Go(func() {
			x := rand.New(rand.NewPCG(s.Seed, part<<32|uint64(c)))
			for i := uint64(0); over.Err() == nil; i++ {
				ask := s.requests(part<<40|uint64(c)<<20|i, 1)[0]
				kind := x.Float64()
				var one Sample
				upload, slow := kind < s.Uploads, kind >= 1-s.Slow
				switch {
				case upload:
					one = t.upload(ctx, &s.Workload, ask)
				case slow:
					one = t.ask(ctx, &s.Workload, ask, func() {
						time.Sleep(time.Duration(20+x.IntN(200)) * time.Millisecond)
					})
				default:
					one = t.ask(ctx, &s.Workload, ask, nil)
				}
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				r.count(&one, upload, slow)
				mu.Unlock()
			}
		})
	}
	group.Wait()
}

func (r *Soaked) count(s *Sample, upload, slow bool) {
	switch {
	case s.Error != "":
		if r.Failed++; r.Error == "" {
			r.Error = s.Error
		}
	case upload:
		r.Uploads++
	case s.Left:
		r.Left++
	default:
		r.Complete++
		if slow {
			r.Slow++
		}
	}
}

// upload sends the first half of a request's body, and leaves.
func (t *Target) upload(ctx context.Context, w *Workload, r Request) (s Sample) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	path, body := t.body(w, r)
	from, to := io.Pipe()
	var group sync.WaitGroup
	group.Go(func() {
		_, err := to.Write(body[:len(body)/2])
		if err == nil {
			time.Sleep(50 * time.Millisecond) // what was sent arrives
		}
		leave()
		to.CloseWithError(context.Canceled)
	})
	a, err := t.post(ctx, path, from, len(body))
	from.Close()
	group.Wait()
	if err == nil {
		a.Body.Close()
		s.Error = "half a request was answered"
	} else if !errors.Is(err, context.Canceled) {
		s.Error = err.Error()
	}
	s.Left = true
	return s
}
