package schedule

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/kv"
)

// Next chooses the works of the next step and their rows, at most rows. All are of one plan: of the plans with the most
// urgent works, the plan with the oldest last step. A plan waiting for sequences has no step. After an empty step all
// works wait for room kept by sequences that may come back: without patience such sequences give way. A work with a
// full memory has an error, and is in no step.
func (s *Schedule) Next(rows int, patient bool) []*Work {
	s.batch = s.batch[:0]
	s.admit(patient)
	slices.SortFunc(s.queue, before)
	for _, p := range s.plans {
		p.urgency = math.MinInt
	}
	for _, w := range s.queue {
		w.Seq.Plan.urgency = max(w.Seq.Plan.urgency, w.Seq.Priority)
	}
	slices.SortFunc(s.plans, func(a, b *Plan) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), cmp.Compare(a.step, b.step))
	})
	for _, p := range s.plans {
		r := room{rows: rows, outputs: s.Outputs, patient: patient}
		hold := rowsHeld(s.queue, p)
		for _, w := range s.queue {
			if w.Seq.Plan == p && p.awaited == 0 && w.Seq.runs && r.rows > 0 && w.Err == nil &&
				(!w.decodes() || r.rows > hold) {
				s.take(w, &r)
			}
		}
		if len(s.batch) > 0 {
			p.Pace.draft(s.batch, min(r.rows, r.outputs))
			s.Steps++
			p.step = s.Steps
			break
		}
	}
	return s.batch
}

// rowsHeld returns the rows that decoding sequences leave to the first prompt of a plan: of a run of Whole, if the run
// comes next.
func rowsHeld(queue []*Work, p *Plan) int {
	for _, w := range queue {
		if at := int32(w.Seq.Pages.Len()); w.Seq.Plan == p && w.Seq.runs && !w.decodes() {
			for _, g := range w.Whole {
				if g.First <= at && at < g.End {
					return int(g.End - at)
				}
			}
			break
		}
	}
	return 0
}

// room is the rest of a step.
type room struct {
	rows, outputs int
	decoding      bool    // decoding sequences are in the step
	work          float64 // of the chosen rows
	patient       bool
}

// before orders the queue. Decoding sequences go first, in order of their last steps: so each has its turn even if
// sequences are more than rows.
func before(a, b *Work) int {
	urgent := cmp.Compare(b.Seq.Priority, a.Seq.Priority)
	came := cmp.Compare(a.Seq.arrival, b.Seq.arrival)
	switch x, y := a.decodes(), b.decodes(); {
	case x && y:
		return cmp.Or(urgent, cmp.Compare(a.Seq.step, b.Seq.step), came)
	case x:
		return -1
	case y:
		return 1
	}
	return cmp.Or(urgent, cmp.Compare(a.Seq.account.served, b.Seq.account.served), came)
}

// decodes reports whether w runs, and all of its tokens except one are computed.
func (w *Work) decodes() bool {
	n := w.Seq.Pages.Len()
	return w.Seq.runs && n > 0 && w.all()-n == 1
}

// admit lets works run while there is room, in their order. The first without room keeps later works from passing.
func (s *Schedule) admit(patient bool) {
	for {
		var first *Work
		for _, w := range s.queue {
			if !w.Seq.runs && (first == nil || before(w, first) < 0) {
				first = w
			}
		}
		if first == nil || !s.start(first, patient) {
			return
		}
	}
}

// start lets w's sequence run, if there is a place and room for all of its tokens.
func (s *Schedule) start(w *Work, patient bool) bool {
	q := w.Seq
	if !s.place(q, patient) {
		return false
	}
	q.Resume()
	s.List(q)
	for !q.Pages.Reserve(w.all()) {
		v := s.victim(q, false, patient)
		if v == nil {
			return false
		}
		s.preempt(v, nil)
	}
	q.runs = true
	w.charge()
	return true
}

// place reports whether another sequence may run, perhaps in place of a sequence of lower priority.
func (s *Schedule) place(q *Sequence, patient bool) bool {
	n, low := 0, q
	for _, v := range s.listed {
		if v.runs && !s.idle(v, patient) {
			if n++; v.below(low) {
				low = v
			}
		}
	}
	if s.Parallel == 0 || n < s.Parallel {
		return true
	}
	if low.Priority == q.Priority {
		return false
	}
	low.runs = false
	return true
}

// below reports whether q is to give way to t.
func (q *Sequence) below(t *Sequence) bool {
	if q.Priority != t.Priority {
		return q.Priority < t.Priority
	}
	return q.arrival > t.arrival
}

// take puts as many of w's rows into the step as there is room for, and pages.
func (s *Schedule) take(w *Work, r *room) {
	q, decodes := w.Seq, w.decodes()
	at := q.Pages.Len()
	n := s.share(w, min(w.all()-at, r.rows), r)
	first := max(w.all()-w.Wanted, w.given) // of the rows with wanted logits
	most := max(first-at, 0) + r.outputs
	if n = w.cut(at, min(n, most), min(r.rows, most)); n == 0 || s.Entire && n < w.all()-at {
		return
	}
	for err := q.Pages.Grow(n); err != nil; err = q.Pages.Grow(n) {
		if !errors.Is(err, kv.ErrFull) {
			w.Err = err // of the memory, which would fail again
			return
		}
		v := s.victim(q, true, r.patient)
		if v == nil {
			return // the work waits, and keeps its pages
		}
		s.preempt(v, r)
	}
	w.Rows, w.At, w.Outputs = n, at, max(0, at+n-max(first, at))
	r.rows, r.outputs = r.rows-n, r.outputs-w.Outputs
	r.work, r.decoding = r.work+s.Load.rows(at, n), r.decoding || decodes
	s.batch = append(s.batch, w)
	w.charge()
}

// cut returns the rows from a position on of n rows not ending within a run of Whole: fewer, or at most the most rows.
func (w *Work) cut(at, n, most int) int {
	for _, g := range w.Whole {
		if first, end := int(g.First)-at, int(g.End)-at; first < n && n < end {
			if n = first; n <= 0 {
				n = end
			}
			break
		}
	}
	if n > most {
		return 0
	}
	return n
}

// share returns how many of n rows w gets in a step with room r: all, unless others decode there.
func (s *Schedule) share(w *Work, n int, r *room) int {
	if !r.decoding || s.Entire || w.decodes() {
		return n
	}
	left := mostWork*float64(s.Rows) - r.work
	return min(n, max(s.Load.fit(w.Seq.Pages.Len(), n, left), s.Rows/leastShare, 1))
}

// victim returns the sequence to give its pages to q: the sequence idle for the longest time, or else the lowest. A
// running sequence gives way to a higher priority, and if q runs, to an earlier arrival. So the first arrival always
// goes on. A sequence waiting to run, with pages found, gives way to the sequence having its turn.
func (s *Schedule) victim(q *Sequence, runs, patient bool) (v *Sequence) {
	for _, x := range s.listed {
		lower := !x.runs || x.below(q) && (runs || x.Priority < q.Priority)
		switch idle := s.idle(x, patient); {
		case x == q, x.Pages.Pages() == 0, !idle && !lower:
		case v == nil, idle && !s.idle(v, patient), idle && x.step < v.step,
			!idle && !s.idle(v, patient) && x.below(v):
			v = x
		}
	}
	return v
}

// preempt gives v's pages back. Its tokens are computed again when v is admitted anew.
func (s *Schedule) preempt(v *Sequence, r *room) {
	if w := v.work; w != nil && w.Rows > 0 { // the step has chosen v
		r.rows, r.outputs = r.rows+w.Rows, r.outputs+w.Outputs
		r.work -= s.Load.rows(w.At, w.Rows)
		w.Rows = 0
		s.batch = slices.DeleteFunc(s.batch, func(x *Work) bool { return x == w })
	}
	v.Pages.Free()
	v.runs = false
}

// MakeRoom gives up the pages of a sequence without work, other than q, and reports whether there was one.
func (s *Schedule) MakeRoom(q *Sequence) bool {
	v := s.victim(q, false, true)
	if v == nil {
		v = s.victim(q, false, false)
	}
	if v != nil {
		s.preempt(v, nil)
	}
	return v != nil
}
