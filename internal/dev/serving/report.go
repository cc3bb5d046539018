package main

import (
	"math"
	"slices"
)

// Limits are what a request may take to count as good, in seconds; 0 is no limit.
type Limits struct {
	TTFT float64 `json:"ttft_s,omitempty"`
	TPOT float64 `json:"tpot_s,omitempty"`
	E2E  float64 `json:"e2e_s,omitempty"`
}

// Report is what Run measured.
type Report struct {
	Servers []Server `json:"servers"`
	Options Settings `json:"options"`
	Rows    []*Row   `json:"rows"` // by level, the servers of one after another
}

// Server is one of those measured. The second is the peer.
type Server struct {
	URL   string `json:"url"`
	Model string `json:"model"`
}

// Settings are the options that make the figures.
type Settings struct {
	Seed        uint64  `json:"seed"`
	Prompt      Range   `json:"prompt_tokens"`
	Answer      Range   `json:"answer_tokens"`
	Shared      int     `json:"shared_prefix_tokens"`
	Abort       float64 `json:"abort_share"`
	Chat        bool    `json:"chat"`
	Temperature float64 `json:"temperature"`
	PerWord     float64 `json:"tokens_per_word"`
	Rounds      int     `json:"rounds"`
	Limits      Limits  `json:"goodput_limits"`
}

func (o *Options) settings() Settings {
	return Settings{o.Seed, o.Prompt, o.Answer, o.Shared, o.Abort, o.Chat, o.Temperature, o.perWord, o.Rounds, o.Limits}
}

// Row is a server at a level, all rounds together. Rates are of a second, latencies are seconds.
type Row struct {
	Server   string  `json:"server"`
	Level    Level   `json:"level"`
	Complete int     `json:"complete"`
	Aborted  int     `json:"aborted"` // by the client, as --abort wants it
	Failed   int     `json:"failed"`
	Error    string  `json:"error,omitempty"` // the first one
	Seconds  float64 `json:"seconds"`         // of all rounds
	Prompt   int     `json:"prompt_tokens"`
	Cached   int     `json:"cached_tokens"` // of the prompts', as the server says
	Answer   int     `json:"completion_tokens"`
	Requests float64 `json:"requests_per_s"`
	Goodput  float64 `json:"goodput_per_s"` // requests within the limits; all, if there are none
	Tokens   float64 `json:"tokens_per_s"`  // of answers
	TTFT     Spread  `json:"ttft_s"`
	ITL      Spread  `json:"itl_s"`
	TPOT     Spread  `json:"tpot_s"`
	E2E      Spread  `json:"e2e_s"`
	Verified int     `json:"verified"` // requests sent again alone
	Differ   int     `json:"differ"`   // of those, the ones whose answer was another
	Ratios   *Ratios `json:"ratios,omitempty"`

	Samples []Sample `json:"samples"`
	rounds  []round
	good    int
}

// Spread is how values lie. A percentile between two values is interpolated, as numpy does.
type Spread struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
}

// Ratios are those of the first server to its peer, of the rounds: the peer's figure is 1.
type Ratios struct {
	Rounds int   `json:"rounds"` // that both have
	Tokens Ratio `json:"tokens_per_s"`
	TTFT   Ratio `json:"ttft_mean"`
	ITL    Ratio `json:"itl_p99"`
}

// Ratio is the median of some ratios, and the extremes; 0 where nothing could be compared.
type Ratio struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// round is what the ratios are of.
type round struct{ tokens, ttft, itl float64 }

// add counts the samples of a round that took some seconds.
func (r *Row) add(samples []Sample, took float64, limits Limits) {
	var answers int
	var ttft, itl []float64
	for i := range samples {
		s := &samples[i]
		switch {
		case s.Error != "":
			if r.Failed++; r.Error == "" {
				r.Error = s.Error
			}
			continue
		case s.Left:
			r.Aborted++
			continue
		}
		r.Complete++
		r.Prompt, r.Cached, r.Answer = r.Prompt+s.Prompt, r.Cached+s.Cached, r.Answer+s.Answer
		answers += s.Answer
		ttft, itl = append(ttft, s.TTFT), append(itl, s.ITL...)
		if limits.hold(s) {
			r.good++
		}
	}
	r.Seconds += took
	r.Samples = append(r.Samples, samples...)
	r.rounds = append(r.rounds, round{float64(answers) / took, spread(ttft).Mean, spread(itl).P99})
}

// perToken is the time of a token after the first; false for an answer of one.
func (s *Sample) perToken() (float64, bool) {
	if s.Answer < 2 {
		return 0, false
	}
	return (s.E2E - s.TTFT) / float64(s.Answer-1), true
}

func (l Limits) hold(s *Sample) bool {
	tpot, _ := s.perToken()
	within := func(x, limit float64) bool { return limit == 0 || x <= limit }
	return within(s.TTFT, l.TTFT) && within(tpot, l.TPOT) && within(s.E2E, l.E2E)
}

// summarize computes the figures of all rounds.
func (r *Row) summarize() {
	var ttft, itl, tpot, e2e []float64
	for i := range r.Samples {
		s := &r.Samples[i]
		if !s.complete() {
			continue
		}
		ttft, itl, e2e = append(ttft, s.TTFT), append(itl, s.ITL...), append(e2e, s.E2E)
		if x, ok := s.perToken(); ok {
			tpot = append(tpot, x)
		}
	}
	r.TTFT, r.ITL, r.TPOT, r.E2E = spread(ttft), spread(itl), spread(tpot), spread(e2e)
	if r.Seconds > 0 {
		r.Requests, r.Goodput, r.Tokens = float64(r.Complete)/r.Seconds, float64(r.good)/r.Seconds,
			float64(r.Answer)/r.Seconds
	}
}

// compare puts the ratios into the rows of the first server.
func (r *Report) compare() {
	if len(r.Servers) != 2 {
		return
	}
	for i := 0; i+1 < len(r.Rows); i += 2 {
		own, peer := r.Rows[i].rounds, r.Rows[i+1].rounds
		n := min(len(own), len(peer))
		of := func(figure func(round) float64) Ratio {
			var all []float64
			for k := range n {
				if p := figure(peer[k]); p > 0 {
					all = append(all, figure(own[k])/p)
				}
			}
			if len(all) == 0 {
				return Ratio{}
			}
			return Ratio{spread(all).P50, slices.Min(all), slices.Max(all)}
		}
		r.Rows[i].Ratios = &Ratios{n, of(func(x round) float64 { return x.tokens }),
			of(func(x round) float64 { return x.ttft }), of(func(x round) float64 { return x.itl })}
	}
}

// Differ is how many answers of the first server were others when asked again.
func (r *Report) Differ() (n int) {
	for _, row := range r.Rows {
		if row.Server == r.Servers[0].URL {
			n += row.Differ
		}
	}
	return n
}

// Failed is how many requests the servers did not answer.
func (r *Report) Failed() (n int) {
	for _, row := range r.Rows {
		n += row.Failed
	}
	return n
}

func spread(x []float64) (s Spread) {
	if len(x) == 0 {
		return s
	}
	sorted := slices.Sorted(slices.Values(x))
	for _, v := range sorted {
		s.Mean += v / float64(len(sorted))
	}
	at := func(share float64) float64 {
		place := share * float64(len(sorted)-1)
		i := int(place)
		return sorted[i] + (place-math.Floor(place))*(sorted[min(i+1, len(sorted)-1)]-sorted[i])
	}
	s.P50, s.P90, s.P99 = at(.5), at(.9), at(.99)
	return s
}
