package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/lab"
)

// output is where answers and messages go.
type output struct {
	out, log io.Writer
	json     bool
	session  *karat.Session
	context  int // tokens that it holds
	sampling karat.Sampling
	template string // applied: "none", "model", or a file's name
	adapters adapters

	ids      []int // of the prompt, in JSON
	logprobs int   // likeliest tokens to list for each
	name     func(id int) string
}

// drawn reports whether tokens are drawn, so that the seed matters.
func (o *output) drawn() bool { return o.sampling.Temperature > 0 }

// answer writes what a model generates, as it comes, and counts it.
type answer struct {
	output

	start, first, end time.Time
	text              strings.Builder
	tokens            int
	stop              string
}

// jsonToken is a line of --json.
type jsonToken struct {
	ID      int     `json:"id"`
	Text    string  `json:"text"`
	Logprob float64 `json:"logprob"`
	*lab.Next
}

// jsonAdapter is an adapter that was applied.
type jsonAdapter struct {
	Path  string  `json:"path"`
	Scale float64 `json:"scale"`
}

// jsonSummary is the last line of --json.
type jsonSummary struct {
	Stop            string        `json:"stop"`
	Error           string        `json:"error,omitempty"`
	Text            string        `json:"text"`
	Template        string        `json:"template"`
	IDs             []int         `json:"ids"` // of the prompt
	Adapters        []jsonAdapter `json:"adapters,omitempty"`
	PromptTokens    int           `json:"prompt_tokens"`
	GeneratedTokens int           `json:"generated_tokens"`
	PromptSeconds   float64       `json:"prompt_seconds"`
	GenerateSeconds float64       `json:"generate_seconds"` // after the first token
	Seed            *uint64       `json:"seed,omitempty"`   // where something was drawn
}

// write writes the tokens, and then the speeds. Cancelling ctx is not an error
// of the tokens but the user's wish: what there is then is the answer.
func (a *answer) write(ctx context.Context, tokens iter.Seq2[karat.Token, error]) error {
	a.start = time.Now()
	var failed error
	for t, err := range tokens {
		a.text.WriteString(t.Text)
		if failed = err; err == nil {
			if a.tokens++; a.tokens == 1 {
				a.first = time.Now()
			}
			a.stop = string(t.Stop)
		}
		if err := a.writeToken(t, failed == nil); err != nil {
			return err
		}
	}
	a.end = time.Now()
	switch {
	case ctx.Err() != nil && a.stop == "":
		a.stop, failed = "interrupted", failure{status: statusInterrupted}
	case failed != nil:
		a.stop, failed = "error", a.explain(failed)
	}
	if a.json {
		if err := a.writeSummary(failed); err != nil {
			return err
		}
	} else if a.tokens > 0 {
		if _, err := fmt.Fprintln(a.out); err != nil {
			return err
		}
	}
	switch {
	case a.tokens > 0:
		fmt.Fprintln(a.log, "karat:", a.speeds())
	case a.stop == "interrupted":
		fmt.Fprintln(a.log, "karat: interrupted")
	}
	return failed
}

// contextFull is an error in words of the command line.
type contextFull struct{ error }

func (c contextFull) Unwrap() error { return c.error }

// explain tells of a full context what filled it.
func (a *answer) explain(err error) error {
	switch {
	case !errors.Is(err, karat.ErrFull):
		return err
	case errors.Is(err, karat.ErrBudget):
		return contextFull{explainBudget(err)}
	case a.tokens > 0:
		return contextFull{fmt.Errorf("the context of %s is full", count(a.context, "token"))}
	}
	return contextFull{fmt.Errorf("the prompt has more than the %s that the context holds: shorten it, or raise --ctx", count(a.context, "token"))}
}

// writeToken writes a token, or the text that came beside an error.
func (a *answer) writeToken(t karat.Token, ok bool) error {
	switch {
	case a.json && !ok:
		return nil // the summary has all the text
	case a.json:
		line := jsonToken{ID: t.ID, Text: t.Text, Logprob: t.Logprob}
		if a.logprobs > 0 {
			next, err := lab.NewNext(lab.Widen(t.Logits), nil, a.logprobs, nil)
			if err != nil {
				return err
			}
			next.Name(a.name)
			line.Next = next
		}
		return newEncoder(a.out).Encode(line)
	}
	text := t.Text
	if isTerminal(a.out) {
		text = printable(text)
	}
	_, err := io.WriteString(a.out, text)
	return err
}

// times are how long the prompt took, up to the first token, and the tokens after it.
func (a *answer) times() (prompt, rest time.Duration) {
	if a.tokens == 0 {
		return a.end.Sub(a.start), 0
	}
	return a.first.Sub(a.start), a.end.Sub(a.first)
}

func (a *answer) writeSummary(failed error) error {
	prefill, decode := a.times()
	s := jsonSummary{Stop: a.stop, Text: a.text.String(), Template: a.template, IDs: a.ids, Adapters: a.adapters.json(), GeneratedTokens: a.tokens,
		PromptSeconds: prefill.Seconds(), GenerateSeconds: decode.Seconds()}
	s.PromptTokens, _ = a.session.PromptTokens()
	if a.drawn() {
		s.Seed = new(a.session.Seed())
	}
	if a.stop == "error" {
		s.Error = failed.Error()
	}
	return newEncoder(a.out).Encode(s)
}

// speeds is a line about how fast it went and why it ended.
func (a *answer) speeds() string {
	prompt, kept := a.session.PromptTokens()
	prefill, decode := a.times()
	known := ""
	if kept > 0 {
		known = fmt.Sprintf(", %d of them known", kept)
	}
	seed := ""
	if a.drawn() {
		seed = fmt.Sprintf("; seed %d", a.session.Seed())
	}
	return fmt.Sprintf("prompt of %s%s (%s); %d generated (%s); %s%s", count(prompt, "token"), known, speed(prompt-kept, prefill),
		a.tokens, speed(a.tokens-1, decode), a.why(), seed)
}

// why tells why the text ended.
func (a *answer) why() string {
	switch a.stop {
	case "end":
		return "ended by the model"
	case "stop":
		return "ended by a stop text"
	case "length":
		if a.full() {
			return fmt.Sprintf("the context of %s is full", count(a.context, "token"))
		}
		return "ended by -n"
	}
	return a.stop
}

// full reports whether nothing more has room.
func (a *answer) full() bool {
	prompt, _ := a.session.PromptTokens()
	return a.stop == string(karat.StopLength) && prompt+a.tokens > a.context
}

// speed is n tokens in a time.
func speed(n int, d time.Duration) string {
	if n <= 0 || d <= 0 {
		return "- tokens/s"
	}
	return fmt.Sprintf("%.1f tokens/s", float64(n)/d.Seconds())
}
