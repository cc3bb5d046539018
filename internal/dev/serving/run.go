package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Level is how much load there is: clients that each ask again when they have their answer, or requests that arrive
// at random times, whatever the server does.
type Level struct {
	Clients int     `json:"clients,omitempty"`
	Rate    float64 `json:"rate,omitempty"` // requests a second
}

// Options choose the measurements.
type Options struct {
	Workload
	Levels   []Level
	Requests int // of a level; 0: four for each client, and at least 32
	Rounds   int // of each level and server, in turns
	Verify   int // requests of each round that are sent again alone, to compare the answers
	Limits   Limits
	Progress func(string)
}

// Measure measures targets in turns: the first one, and its peer if there is one. An error of ctx comes with
// a report of the rounds that were whole.
func Measure(ctx context.Context, targets []*Target, o Options) (*Report, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := t.Find(ctx); err != nil {
			return nil, err
		}
	}
	if err := o.calibrate(ctx, targets); err != nil {
		return nil, err
	}
	r := &Report{Options: o.settings()}
	for _, t := range targets {
		r.Servers = append(r.Servers, Server{URL: t.URL, Model: t.Model})
	}
	for i, level := range o.Levels {
		rows, err := o.level(ctx, targets, i, level)
		r.Rows = append(r.Rows, rows...)
		if err != nil {
			r.compare()
			return r, err
		}
	}
	r.compare()
	return r, nil
}

func (o *Options) check() error {
	if len(o.Levels) == 0 || o.Rounds < 1 || o.Requests < 0 || o.Verify < 0 {
		return errors.New("nothing to measure: want a level, and one round or more")
	}
	for _, l := range o.Levels {
		if l.Clients < 0 || l.Clients > 10000 || !(l.Rate >= 0 && l.Rate <= 1e6) || (l.Clients > 0) == (l.Rate > 0) {
			return fmt.Errorf("%d clients, %g requests a second: want 1 to 10000 of the one, or more than 0 of "+
				"the other", l.Clients, l.Rate)
		}
	}
	return o.Workload.check()
}

// sent is how many requests a round of a level has.
func (o *Options) sent(l Level) int {
	if o.Requests > 0 {
		return o.Requests
	}
	return max(32, 4*l.Clients)
}

// calibrate asks each server something, which warms it up. The first says how many tokens a word has: both get the same
// requests.
func (o *Options) calibrate(ctx context.Context, targets []*Target) error {
	const n = 64
	text := strings.Join(words[:n/2], " ")
	for i, t := range targets {
		for _, text := range []string{text, text + " " + text} { // the difference is without what a template adds
			s := t.ask(ctx, &o.Workload, Request{Prompt: text, Answer: 1}, nil)
			if s.Error != "" {
				return fmt.Errorf("%s: %s", t.URL, s.Error)
			}
			if i == 0 {
				o.perWord = float64(s.Prompt) - o.perWord
			}
		}
		if i == 0 {
			o.perWord = max(o.perWord, 1) / (n / 2)
		}
	}
	return nil
}

// level measures one of them, all servers in turns.
func (o *Options) level(ctx context.Context, targets []*Target, i int, l Level) ([]*Row, error) {
	rows := make([]*Row, len(targets))
	for k, t := range targets {
		rows[k] = &Row{Server: t.URL, Level: l}
	}
	var failed error
rounds:
	for round := range o.Rounds {
		requests := o.requests(uint64(i)<<32|uint64(round), o.sent(l))
		for k := range targets {
			k = (k + round) % len(targets) // who is first takes turns
			if o.Progress != nil {
				o.Progress(fmt.Sprintf("%s: %s, round %d of %d", targets[k].URL, l, round+1, o.Rounds))
			}
			samples, took := o.send(ctx, targets[k], l, requests)
			if err := ctx.Err(); err != nil {
				failed = err
				break rounds
			}
			rows[k].add(samples, took, o.Limits)
			failed = errors.Join(failed, o.verify(ctx, targets[k], rows[k], requests, samples))
		}
	}
	for _, r := range rows {
		if len(r.rounds) == 0 {
			return nil, failed
		}
		r.summarize()
	}
	return rows, failed
}

// send sends requests at a level, and returns what became of each, and the seconds from the first one's start to the
// last one's end.
func (o *Options) send(ctx context.Context, t *Target, l Level, requests []Request) ([]Sample, float64) {
	samples := make([]Sample, len(requests))
	start := time.Now()
	var group sync.WaitGroup
	if l.Rate > 0 {
		o.open(ctx, l.Rate, len(requests), func(i int) {
			group.Go(func() { samples[i] = t.ask(ctx, &o.Workload, requests[i], nil) })
		})
	} else {
		var next atomic.Int64
		for range l.Clients {
			group.Go(func() {
				for ctx.Err() == nil {
					i := int(next.Add(1)) - 1
					if i >= len(requests) {
						return
					}
					samples[i] = t.ask(ctx, &o.Workload, requests[i], nil)
				}
			})
		}
	}
	group.Wait()
	return samples, time.Since(start).Seconds()
}

// open starts n requests at random times: the gaps are exponential, so that arrivals are a Poisson process.
func (o *Options) open(ctx context.Context, rate float64, n int, start func(i int)) {
	x := rand.New(rand.NewPCG(o.Seed, ^uint64(0)))
	due := time.Now()
	for i := range n {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		start(i)
		due = due.Add(time.Duration(x.ExpFloat64() / rate * float64(time.Second)))
	}
}

// verify sends some of the requests again, alone, and compares the answers.
func (o *Options) verify(ctx context.Context, t *Target, row *Row, requests []Request, samples []Sample) error {
	left := o.Verify
	for i, s := range samples {
		if left == 0 || !s.complete() {
			continue
		}
		left--
		again := t.ask(ctx, &o.Workload, requests[i], nil)
		if err := ctx.Err(); err != nil {
			return err
		}
		row.Verified++
		if again.Error != "" || again.Hash != s.Hash {
			row.Differ++
		}
	}
	return nil
}

func (l Level) String() string {
	if l.Rate > 0 {
		return fmt.Sprintf("%g requests/s", l.Rate)
	}
	if l.Clients == 1 {
		return "1 client"
	}
	return fmt.Sprintf("%d clients", l.Clients)
}
