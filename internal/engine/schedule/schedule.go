// Package schedule chooses the steps of an engine: the tokens in the rows of the next step. A Schedule is a value
// without locks, goroutines and clocks. Its driver adds works, asks for the next step, then computes and settles the
// step.
//
//   - A step has at most Options.Rows rows, all of one plan. Decoding sequences come first, a row each.
//     Prompts share the rest, cut anywhere. Where sequences decode, a step is also bounded in work (Load).
//   - A work that finds no room for its keys and values waits. It takes the room of idle sequences and of lower
//     ones, whose tokens are computed again later. So the work that came first always goes on.
//   - Works of a higher priority go first. Of callers with different keys the first is the one whose key has had the
//     fewest tokens, and of one key the one that came first.
//   - A decoding sequence may offer a draft of its next tokens. The step has rows of drafts as long as they raise the
//     expected tokens a second, by their odds and the measured time of the plan's rows (Pace).
//   - A sequence whose work is done keeps its place for some steps, since its caller may come back with its next
//     token. A step waits for the sequences of the last step of its plan, until the driver forgets them.
//
// Files: next.go (the choice of a step), pace.go (drafts, the time of rows), schedule.go (works, who may come back,
// shares of keys), load.go (the cost of rows).
package schedule

import (
	"math"
	"slices"

	"github.com/karat-run/karat/internal/kv"
)

// patience is the number of steps missed before a sequence loses its place. Meanwhile its caller chooses a token, or
// writes to a slow reader.
const patience = 16

// Options bound the steps.
type Options struct {
	Rows     int  // rows of a step
	Outputs  int  // rows of a step with logits
	Parallel int  // maximum of running sequences; 0 is any number
	Entire   bool // a prompt is one step
	Load     Load // nil where all rows cost the same
}

// Schedule has the works waiting or running, and the sequences with pages.
type Schedule struct {
	Options
	Steps int // begun so far
	Ended int // works done, or given up

	queue    []*Work     // in no order
	listed   []*Sequence // sequences with pages, or running
	plans    []*Plan
	accounts map[string]*account
	arrivals int
	batch    []*Work // of the last step
}

// Plan is a compiled form of the graph. The rows of a step are of one plan.
type Plan struct {
	step    int // its last step
	awaited int // sequences of the last step that may come back and have not
	urgency int // highest priority of its works
	Pace    Pace
}

// Caller is a request's sender, and its urgency.
type Caller struct {
	Key      string // callers of different keys have equal shares
	Priority int    // the higher goes first
}

// presence says whether a sequence may come back.
type presence uint8

const (
	gone    presence = iota // the sequence keeps no place
	kept                    // the sequence keeps its place for some steps
	awaited                 // likewise, and the next step of its plan waits for the sequence
	here                    // the sequence has a work
)

// Sequence is a sequence in the schedule. The driver sets the exported fields.
type Sequence struct {
	Caller
	Pages  *kv.Sequence // of the first tokens; of all tokens unless the sequence was preempted
	Plan   *Plan
	Resume func() // takes the pages left of a preempted sequence

	work     *Work // nil where the sequence wants nothing
	account  *account
	presence presence
	arrival  int  // order of the first works
	step     int  // the last step with the sequence; 0 is none
	runs     bool // the sequence is admitted
	listed   bool
}

// Work is a run of tokens to compute for a sequence. The driver sets the first fields.
type Work struct {
	Seq    *Sequence
	From   int // position of the first token
	Tokens int
	Wanted int        // last tokens with wanted logits
	Odds   []float32  // of a draft behind the tokens: that each token and all before are right
	Whole  []kv.Group // runs of positions ending in one step, ascending
	// the draft is made as far as chosen, a token a pass of all such drafts in the step
	Guessed bool
	Of      any // the driver's own

	Rows    int   // of the running step; 0 if the work takes no part
	At      int   // position of the first of these rows
	Outputs int   // last of these rows that have logits, including rows of the draft
	Err     error // of the memory of keys and values

	given   int  // positions with outputs handed over
	charged bool // to the account of the key
	drafted int  // rows of the draft, while a step is chosen
}

// all returns the sequence's length once w is done.
func (w *Work) all() int { return w.From + w.Tokens }

// Unfinished reports whether tokens of w are left behind a position.
func (w *Work) Unfinished(at int) bool { return at < w.all() }

// NewPlan returns another plan of s.
func (s *Schedule) NewPlan() *Plan {
	p := &Plan{}
	s.plans = append(s.plans, p)
	return p
}

// Add queues w. It reports whether a step of w's plan need not wait any more.
func (s *Schedule) Add(w *Work) bool {
	q := w.Seq
	if s.presence(q) == gone {
		s.arrivals++
		q.runs, q.arrival = false, s.arrivals
	}
	last := q.unawait()
	q.work, q.presence, q.account = w, here, s.account(q.Key)
	q.account.works++
	w.given = w.From
	s.queue = append(s.queue, w)
	return last
}

// Works returns the works waiting or running, which the caller must not change.
func (s *Schedule) Works() []*Work { return s.queue }

// Drop takes a work not done off the queue. Its sequence keeps its place.
func (s *Schedule) Drop(w *Work) {
	i, last := slices.Index(s.queue, w), len(s.queue)-1
	s.queue[i], s.queue[last] = s.queue[last], nil
	s.queue = s.queue[:last]
	s.Ended++
	w.Rows = 0
	w.Seq.account.works--
	w.Seq.work, w.Seq.account, w.Seq.presence = nil, nil, kept
}

// Settle ends w's part in the step; its pages now hold end positions. w stays in the queue.
func (s *Schedule) Settle(w *Work, end int) {
	w.Rows, w.given = 0, max(w.given, end)
	w.Seq.step, w.Seq.account.step = s.Steps, s.Steps
}

// Done takes a work off the queue, with all tokens computed. The next step of the plan waits for its sequence.
func (s *Schedule) Done(w *Work) {
	s.Drop(w)
	w.Seq.presence = awaited
	w.Seq.Plan.awaited++
}

// Leave notes that q has no more work for now and keeps no place. It reports the same as Add.
func (s *Schedule) Leave(q *Sequence) bool {
	last := q.unawait()
	if q.work == nil {
		q.presence = gone
	}
	return last
}

// Remove frees q's pages, and forgets q. It reports the same as Add.
func (s *Schedule) Remove(q *Sequence) bool {
	last := s.Leave(q)
	q.Pages.Free()
	if q.listed {
		s.listed = slices.DeleteFunc(s.listed, func(x *Sequence) bool { return x == q })
	}
	q.listed, q.runs = false, false
	return last
}

// List notes that q may have pages, so that others can ask for them.
func (s *Schedule) List(q *Sequence) {
	if !q.listed {
		q.listed = true
		s.listed = append(s.listed, q)
	}
}

// Forget ends the waits of p's next step.
func (p *Plan) Forget() { p.awaited = 0 }

// Awaits reports whether all works are of plans waiting for sequences.
func (s *Schedule) Awaits() bool {
	for _, w := range s.queue {
		if w.Seq.Plan.awaited == 0 {
			return false
		}
	}
	return true
}

// Count returns the numbers of works waiting for their first step, and of running sequences.
func (s *Schedule) Count() (waiting, running int) {
	for _, w := range s.queue {
		if !w.Seq.runs {
			waiting++
		}
	}
	for _, q := range s.listed {
		if q.runs && !s.idle(q, true) {
			running++
		}
	}
	return waiting, running
}

// unawait notes that q has come or never will, and reports whether q was the last of its plan's last step.
func (q *Sequence) unawait() bool {
	p := q.Plan
	if q.presence != awaited || q.step != p.step || p.awaited == 0 {
		return false
	}
	q.presence = kept
	p.awaited--
	return p.awaited == 0
}

// presence returns q's presence now: a sequence after many missed steps is gone.
func (s *Schedule) presence(q *Sequence) presence {
	if q.work == nil && (q.step == 0 || s.Steps-q.step >= patience) {
		return gone
	}
	return q.presence
}

// idle reports whether nobody asks for q, and q keeps no place. Without patience, sequences keep none.
func (s *Schedule) idle(q *Sequence, patient bool) bool {
	return q.work == nil && (!patient || s.presence(q) == gone)
}

// account is the share of the callers of a key.
type account struct {
	served int64 // tokens, computed or promised
	works  int   // queued
	step   int   // last step with a work of the key
}

// account returns a key's account. The account of a key inactive for a while begins with the smallest share of all
// accounts: shares cannot be saved up.
func (s *Schedule) account(key string) *account {
	a := s.accounts[key]
	if a != nil && a.isActive(s.Steps) {
		return a
	}
	least := int64(math.MaxInt64)
	for k, x := range s.accounts {
		if x.isActive(s.Steps) {
			least = min(least, x.served)
		} else if k != key {
			delete(s.accounts, k)
		}
	}
	if a == nil {
		a = &account{}
		if s.accounts == nil {
			s.accounts = map[string]*account{}
		}
		s.accounts[key] = a
	}
	if least < math.MaxInt64 {
		a.served = max(a.served, least)
	}
	a.step = s.Steps
	return a
}

// isActive reports whether a has works, or had one not long before a step.
func (a *account) isActive(step int) bool { return a.works > 0 || step-a.step < patience }

// Served returns the tokens on a key's account.
func (s *Schedule) Served(key string) int64 { return s.account(key).served }

// Charge puts work beside the steps on a key's account, in tokens.
func (s *Schedule) Charge(key string, tokens int) { s.account(key).served += int64(tokens) }

// charge puts w's tokens on the account of its key, once.
func (w *Work) charge() {
	if !w.charged {
		w.charged = true
		w.Seq.account.served += int64(w.Tokens)
	}
}
