package schedule

import "time"

const (
	// mostRows is the maximum rows of a step with drafts: beyond them products, not the weights' bytes, take the time.
	mostRows = 64

	// freshness is the number of steps after which a measured time counts no more.
	freshness = 256

	// leastGain is the least gain of drafts, in tokens a second, over the step without them.
	leastGain = 1.02
)

// Pace is the time of a plan's steps in which sequences decode, by the number of their rows, as measured. The zero
// value has measured nothing.
type Pace struct {
	Tile  int // least rows of a step with other bits, never reached by drafts; 0 is none
	steps int
	at    [mostRows + 1]mean
	guess mean    // of a pass for drafts (Work.Guessed)
	order []*Work // of the rows of drafts, while a step is chosen
}

// mean is a measured time in seconds; at step 0 there is none.
type mean struct {
	time float64
	step int
}

// Observe notes the time of a step of so many rows.
func (p *Pace) Observe(rows int, took time.Duration) {
	p.steps++
	if rows > mostRows {
		return
	}
	p.note(&p.at[rows], took)
}

// ObserveGuess notes the time of a pass.
func (p *Pace) ObserveGuess(took time.Duration) { p.note(&p.guess, took) }

func (p *Pace) note(m *mean, took time.Duration) {
	t := took.Seconds()
	switch {
	case !m.isFresh(p.steps):
		m.time = t
	case t < m.time: // others on the machine make a step longer, never shorter
		m.time += (t - m.time) / 2
	default:
		m.time += (t - m.time) / 8
	}
	m.step = p.steps
}

func (p *Pace) isFresh(rows int) bool { return p.at[rows].isFresh(p.steps) }

func (m mean) isFresh(steps int) bool { return m.step > 0 && steps-m.step < freshness }

// estimate returns the time of a step of so many rows: measured, or between two measured numbers. Beyond the largest,
// a row more takes half of a row's share; a draft then finds out. It returns 0 where nothing is known.
func (p *Pace) estimate(rows int) float64 {
	low, high := rows, rows
	for low > 0 && !p.isFresh(low) {
		low--
	}
	for high <= mostRows && !p.isFresh(high) {
		high++
	}
	switch {
	case low == 0:
		return 0
	case low == rows:
		return p.at[low].time
	case high > mostRows:
		return p.at[low].time * (1 + float64(rows-low)/float64(2*low))
	}
	a, b := p.at[low].time, p.at[high].time
	return a + (b-a)*float64(rows-low)/float64(high-low)
}

// draft adds to a step the rows of drafts that raise the expected tokens a second, at most most. Each row has its odds
// of being right, and takes the time of a row more. A step with a prompt's rows has no drafts: most of its time is the
// prompt's.
func (p *Pace) draft(batch []*Work, most int) {
	rows := 0
	for _, w := range batch {
		if rows += w.Rows; w.Rows != 1 || w.Unfinished(w.At+1) {
			return
		}
	}
	limit := mostRows
	if rows < p.Tile {
		limit = min(limit, p.Tile-1)
	}
	if rows >= limit {
		return
	}
	now := p.estimate(rows)
	if now == 0 {
		return
	}
	best, passes, expected := 0, 0, float64(rows)
	value := leastGain * expected / now
	for n := 1; n <= min(most, limit-rows); n++ {
		w := likeliest(batch)
		if w == nil {
			break
		}
		expected += float64(w.Odds[w.drafted])
		w.drafted++
		if p.order = append(p.order, w); w.Guessed {
			passes = max(passes, w.drafted)
		}
		if v := expected / (p.estimate(rows+n) + float64(passes)*p.guess.time); v > value {
			best, value = n, v
		}
	}
	for i, w := range p.order {
		if i >= best {
			w.drafted--
		}
	}
	clear(p.order)
	p.order = p.order[:0]
	for _, w := range batch {
		if w.drafted > 0 && w.Seq.Pages.Grow(w.drafted) == nil { // without room the step goes without
			w.Rows, w.Outputs = w.Rows+w.drafted, w.Outputs+w.drafted
		}
		w.drafted = 0
	}
}

// likeliest returns the work of the step whose next row of a draft has the best odds, nil where no draft goes on.
func likeliest(batch []*Work) (best *Work) {
	for _, w := range batch {
		most := min(len(w.Odds), w.Seq.Pages.Droppable())
		if w.drafted < most && (best == nil || w.Odds[w.drafted] > best.Odds[best.drafted]) {
			best = w
		}
	}
	return best
}
