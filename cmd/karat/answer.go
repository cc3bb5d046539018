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
	"github.com/karat-run/karat/internal/syntax"
)

// output is where answers and messages go.
type output struct {
	out, log io.Writer
	json     bool
	verbose  bool   // says the speeds
	screen   screen // nil with json
	cut      bool   // nobody has asked for the limit of tokens
	parser   *syntax.Parser
	session  *karat.Session
	context  int // capacity in tokens
	sampling karat.Sampling
	template string // applied: "none", "model", or a file's name
	adapters []karat.Adapter

	ids      []int // of the prompt, in JSON
	logprobs int   // likeliest tokens to list for each
	name     func(id int) string
}

// isDrawn reports whether tokens are drawn, so the seed matters.
func (o *output) isDrawn() bool { return o.sampling.Temperature > 0 }

// answer writes and counts a model's text as it comes.
type answer struct {
	output

	start, first, end time.Time
	text, reasoning   strings.Builder
	calls             []syntax.Call
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

// jsonAdapter is an adapter in use.
type jsonAdapter struct {
	Path  string  `json:"path"`
	Scale float64 `json:"scale"`
}

// jsonSummary is the last line of --json.
type jsonSummary struct {
	Stop            string        `json:"stop"`
	Error           string        `json:"error,omitempty"`
	Text            string        `json:"text"`
	Reasoning       string        `json:"reasoning,omitempty"`
	Template        string        `json:"template"`
	IDs             []int         `json:"ids"` // of the prompt
	Adapters        []jsonAdapter `json:"adapters,omitempty"`
	PromptTokens    int           `json:"prompt_tokens"`
	GeneratedTokens int           `json:"generated_tokens"`
	PromptSeconds   float64       `json:"prompt_seconds"`
	GenerateSeconds float64       `json:"generate_seconds"` // after the first token
	Seed            *uint64       `json:"seed,omitempty"`   // where something was drawn
}

// write writes the tokens, and then the speeds. Cancelling ctx is no error of the tokens but the user's wish: the text
// so far is the answer.
func (a *answer) write(ctx context.Context, tokens iter.Seq2[karat.Token, error]) error {
	a.start = time.Now()
	var failed error
	for t, err := range tokens {
		if failed = err; err == nil {
			if a.tokens++; a.tokens == 1 {
				a.first = time.Now()
			}
			a.stop = string(t.Stop)
		}
		if a.json && err == nil {
			if err := a.writeToken(t); err != nil {
				return err
			}
		}
		if err := a.show(a.parts(t.Text)); err != nil {
			return err
		}
	}
	if a.parser != nil {
		rest := a.parser.Cut
		if a.stop == string(karat.StopEnd) {
			rest = a.parser.End
		}
		if err := a.show(rest()); err != nil {
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
	} else if a.tokens > 0 && (a.calls == nil || a.text.Len() > 0 || a.reasoning.Len() > 0 && isTerminal(a.out)) {
		if err := a.screen.end(); err != nil {
			return err
		}
	}
	switch {
	case a.tokens > 0 && a.verbose:
		fmt.Fprintln(a.log, "karat:", a.speeds())
	case a.stop == "interrupted":
		fmt.Fprintln(a.log, "karat: interrupted")
	case a.reportFull():
		fmt.Fprintf(a.log, "karat: cut, since %s; --ctx sets its length\n", a.reason())
	case a.stop == string(karat.StopLength) && (a.cut || a.text.Len() == 0 && a.calls == nil) && !a.json:
		fmt.Fprintf(a.log, "karat: cut after %s; -n sets more\n", count(a.tokens, "token"))
	}
	return failed
}

// contextFull is an error in words of the command line.
type contextFull struct{ error }

func (c contextFull) Unwrap() error { return c.error }

// explain adds the cause to the error of a full context.
func (a *answer) explain(err error) error {
	switch {
	case !errors.Is(err, karat.ErrFull):
		return err
	case errors.Is(err, karat.ErrBudget):
		return contextFull{explainBudget(err)}
	case a.tokens > 0:
		return contextFull{fmt.Errorf("the context of %s is full", count(a.context, "token"))}
	}
	has := "more than"
	if n := len(a.ids); n > 0 {
		has = count(n, "token") + ", more than"
	}
	return contextFull{fmt.Errorf("the prompt has %s the %s that the context holds: shorten it, or raise --ctx", has,
		count(a.context, "token"))}
}

// unmarked spells control tokens by their names alone.
var unmarked = strings.NewReplacer(syntax.Control("")[:1], "")

// writeToken writes a token in JSON.
func (a *answer) writeToken(t karat.Token) error {
	line := jsonToken{ID: t.ID, Text: unmarked.Replace(t.Text), Logprob: t.Logprob}
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

// parts cuts the next piece of the answer into text and reasoning.
func (a *answer) parts(text string) []syntax.Event {
	if a.parser == nil {
		return []syntax.Event{{Text: text}}
	}
	return a.parser.Write(text)
}

// show keeps parts of the answer, and shows them on the screen if there is one.
func (a *answer) show(parts []syntax.Event) error {
	for _, p := range parts {
		a.text.WriteString(p.Text)
		a.reasoning.WriteString(p.Reasoning)
		a.calls = append(a.calls, p.Calls...)
		if a.screen == nil {
			continue
		}
		if p.Reasoning != "" {
			if err := a.screen.think(p.Reasoning); err != nil {
				return err
			}
		}
		if p.Text != "" {
			if err := a.screen.text(p.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// message returns the answer as a part of the conversation, without calls.
func (a *answer) message() karat.Message {
	m := karat.Message{Role: karat.RoleAssistant}
	if a.reasoning.Len() > 0 {
		m.Parts = append(m.Parts, karat.Reasoning(a.reasoning.String()))
	}
	if a.text.Len() > 0 || a.calls == nil {
		m.Parts = append(m.Parts, karat.Text(a.text.String()))
	}
	return m
}

// times returns the time of the prompt, up to the first token, and of the tokens after.
func (a *answer) times() (prompt, rest time.Duration) {
	if a.tokens == 0 {
		return a.end.Sub(a.start), 0
	}
	return a.first.Sub(a.start), a.end.Sub(a.first)
}

func (a *answer) writeSummary(failed error) error {
	prefill, decode := a.times()
	s := jsonSummary{Stop: a.stop, Text: a.text.String(), Reasoning: a.reasoning.String(), Template: a.template,
		IDs: a.ids, GeneratedTokens: a.tokens, PromptSeconds: prefill.Seconds(), GenerateSeconds: decode.Seconds()}
	for _, x := range a.adapters {
		s.Adapters = append(s.Adapters, jsonAdapter{x.Path, x.Scale})
	}
	s.PromptTokens, _ = a.session.PromptTokens()
	if a.isDrawn() {
		s.Seed = new(a.session.Seed())
	}
	if a.stop == "error" {
		s.Error = failed.Error()
	}
	return newEncoder(a.out).Encode(s)
}

// speeds returns a line about the answer's speeds and its end.
func (a *answer) speeds() string {
	prompt, kept := a.session.PromptTokens()
	prefill, decode := a.times()
	known := ""
	if kept > 0 {
		known = fmt.Sprintf(", %d of them known", kept)
	}
	seed := ""
	if a.isDrawn() {
		seed = fmt.Sprintf("; seed %d", a.session.Seed())
	}
	return fmt.Sprintf("prompt of %s%s (%s); %d generated (%s); %s%s", count(prompt, "token"), known,
		speed(prompt-kept, prefill), a.tokens, speed(a.tokens-1, decode), a.reason(), seed)
}

// reason describes the end of the text.
func (a *answer) reason() string {
	switch a.stop {
	case "end":
		return "ended by the model"
	case "stop":
		return "ended by a stop text"
	case "length":
		if a.reportFull() {
			return fmt.Sprintf("the context of %s is full", count(a.context, "token"))
		}
		return fmt.Sprintf("cut after %s", count(a.tokens, "token"))
	}
	return a.stop
}

// reportFull reports whether nothing more has room.
func (a *answer) reportFull() bool {
	prompt, _ := a.session.PromptTokens()
	return a.stop == string(karat.StopLength) && prompt+a.tokens > a.context
}

// speed returns the speed of n tokens in a time.
func speed(n int, d time.Duration) string {
	if n <= 0 || d <= 0 {
		return "- tokens/s"
	}
	return fmt.Sprintf("%.1f tokens/s", float64(n)/d.Seconds())
}
