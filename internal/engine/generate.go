package engine

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"strings"

	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/sample"
)

// StopReason is the reason of a generation's end; it is empty before the last token.
type StopReason string

// The reasons.
const (
	StopEnd    StopReason = "end"    // the model ended its turn
	StopString StopReason = "stop"   // a stop string came up; the stop string and later text are not part of the text
	StopLength StopReason = "length" // the requested number of tokens was reached
)

// Request asks for tokens after a prompt.
type Request struct {
	Prompt  []int32
	Max     int                   // most tokens to generate; 0 generates none, negative is no limit
	Sample  sample.Options        //
	Stop    []string              // strings ending the text
	End     []int                 // ids ending the turn
	Logits  bool                  // hand over each token's logits
	Logprob bool                  // report each token's log-probability, which needs all logits
	Top     int                   // how many of the likeliest tokens to report, with their log-probabilities
	Decoder Decoder               // turns ids into text
	Grammar Grammar               // a grammar for the text; nil for any text
	Caller                        // the sender
	Draft   func() *draft.Drafter // makes proposals behind the prompt, verified several in a step; nil for none
	Force   func([]byte) []int32  // returns the likely tokens of a text that Grammar forces; for Draft
	Head    bool                  // drafts also come from the model's head, if the engine has one

	Mixed // the part of the prompt besides tokens
}

// Decoder turns a stream of ids into text, never half a character.
type Decoder interface {
	Write(id int) string
	Flush() string
}

// Grammar decides the tokens that may come next. It belongs to one request, and knows the tokens so far.
type Grammar interface {
	Mask() (*sample.Mask, error) // nil is any token
	Accept(id int) error
	Steps() int                               // of work since the last call
	Forced(most int) (text []byte, err error) // bytes with which every text goes on
}

// stepsPerToken is the work of a grammar counted as a token in its caller's share: about a millisecond's.
const stepsPerToken = 1 << 13

// Token is one generated token.
type Token struct {
	ID int
	// text of the token: empty while a character or stop string is undecided; the rest beside an error
	Text    string
	Logprob float64          // only if requested, or with Top
	Top     []sample.Logprob // the likeliest, likeliest first
	Logits  []float32        // [vocab], the basis of the choice
	Stop    StopReason       // set on the last token
	Stopped string           // the stop string of a StopString
}

// Generate feeds r's prompt, as far as the sequence does not hold the prompt already, and yields tokens until one of
// r's conditions, or an error, ends it: for example ErrFull before the context would overflow. With an error comes the
// undecided Text.
func (s *Sequence) Generate(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		text := stopper{stop: r.Stop}
		s.As(r.Caller)
		defer s.leave()
		if err := generate(ctx, s, r, &text, yield); err != nil {
			rest, _ := text.end(r.Decoder.Flush())
			yield(Token{Text: rest}, err)
		}
	}
}

func generate(ctx context.Context, s *Sequence, r Request, text *stopper, yield func(Token, error) bool) error {
	if len(r.Prompt) == 0 {
		return errors.New("the prompt has no tokens")
	}
	r.Sample.Tokens = s.plan.e.tokens
	sampler, err := sample.New(r.Sample)
	if err != nil {
		return err
	}
	history := make([]int, len(r.Prompt))
	for i, id := range r.Prompt {
		history[i] = int(id)
	}
	held, err := s.Mix(r.Prompt, r.Mixed, s.salt)
	if err != nil {
		return err
	}
	next, work := r.Prompt[held:], 0
	p, e := proposal{}, s.plan.e
	drafts := r.Draft != nil && !s.plan.taps && !e.entire
	for i := 0; r.Max < 0 || i < r.Max; {
		c := r.choice(sampler, i)
		c.odds, c.states, c.guessed = p.odds, drafts && r.Head && e.head != nil, p.guessed()
		all, err := s.next(ctx, next, c)
		if err != nil {
			return err
		}
		verified := len(all) - 1 - len(s.work.ahead)
		for j := range all {
			if j > 0 && (ctx.Err() != nil || s.closed) {
				s.cut(len(history) - 1)
				return cmp.Or(ctx.Err(), ErrClosed)
			}
			t, err := all[j].choose(sampler, history, &r)
			if r.Grammar != nil {
				work += r.Grammar.Steps()
				s.locked(func(e *Engine) { e.schedule.Charge(s.seat.Key, work/stepsPerToken) })
				work %= stepsPerToken
			}
			if !r.Logits {
				s.Reuse(all[j].logits)
			}
			var last bool
			if err == nil {
				t.finish(text, &r, i == r.Max-1)
				last = p.ends(t.ID, j, verified)
			}
			if err != nil || !yield(t, nil) || t.Stop != "" {
				s.cut(len(history))
				return err
			}
			history = append(history, t.ID)
			i++
			if last {
				s.cut(len(history) - 1)
				for _, x := range all[j+1:] {
					s.Reuse(x.logits)
				}
				break
			}
		}
		if drafts && p.drafter == nil { // no sooner than the first token, which thus comes as soon as without
			p.drafter = r.Draft()
			p.drafter.Guess(r.Head && e.head != nil)
			for _, id := range history[len(r.Prompt):] {
				p.drafter.Add(int32(id))
			}
		}
		p.force(&r)
		next = p.propose(history, r.Max-i-1)
	}
	return nil
}

// maxForced is the maximum of bytes of a text that a grammar forces.
const maxForced = 4 * draft.Most

// force tells the drafter the text that the request's grammar forces next.
func (p *proposal) force(r *Request) {
	if p.drafter == nil || r.Grammar == nil || r.Force == nil || p.drafter.Forced() {
		return
	}
	if text, err := r.Grammar.Forced(maxForced); err == nil && len(text) > 0 { // Mask meets the error again
		p.drafter.Force(r.Force(text))
	}
}

// choice returns how the token after i others is to be chosen.
func (r *Request) choice(s *sample.Sampler, i int) choice {
	switch {
	case r.Logits || r.Logprob || r.Top > 0 || r.Grammar != nil:
		return choice{}
	case r.Max < 0:
		return choice{top: s.Likeliest(), steps: math.MaxInt}
	}
	return choice{top: s.Likeliest(), steps: r.Max - i}
}

// choose returns the token after history, with the facts wanted by r.
func (b *basis) choose(s *sample.Sampler, history []int, r *Request) (t Token, err error) {
	if t.ID, err = b.sample(s, history, r.Grammar); err != nil {
		return Token{}, err
	}
	if r.Logprob || r.Top > 0 {
		of, top, err := sample.Logprobs(b.logits, []int{t.ID}, r.Top)
		if err != nil {
			return Token{}, err
		}
		t.Logprob, t.Top = of[0].Logprob, top
	}
	if r.Logits {
		t.Logits = b.logits
	}
	return t, nil
}

// finish sets the token's text, and the reason of a last token.
func (t *Token) finish(text *stopper, r *Request, last bool) {
	for _, id := range r.End {
		if t.ID == id {
			t.Stop = StopEnd
		}
	}
	var stopped bool
	if t.Stop == "" {
		t.Text, stopped = text.add(r.Decoder.Write(t.ID))
		if last && !stopped {
			t.Stop = StopLength
		}
	}
	if t.Stop != "" { // the decoder's rest may complete a stop string
		var rest string
		rest, stopped = text.end(r.Decoder.Flush())
		t.Text += rest
	}
	if stopped {
		t.Stop, t.Stopped = StopString, text.found
	}
}

// stopper passes text on, except for a beginning of a stop string. The first complete stop string ends the text, of
// several the earliest to begin, so the cuts of the text into tokens do not matter.
type stopper struct {
	stop  []string
	held  string
	found string // the stop string found
}

// add returns the text now certain, and whether a stop string ended the text.
func (s *stopper) add(text string) (string, bool) {
	text = s.held + text
	first, end := -1, len(text)+1
	s.found = ""
	for _, stop := range s.stop {
		i := strings.Index(text, stop)
		if stop == "" || i < 0 {
			continue
		}
		if e := i + len(stop); e < end || e == end && i < first {
			first, end, s.found = i, e, stop
		}
	}
	if first >= 0 {
		s.held = ""
		return text[:first], true
	}
	n := 0
	for _, stop := range s.stop {
		for k := min(len(stop)-1, len(text)); k > n; k-- {
			if strings.HasSuffix(text, stop[:k]) {
				n = k
			}
		}
	}
	s.held = text[len(text)-n:]
	return text[:len(text)-n], false
}

// end returns the text held back, followed by the decoder's rest, up to a stop string, and whether there was a stop
// string.
func (s *stopper) end(rest string) (string, bool) {
	text, stopped := s.add(rest)
	return text + s.held, stopped
}

// basis is the choice of a token: by all logits, or among the likeliest tokens.
type basis struct {
	logits []float32
	likely []sample.Likely
}

// next appends tokens and returns the basis of the next token; if several are chosen at once, each the likeliest, the
// basis of each.
func (s *Sequence) next(ctx context.Context, tokens []int32, c choice) (all []basis, err error) {
	w, err := s.feed(ctx, tokens, 1, c)
	if err != nil {
		return nil, err
	}
	for _, row := range w.logits {
		all = append(all, basis{logits: row})
	}
	for _, found := range w.found {
		all = append(all, basis{likely: found})
	}
	return all, nil
}

// sample chooses the token after history, among the tokens allowed by g.
func (b *basis) sample(s *sample.Sampler, history []int, g Grammar) (id int, err error) {
	if g != nil {
		mask, err := g.Mask()
		if err != nil {
			return 0, err
		}
		if mask == nil {
			id, err = s.Sample(b.logits, history)
		} else {
			id, err = s.SampleMasked(b.logits, history, mask)
		}
		if err != nil {
			return 0, err
		}
		return id, g.Accept(id)
	}
	if b.logits != nil {
		return s.Sample(b.logits, history)
	}
	return s.Choose(b.likely)
}

// Follow appends tokens and returns the likeliest next token, or if the backend computes several at once, up to most
// tokens: all except the last are also appended.
func (s *Sequence) Follow(ctx context.Context, tokens []int32, most int) (ids []int, err error) {
	greedy, err := sample.New(sample.Options{})
	if err != nil {
		return nil, err
	}
	chosen, err := s.next(ctx, tokens, choice{top: 1, steps: most})
	if err != nil {
		return nil, err
	}
	for _, x := range chosen {
		id, err := x.sample(greedy, nil, nil)
		s.Reuse(x.logits)
		if err != nil {
			s.cut(len(s.tokens) - len(chosen) + len(ids) + 1)
			return ids, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}
