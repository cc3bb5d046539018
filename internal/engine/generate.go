package engine

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/karat-run/karat/internal/sample"
)

// StopReason tells why a generation ended; it is empty before its last token.
type StopReason string

// The reasons.
const (
	StopEnd    StopReason = "end"    // the model ended its turn
	StopString StopReason = "stop"   // a stop string came up; it and what follows are not part of the text
	StopLength StopReason = "length" // the requested number of tokens was reached
)

// Request asks for tokens after a prompt.
type Request struct {
	Prompt  []int32
	Max     int            // most tokens to generate; 0 generates none, negative is no limit
	Sample  sample.Options //
	Stop    []string       // strings that end the text
	End     []int          // ids that end the turn
	Logits  bool           // hand over each token's logits
	Top     int            // how many of the likeliest tokens to report
	Decoder Decoder        // turns ids into text
}

// Decoder turns a stream of ids into text, never half a character.
type Decoder interface {
	Write(id int) string
	Flush() string
}

// Token is one generated token.
type Token struct {
	ID      int
	Text    string // what it adds to the text; may be empty while a character or stop string is undecided
	Logprob float64
	Top     []sample.Logprob // the likeliest, likeliest first
	Logits  []float32        // [vocab], that the token was chosen by
	Stop    StopReason       // set on the last token
}

// Generate feeds r's prompt, as far as the sequence does not hold it already,
// and yields tokens until one of r's conditions ends it. An error ends it, too:
// among others, ErrFull before the context would overflow.
func (s *Sequence) Generate(ctx context.Context, r Request) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.generate(ctx, r, yield); err != nil {
			yield(Token{}, err)
		}
	}
}

func (s *Sequence) generate(ctx context.Context, r Request, yield func(Token, error) bool) error {
	if len(r.Prompt) == 0 {
		return errors.New("engine: the prompt has no tokens")
	}
	sampler, err := sample.New(r.Sample)
	if err != nil {
		return err
	}
	history := make([]int, len(r.Prompt))
	for i, id := range r.Prompt {
		history[i] = int(id)
	}
	next := r.Prompt[s.Rewind(r.Prompt):]
	text := stopper{stop: r.Stop}
	for i := 0; r.Max < 0 || i < r.Max; i++ {
		logits, err := s.Feed(ctx, next, 1)
		if err != nil {
			return err
		}
		t, err := choose(sampler, logits[0], history, r)
		if err != nil {
			return err
		}
		t.finish(&text, &r, i == r.Max-1)
		if !yield(t, nil) || t.Stop != "" {
			return nil
		}
		history = append(history, t.ID)
		next = []int32{int32(t.ID)}
	}
	return nil
}

func choose(s *sample.Sampler, logits []float32, history []int, r Request) (Token, error) {
	id, err := s.Sample(logits, history)
	if err != nil {
		return Token{}, err
	}
	t := Token{ID: id}
	of, top, err := sample.Logprobs(logits, []int{id}, r.Top)
	if err != nil {
		return Token{}, err
	}
	t.Logprob, t.Top = of[0].Logprob, top
	if r.Logits {
		t.Logits = logits
	}
	return t, nil
}

// finish sets the token's text and whether it is the last.
func (t *Token) finish(text *stopper, r *Request, last bool) {
	for _, id := range r.End {
		if t.ID == id {
			t.Stop, t.Text = StopEnd, text.end(r.Decoder.Flush())
			return
		}
	}
	var stopped bool
	t.Text, stopped = text.add(r.Decoder.Write(t.ID))
	switch {
	case stopped:
		t.Stop = StopString
	case last:
		t.Stop = StopLength
		t.Text += text.end(r.Decoder.Flush())
	}
}

// stopper passes text on, but for what may be the beginning of a stop string.
// The stop string that is complete first ends the text, of several the one
// that begins first, so it does not matter how the text is cut into tokens.
type stopper struct {
	stop []string
	held string
}

// add returns the text that is now certain, and whether a stop string ended it.
func (s *stopper) add(text string) (string, bool) {
	text = s.held + text
	first, end := -1, len(text)+1
	for _, stop := range s.stop {
		i := strings.Index(text, stop)
		if stop == "" || i < 0 {
			continue
		}
		if e := i + len(stop); e < end || e == end && i < first {
			first, end = i, e
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

// end returns what was held back, followed by the decoder's rest.
func (s *stopper) end(rest string) string {
	text, _ := s.add(rest)
	return text + s.held
}
