package server

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat"
)

// completeText answers POST /v1/completions.
func completeText(x *exchange) any {
	r := readCompletion(x)
	r.check()
	r.id = newID("cmpl-")
	offsets := make([]textPlace, len(r.prompts)*r.n)
	if r.reply.stream {
		return streamChunks(x, r, func(e event, send func(any)) {
			if e.text != "" || len(e.tokens) > 0 || e.finish != "" {
				c := completionChoice{Index: e.choice}
				r.complete(&c, &e, &offsets[e.choice])
				send(c)
			}
		})
	}
	all := make([]completionChoice, len(offsets))
	u := r.answer(func(e event) {
		all[e.choice].Index = e.choice
		r.complete(&all[e.choice], &e, &offsets[e.choice])
	})
	return struct {
		head
		Choices []completionChoice `json:"choices"`
		Usage   *openAIUsage       `json:"usage"`
	}{r.head("text_completion"), r.bestOf(all), u.openAI()}
}

// complete adds an event to an answer.
func (r *request) complete(c *completionChoice, e *event, at *textPlace) {
	c.Text += e.text
	if r.logprobs {
		c.Logprobs = c.Logprobs.join(r.legacy(e, at))
	}
	for _, t := range e.tokens {
		if !e.prompt {
			c.sum, c.count = c.sum+t.Logprob, c.count+1
		}
	}
	if e.finish != "" {
		c.Finish = &e.finish
	}
}

// bestOf returns the r.best answers to each prompt whose tokens have the highest mean log-probability.
func (r *request) bestOf(all []completionChoice) (best []completionChoice) {
	if r.best == r.n {
		return all
	}
	mean := func(c completionChoice) float64 { return c.sum / float64(max(1, c.count)) }
	for of := range slices.Chunk(all, r.n) {
		slices.SortStableFunc(of, func(a, b completionChoice) int { return cmp.Compare(mean(b), mean(a)) })
		for _, c := range of[:r.best] {
			c.Index = len(best)
			best = append(best, c)
		}
	}
	return best
}

func readCompletion(x *exchange) *request {
	f, m := x.readRequest(x.readModel)
	r := x.newRequest(m)
	r.max = 16 // OpenAI's default
	readSampling(f, r)
	readLimit(f, r, "max_tokens", 0)
	r.echo = f.boolean("echo", false)
	r.logprobs = integer(f, &r.top, "logprobs", 0, maxTop)
	r.best = r.n
	switch integer(f, &r.n, "best_of", 1, maxTop); {
	case r.n < r.best:
		fail("best_of", "%d is less than n, %d", r.n, r.best)
	case r.n > r.best && r.reply.stream:
		fail("best_of", "the best of several answers is known when all have ended: it is not for streams")
	}
	f.lacks("suffix")
	r.form = formOf(f)
	hintIdle(f)
	r.param = "prompt"
	prompt := f.take("prompt")
	f.done()
	r.constrainText(x.ctx)
	if prompt == nil {
		lack("prompt")
	}
	r.texts, r.prompts = prompts("prompt", prompt, r.model.room, r.leastAnswer())
	for _, text := range r.texts {
		r.prompts = append(r.prompts, x.tokenIDs(r.model, "prompt", text, karat.TokenizeOptions{}))
	}
	return r
}

type completionChoice struct {
	Index    int             `json:"index"`
	Text     string          `json:"text"`
	Logprobs *legacyLogprobs `json:"logprobs"`
	Finish   *string         `json:"finish_reason"`

	sum   float64 // of the log-probabilities of its tokens
	count int
}

// legacyLogprobs are the older API's form of log-probabilities: lists side by side.
type legacyLogprobs struct {
	Tokens  []string             `json:"tokens"`
	Values  []*float64           `json:"token_logprobs"`
	Top     []map[string]float64 `json:"top_logprobs"`
	Offsets []int                `json:"text_offset"` // in characters
}

func (l *legacyLogprobs) join(m *legacyLogprobs) *legacyLogprobs {
	if l == nil || m == nil {
		if l == nil {
			return m
		}
		return l
	}
	l.Tokens, l.Values, l.Top, l.Offsets = append(l.Tokens, m.Tokens...), append(l.Values, m.Values...), append(l.Top,
		m.Top...), append(l.Offsets, m.Offsets...)
	return l
}

// textPlace is a place in a text: the number of whole characters before it, and the bytes of a character just begun.
type textPlace struct {
	at  int
	cut []byte
}

// add moves the place behind bytes of the text.
func (p *textPlace) add(b []byte) {
	p.cut = append(p.cut, b...)
	for utf8.FullRune(p.cut) {
		_, n := utf8.DecodeRune(p.cut)
		p.at, p.cut = p.at+1, p.cut[n:]
	}
}

// skip moves the place past a token of the prompt, whose text goes on with rest, and returns the text after it. Special
// tokens around a prompt have no room in its text; bytes outside characters are a U+FFFD.
func (p *textPlace) skip(token []byte, rest string) string {
	whole := 0 // bytes of the characters before a cut character
	for whole < len(token) && utf8.FullRune(token[whole:]) {
		_, n := utf8.DecodeRune(token[whole:])
		whole += n
	}
	head, lost := string(token[:whole]), strings.HasPrefix(strings.TrimPrefix(rest, string(token[:whole])), "\uFFFD")
	switch {
	case strings.HasPrefix(rest, string(token)):
		p.add(token)
		return rest[len(token):]
	case strings.HasPrefix(rest, head) && lost && whole < len(token):
		p.add([]byte(head + "\uFFFD"))
		return rest[len(head)+len("\uFFFD"):]
	}
	return rest
}

// legacy returns the log-probabilities of an event. at is its place in the text, including an echoed prompt.
func (r *request) legacy(e *event, at *textPlace) *legacyLogprobs {
	l := &legacyLogprobs{[]string{}, []*float64{}, []map[string]float64{}, []int{}}
	rest := e.text
	for i, t := range e.tokens {
		text, values := r.model.tokenText(t.ID)
		l.Tokens, l.Offsets = append(l.Tokens, legacyName(text, values)), append(l.Offsets, at.at)
		b := r.model.model.TokenBytes(t.ID)
		switch {
		case e.prompt && i == 0:
			rest = at.skip(bytes.TrimPrefix(b, []byte(missingSpace(text, rest))), rest)
		case e.prompt:
			rest = at.skip(b, rest)
		case len(r.stop) > 0: // whose beginnings are held back
			at.add(b)
		}
		if e.prompt && i == 0 {
			l.Values, l.Top = append(l.Values, nil), append(l.Top, nil)
			continue
		}
		value, top := clampLogprob(t.Logprob), map[string]float64{}
		for _, x := range t.TopLogprobs {
			top[legacyName(r.model.tokenText(x.ID))] = clampLogprob(x.Logprob)
		}
		l.Values, l.Top = append(l.Values, &value), append(l.Top, top)
	}
	if !e.prompt && len(r.stop) == 0 {
		at.at += utf8.RuneCountInString(e.text) // in its own count: a token without text has none
	}
	return l
}

// missingSpace returns the space put before a text by some vocabularies, and taken away by decoding.
func missingSpace(token, text string) string {
	if strings.HasPrefix(token, " ") && !strings.HasPrefix(text, " ") {
		return " "
	}
	return ""
}

// legacyName returns a token's name in the older API: of a token without text, its bytes.
func legacyName(text string, bytes []int) string {
	if !strings.ContainsRune(text, utf8.RuneError) {
		return text
	}
	var b strings.Builder
	b.WriteString("bytes:")
	for _, c := range bytes {
		fmt.Fprintf(&b, `\x%02x`, c)
	}
	return b.String()
}

// promptText returns the text of an answer's prompt: the client's, if a text was sent.
func (c *choice) promptText() string {
	if c.r.texts != nil {
		return c.r.texts[c.index/c.r.n]
	}
	return c.r.model.model.Detokenize(c.prompt)
}
