package schedule

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/kv"
)

// desk drives a schedule without goroutines: a test adds works, and each step computes all of its rows at once.
type desk struct {
	t    *testing.T
	s    Schedule
	pool *kv.Pool
	plan *Plan
	name map[*Sequence]string
}

// newDesk returns a desk whose pool has room for so many pages of 64 positions.
func newDesk(t *testing.T, pages int, o Options) *desk {
	d := &desk{t: t, pool: kv.NewPool(kv.Options{Classes: []kv.Class{{Kind: kv.Pages}}, Context: 512, Chunk: 256}),
		name: map[*Sequence]string{}}
	d.pool.Bound(int64(pages), []int64{1})
	if o.Outputs == 0 {
		o.Outputs = o.Rows
	}
	d.s.Options = o
	d.plan = d.s.NewPlan()
	return d
}

// sequence returns an empty sequence of a plan.
func (d *desk) sequence(name string, c Caller, p *Plan) *Sequence {
	q := &Sequence{Caller: c, Pages: d.pool.NewSequence(), Plan: p, Resume: func() {}}
	d.name[q] = name
	return q
}

// ask adds a work of n tokens behind the first from of q.
func (d *desk) ask(q *Sequence, from, n int) *Work {
	w := &Work{Seq: q, From: from, Tokens: n, Wanted: 1}
	d.s.Add(w)
	return w
}

// want expects a step, as "a:64 b:1", and computes it. An empty step is "".
func (d *desk) want(patient bool, step string) {
	d.t.Helper()
	batch := slices.Clone(d.s.Next(d.s.Rows, patient))
	var got []string
	for _, w := range batch {
		got = append(got, fmt.Sprintf("%s:%d", d.name[w.Seq], w.Rows))
		end := w.At + w.Rows
		w.Seq.Pages.Commit(make([]int32, end))
		d.s.Settle(w, end)
		if !w.Unfinished(end) {
			d.s.Done(w)
		}
	}
	if text := strings.Join(got, " "); text != step {
		d.t.Fatalf("step %d is %q, want %q", d.s.Steps, text, step)
	}
}

// TestMixedSteps: sequences that decode have their rows first, and prompts share the rest.
func TestMixedSteps(t *testing.T) {
	d := newDesk(t, 100, Options{Rows: 64})
	a, b := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, d.plan)
	d.ask(a, 0, 100)
	d.want(true, "a:64")
	d.ask(b, 0, 70)
	d.want(true, "a:36 b:28")
	d.ask(a, 100, 1)
	d.want(true, "a:1 b:42")
	if !d.s.Awaits() { // nobody has work
		t.Error("a schedule without works does not wait")
	}
	d.ask(b, 70, 1)
	if d.want(true, ""); !d.s.Awaits() {
		t.Error("the step does not wait for a")
	}
	d.plan.Forget()
	d.want(true, "b:1")
	d.s.Leave(a)
	d.ask(b, 71, 1)
	d.want(true, "b:1")
}

// TestOrder: urgent works go first, then keys with the fewest tokens, then the work that came first.
func TestOrder(t *testing.T) {
	d := newDesk(t, 100, Options{Rows: 8, Parallel: 1})
	for i, c := range []Caller{{Key: "x"}, {Key: "x"}, {Key: "y"}, {Key: "y", Priority: 1}} {
		d.ask(d.sequence(string(rune('a'+i)), c, d.plan), 0, 8)
	}
	leave := func() {
		for q := range d.name {
			d.s.Leave(q)
		}
	}
	for _, step := range []string{"d:8", "a:8", "b:8", "c:8"} {
		d.want(true, step)
		leave()
	}
	d.ask(d.sequence("e", Caller{Key: "x"}, d.plan), 0, 32)
	d.ask(d.sequence("f", Caller{Key: "x"}, d.plan), 0, 8)
	d.ask(d.sequence("g", Caller{Key: "z"}, d.plan), 0, 8) // begins with as much as the key that had the least
	for _, step := range []string{"e:8", "e:8", "e:8", "e:8", "g:8", "f:8"} {
		d.want(true, step)
		if step != "e:8" || d.s.Ended == 5 {
			leave()
		}
	}
}

// TestRoom: a work without room waits while sequences keep theirs. The sequence that came first takes the room of later
// ones, and an urgent one that of all.
func TestRoom(t *testing.T) {
	d := newDesk(t, 4, Options{Rows: 64})
	a, b, c := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, d.plan), d.sequence("c", Caller{Priority: 1}, d.plan)
	d.ask(a, 0, 64)
	d.want(true, "a:64")
	d.ask(a, 64, 64)
	d.want(true, "a:64")
	d.plan.Forget()
	d.ask(b, 0, 190)
	d.want(true, "")      // a keeps its two pages
	d.want(false, "b:64") // and loses them
	if a.Pages.Pages() != 0 {
		t.Error("an idle sequence kept its pages")
	}
	d.ask(c, 0, 256)
	d.want(true, "c:64")
	if b.Pages.Pages() != 0 {
		t.Error("a lower sequence kept its pages")
	}
	for range 3 {
		d.want(true, "c:64")
	}
	d.s.Leave(c)
	d.want(true, "b:64") // computed again from its beginning
	d.want(true, "b:64")
	d.want(true, "b:62")
}

// TestLive: of two sequences that do not fit together, the first goes on, and the other comes next.
func TestLive(t *testing.T) {
	d := newDesk(t, 3, Options{Rows: 64})
	a, b := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, d.plan)
	d.ask(a, 0, 64)
	d.ask(b, 0, 64)
	d.want(true, "a:64")
	d.want(true, "")
	d.plan.Forget()
	d.want(true, "b:64")
	for i, n := range []int{64, 64} {
		d.plan.Forget()
		d.ask(a, 64*(i+1), n)
		d.want(true, "a:64")
	}
	if b.Pages.Pages() != 0 {
		t.Error("the sequence that came later kept its pages")
	}
	d.ask(b, 64, 1)
	d.plan.Forget()
	d.want(true, "")
	d.s.Leave(a)
	d.want(true, "b:64")
	d.want(true, "b:1")
}

// TestPlans: steps of two plans alternate. A plan does not wait for the sequences of another's step.
func TestPlans(t *testing.T) {
	d := newDesk(t, 100, Options{Rows: 8})
	other := d.s.NewPlan()
	a, b := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, other)
	d.ask(a, 0, 8)
	d.ask(b, 0, 24)
	for i := range 3 {
		d.want(true, "a:8")
		d.want(true, "b:8")
		if i < 2 {
			d.ask(a, 8*(i+1), 8)
		}
	}
	d.ask(a, 24, 8)
	d.ask(b, 24, 1)
	d.plan.Forget()
	other.Forget()
	b.Priority = 1
	d.want(true, "b:1")
	d.want(true, "a:8")
}

// TestPatience: a sequence that misses sixteen steps keeps no place, and begins behind others.
func TestPatience(t *testing.T) {
	d := newDesk(t, 100, Options{Rows: 8, Parallel: 1})
	a, b := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, d.plan)
	d.ask(a, 0, 4)
	d.want(true, "a:4")
	d.ask(b, 0, 4)
	d.plan.Forget()
	if _, running := d.s.Count(); running != 1 {
		t.Errorf("%d sequences run", running)
	}
	d.want(true, "") // a keeps the only place
	d.ask(a, 4, 2)
	d.want(true, "a:2")
	d.s.Drop(d.ask(a, 6, 1)) // its caller has left the queue, and not for good
	d.want(true, "")
	d.want(false, "b:4")
	if d.s.Ended != 4 {
		t.Errorf("%d works ended, want 4", d.s.Ended)
	}
	for i := range patience {
		d.ask(b, 4+i, 1)
		d.plan.Forget()
		d.want(true, "b:1")
	}
	if d.s.presence(a) != gone {
		t.Error("a sequence is waited for that has missed many steps")
	}
}

// TestDrafts: a step has the rows of drafts whose odds are worth a row's time, of all its sequences the best first, and
// none beside a prompt, or before the time of a step is known.
func TestDrafts(t *testing.T) {
	d := newDesk(t, 100, Options{Rows: 64})
	a, b := d.sequence("a", Caller{}, d.plan), d.sequence("b", Caller{}, d.plan)
	d.ask(a, 0, 10)
	d.ask(b, 0, 10)
	d.want(true, "a:10 b:10")
	at := 10
	next := func(step string, oddsA, oddsB []float32) {
		t.Helper()
		d.plan.Forget()
		d.ask(a, at, 1).Odds = oddsA
		d.ask(b, at, 1).Odds = oddsB
		d.want(true, step)
		at++
		a.Pages.Truncate(at)
		b.Pages.Truncate(at)
	}
	sure := []float32{0.95, 0.9, 0.85}
	next("a:1 b:1", sure, sure)
	for rows := range 10 {
		d.plan.Pace.Observe(rows+1, time.Duration(10+rows)*time.Millisecond) // a row more takes a tenth
	}
	next("a:4 b:4", sure, sure)
	d.plan.Pace.Tile = 5
	next("a:2 b:2", sure, sure) // a row more would change bits
	d.plan.Pace.Tile = 2
	next("a:4 b:4", sure, sure)
	next("a:3 b:1", []float32{0.9, 0.5, 0.01}, []float32{0.05})
	next("a:1 b:1", []float32{0.05}, nil)
	for rows := range 10 {
		for range 40 {
			d.plan.Pace.Observe(rows+1, time.Duration(10+10*rows)*time.Millisecond) // a row more takes a step
		}
	}
	next("a:1 b:1", sure, sure)
	c := d.sequence("c", Caller{}, d.plan)
	d.ask(c, 0, 5)
	next("a:1 b:1 c:5", sure, sure)
}

// TestPace: estimates lie between measured times, rise beyond them, and old times are forgotten.
func TestPace(t *testing.T) {
	var p Pace
	if p.estimate(1) != 0 {
		t.Error("a time before the first step")
	}
	p.Observe(1, time.Second)
	p.Observe(5, 3*time.Second)
	for rows, want := range map[int]float64{1: 1, 2: 1.5, 5: 3, 10: 4.5} {
		if got := p.estimate(rows); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d rows take %g s, want %g", rows, got, want)
		}
	}
	for range freshness {
		p.Observe(1, time.Second)
	}
	if got := p.estimate(5); got != 3 { // as extrapolated from 1 row
		t.Errorf("5 rows take %g s after the measured time is forgotten, want 3", got)
	}
	p.Observe(mostRows+1, time.Second)
}
