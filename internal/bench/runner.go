package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/engine"
)

// runner measures an engine.
type runner struct {
	profiled backend.Profiled // nil where threads are not measured
	metered  backend.Metered  // nil where the processor computes
	read     float64          // reads, in bytes a second
	engine   *engine.Engine
	file     string
	tokens   []int32
	cost     cost
	threads  int
	o        Options
	limits   *limits // nil without
	limit    Limit
}

func (m *runner) computeFirst(ctx context.Context) error {
	s := m.engine.NewSequence()
	defer s.Close()
	_, err := s.Feed(ctx, m.tokens[:1], 1)
	return err
}

func (m *runner) tests(ctx context.Context, add func(Result)) error {
	for _, depth := range m.o.Depths {
		for _, parallel := range m.o.Parallel {
			for i, n := range slices.Concat(m.o.Prompts, m.o.Tokens) {
				t := Result{Threads: m.threads, Depth: depth, Parallel: parallel}
				if i < len(m.o.Prompts) {
					t.Prompt, t.Test = n, fmt.Sprintf("pp%d", n)
				} else {
					t.Tokens, t.Test, t.Depth = n, fmt.Sprintf("tg%d", n), depth+m.o.Prompt.length()
				}
				if t.Depth > 0 {
					t.Test += fmt.Sprintf(" @ d%d", t.Depth)
				}
				if held := m.engine.Holds(t.Depth + n); held < parallel {
					t.Holds = held
				}
				if err := m.test(ctx, &t); err != nil {
					return err
				}
				add(t)
			}
			for _, n := range m.o.Arrive {
				t := Result{Threads: m.threads, Depth: depth, Parallel: parallel, Test: fmt.Sprintf("arrive%d", n)}
				if depth > 0 {
					t.Test += fmt.Sprintf(" @ d%d", depth)
				}
				if err := m.arrivals(ctx, &t, n); err != nil {
					return err
				}
				add(t)
			}
			if !m.o.Drafts {
				continue
			}
			for _, x := range scripts(m.engine.VocabSize()) {
				t := Result{Threads: m.threads, Parallel: parallel, Prompt: len(x.prompt), Tokens: x.length(),
					Test: "draft " + x.name}
				if err := m.drafts(ctx, &t, x); err != nil {
					return err
				}
				add(t)
			}
		}
	}
	return nil
}

// test runs t, once more than is counted, in turns with the peer: either goes first in every second run.
func (m *runner) test(ctx context.Context, t *Result) error {
	m.say(t.name())
	start := time.Now()
	all, err := m.sequences(ctx, t)
	defer func() {
		for _, s := range all {
			s.Close()
		}
	}()
	if err != nil {
		return err
	}
	if _, err := m.time(ctx, all, t); err != nil {
		return err
	}
	if m.o.Peer != nil {
		m.o.Peer.expect(time.Since(start))
	}
	if err := m.begin(); err != nil {
		return err
	}
	var shares []float64
	ours := func() error {
		seconds, share, err := m.run(ctx, all, t)
		t.Samples, shares = append(t.Samples, float64(t.Parallel*(t.Prompt+t.Tokens))/seconds), append(shares, share)
		return err
	}
	theirs := func() error {
		if m.o.Peer == nil || !m.o.Peer.can(t) {
			return nil
		}
		busy, err := measureOthers(func() error {
			rate, err := m.o.Peer.sample(ctx, m.file, t)
			t.Peer = append(t.Peer, rate)
			return err
		})
		t.Others = max(t.Others, busy)
		return err
	}
	if err := m.turns(ours, theirs); err != nil {
		return err
	}
	t.Median, t.Stddev = spread(t.Samples)
	t.PeerRate, _ = spread(t.Peer)
	t.Ratio = ratio(t.Samples, t.Peer)
	t.Share, _ = spread(shares)
	if t.Ratio != nil {
		t.PeerShare, _ = spread(ratio(shares, t.Ratio.Samples).Samples)
	}
	if t.Tokens > 0 && t.Parallel == 1 {
		t.GBs = float64(m.cost.weights) * t.Median / 1e9
	}
	t.Step = m.step(t)
	return m.profile(ctx, all, t)
}

// profile runs t once more, if the profile is asked for.
func (m *runner) profile(ctx context.Context, all []*engine.Sequence, t *Result) error {
	if !m.o.Profile || m.profiled == nil {
		return nil
	}
	m.profiled.Measure(true)
	_, err := m.time(ctx, all, t)
	t.Profile = m.profiled.Measure(false)
	return err
}

// begin begins to count steps.
func (m *runner) begin() (err error) {
	if m.metered == nil {
		return nil
	}
	if m.read == 0 {
		m.read, err = m.metered.Bandwidth()
	}
	m.metered.Meter()
	return err
}

// step returns the costs of a step of t; nil where the processor computes.
func (m *runner) step(t *Result) *Step {
	if m.metered == nil {
		return nil
	}
	var seconds float64
	for _, rate := range t.Samples {
		seconds += float64(t.Parallel*(t.Prompt+t.Tokens)) / rate
	}
	x := m.metered.Meter()
	if x.Steps == 0 || x.Device == 0 {
		return nil
	}
	n := float64(x.Steps)
	s := &Step{Dispatches: float64(x.Dispatches) / n, Device: x.Device.Seconds() / n,
		Host: (seconds - x.Device.Seconds()) / n}
	if t.GBs > 0 {
		s.Read = t.GBs * 1e9 / m.read
	}
	return s
}

func (m *runner) say(what string) {
	if m.o.Progress != nil {
		m.o.Progress(what)
	}
}

// turns runs both as often as Options say.
func (m *runner) turns(ours, theirs func() error) error {
	for i := range m.o.Repeat {
		first, second := ours, theirs
		if i%2 == 1 {
			first, second = theirs, ours
		}
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
	}
	return nil
}

// sequences makes the sequences of t, at its depth. The tokens are equal, without shared keys and values:
// shared values would be read once for all.
func (m *runner) sequences(ctx context.Context, t *Result) (all []*engine.Sequence, err error) {
	for i := range t.Parallel {
		s := m.engine.NewSequence()
		all = append(all, s)
		s.Prefix(nil, strconv.Itoa(i))
		if err := m.deepen(ctx, s, t.Depth); err != nil {
			return all, err
		}
	}
	return all, nil
}

// deepen extends s to the first depth tokens.
func (m *runner) deepen(ctx context.Context, s *engine.Sequence, depth int) error {
	n := s.Rewind(m.tokens[:depth+1])
	if n == depth {
		return nil
	}
	_, err := s.Feed(ctx, m.tokens[n:depth], 1)
	return err
}

// run makes a run of t, and computes its share of the machine's limits just before and after: the least
// possible time by the time taken.
func (m *runner) run(ctx context.Context, all []*engine.Sequence, t *Result) (seconds, share float64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	if m.limits != nil {
		m.limits.measure(&m.limit)
	}
	busy, err := measureOthers(func() error {
		seconds, err = m.time(ctx, all, t)
		return err
	})
	t.Others = max(t.Others, busy)
	if m.limits == nil {
		return seconds, 0, err
	}
	m.limits.measure(&m.limit)
	both := func(x []float64) float64 { return (x[len(x)-2] + x[len(x)-1]) / 2 * 1e9 }
	memory, compute := m.cost.seconds(t, both(m.limit.Read), both(m.limit.Ints), both(m.limit.Floats))
	switch {
	case compute > memory:
		t.Bound = "compute"
	case memory > 0:
		t.Bound = "memory"
	}
	return seconds, max(memory, compute) / seconds, err
}

// measureOthers runs f and returns the number of processors taken by other programs meanwhile: figures say
// little where others compute. For short runs, below the system's steps, the number is 0.
func measureOthers(f func() error) (processors float64, err error) {
	start, before := time.Now(), otherTime()
	err = f()
	seconds := time.Since(start).Seconds()
	if seconds < 0.1 {
		return 0, err
	}
	return max(0, otherTime()-before) / seconds, err
}

// processes measures whole processes, in turns, after an uncounted process of each.
func (m *runner) processes(ctx context.Context, l *Load) (peer string, err error) {
	m.say(fmt.Sprintf("first token, threads %d", m.threads))
	p := m.o.Peer
	ours := func() error {
		seconds, err := p.loadSelf(ctx, m.threads)
		l.Process = append(l.Process, seconds)
		return err
	}
	theirs := func() error {
		seconds, version, err := p.load(ctx, m.file, m.threads)
		l.Peer, peer = append(l.Peer, seconds), version
		return err
	}
	p.limit = 0
	start := time.Now()
	if err = ours(); err != nil {
		return "", err
	}
	p.expect(time.Since(start))
	if err = theirs(); err != nil {
		return "", err
	}
	l.Process, l.Peer = nil, nil
	err = m.turns(ours, theirs)
	l.Ratio = ratio(l.Peer, l.Process)
	return peer, err
}

// time returns the seconds of a run of all sequences at once.
func (m *runner) time(ctx context.Context, all []*engine.Sequence, t *Result) (float64, error) {
	for _, s := range all {
		if err := m.deepen(ctx, s, t.Depth); err != nil {
			return 0, err
		}
	}
	start, errs := time.Now(), make(chan error, len(all))
	for _, s := range all {
		go func() { errs <- m.feed(ctx, s, t) }()
	}
	var err error
	for range all {
		err = cmp.Or(err, <-errs)
	}
	return time.Since(start).Seconds(), err
}

// feed computes t's prompt or tokens of a sequence. Where the backend chooses tokens, the
// likeliest ones are generated as for text; else given ones are computed, none chosen.
func (m *runner) feed(ctx context.Context, s *engine.Sequence, t *Result) error {
	rest := m.tokens[t.Depth:]
	if m.engine.Chooses() {
		return follow(ctx, s, rest[:max(t.Prompt, 1)], max(t.Tokens, 1))
	}
	if t.Prompt > 0 {
		_, err := s.Feed(ctx, rest[:t.Prompt], 1)
		return err
	}
	for i := range t.Tokens {
		logits, err := s.Feed(ctx, rest[i:i+1], 1)
		if err != nil {
			return err
		}
		s.Reuse(logits[0])
	}
	return nil
}

// follow generates n tokens behind others.
func follow(ctx context.Context, s *engine.Sequence, tokens []int32, n int) error {
	for n > 0 {
		ids, err := s.Follow(ctx, tokens, n)
		if err != nil {
			return err
		}
		n -= len(ids)
		tokens = []int32{int32(ids[len(ids)-1])}
	}
	return nil
}
