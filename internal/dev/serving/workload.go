// Command serving sends requests to servers of OpenAI's API, and measures how long clients wait for their answers.
package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Range is a number of tokens, any from Min to Max.
type Range struct{ Min, Max int }

func (r Range) pick(x *rand.Rand) int { return r.Min + x.IntN(r.Max-r.Min+1) }

// Workload says what the requests are. The same workload makes the same requests.
type Workload struct {
	Seed        uint64
	Prompt      Range   // tokens of a prompt, beside the shared ones
	Answer      Range   // tokens of an answer at most
	Shared      int     // tokens that all prompts begin with
	Abort       float64 // share of the requests whose client leaves before the answer's end
	Chat        bool    // chat instead of completions
	Temperature float64
	perWord     float64 // tokens of a word, as Calibrate finds it
}

// Request is one of a workload.
type Request struct {
	Prompt string
	Answer int // most tokens
	Leave  int // pieces of the answer after which the client leaves; 0: it stays
	Seed   uint32
}

// words are the material of prompts.
var words = strings.Fields(`river stone window garden letter morning paper bridge winter table music road field bird
	light water doctor engine market number island school color forest metal candle story market wheel valley captain
	silver village ocean painter mountain summer kitchen copper orange travel harbor shadow lantern century planet`)

// requests makes n of them. Two parts share nothing but the workload's prefix.
func (w *Workload) requests(part uint64, n int) []Request {
	prefix := w.text(rand.New(rand.NewPCG(w.Seed, 0)), w.Shared)
	x := rand.New(rand.NewPCG(w.Seed, part+1))
	list := make([]Request, n)
	for i := range list {
		r := &list[i]
		r.Prompt = strings.TrimSpace(prefix + " " + w.text(x, w.Prompt.pick(x)))
		r.Answer, r.Seed = w.Answer.pick(x), x.Uint32N(1<<31)
		if leaves := x.Float64() < w.Abort; leaves {
			r.Leave = 1 + x.IntN(max(1, r.Answer-1))
		}
	}
	return list
}

// text is words of about n tokens.
func (w *Workload) text(x *rand.Rand, n int) string {
	per := w.perWord
	if per <= 0 {
		per = 1
	}
	var list []string
	for range int(float64(n)/per + 0.5) {
		list = append(list, words[x.IntN(len(words))])
	}
	return strings.Join(list, " ")
}

// check finds what makes no workload.
func (w *Workload) check() error {
	switch {
	case w.Prompt.Min < 1 || w.Prompt.Max < w.Prompt.Min || w.Prompt.Max > 1<<20:
		return fmt.Errorf("prompts of %d to %d tokens: want 1 or more", w.Prompt.Min, w.Prompt.Max)
	case w.Answer.Min < 1 || w.Answer.Max < w.Answer.Min || w.Answer.Max > 1<<20:
		return fmt.Errorf("answers of %d to %d tokens: want 1 or more", w.Answer.Min, w.Answer.Max)
	case w.Shared < 0 || w.Shared > 1<<20:
		return fmt.Errorf("a shared prefix of %d tokens: want 0 or more", w.Shared)
	case !(w.Abort >= 0 && w.Abort <= 1):
		return fmt.Errorf("a share of %g that aborts: want 0 to 1", w.Abort)
	case !(w.Temperature >= 0 && w.Temperature <= 2):
		return fmt.Errorf("a temperature of %g: want 0 to 2", w.Temperature)
	}
	return nil
}
