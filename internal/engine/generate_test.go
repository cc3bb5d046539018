package engine_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tokenizer"
)

// tokenizerOf is a model's tokenizer, and its ids that end a turn.
func tokenizerOf(t testing.TB, name string) (*tokenizer.Tokenizer, []int) {
	t.Helper()
	c, _ := openModel(t, golden.Model(t, name))
	tok, err := c.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	return tok, c.Generation().End
}

// generate collects a whole generation.
func generate(t testing.TB, s *engine.Sequence, r engine.Request) (tokens []engine.Token, text string) {
	t.Helper()
	for token, err := range s.Generate(context.Background(), r) {
		if err != nil {
			t.Error(err)
			return tokens, text
		}
		tokens, text = append(tokens, token), text+token.Text
	}
	return tokens, text
}

func idsOf(tokens []engine.Token) (ids []int) {
	for _, x := range tokens {
		ids = append(ids, x.ID)
	}
	return ids
}

// TestGreedy continues the recorded prompts with float32 arithmetic, all at the
// same time, and wants PyTorch's ids and text, up to where two logits are as near to
// each other as PyTorch's float32 is to its float64.
func TestGreedy(t *testing.T) {
	models := golden.Sample(golden.Models(t))
	for i, name := range append(models, golden.Sample(golden.Families(t))...) {
		t.Run(name, func(t *testing.T) {
			tok, end := tokenizerOf(t, name)
			if len(end) == 0 {
				t.Fatal("no id ends a turn")
			}
			most := 64            // tokens of a record
			if i >= len(models) { // whose texts go on behind an end
				most, end = 16, nil
			}
			_, g := openFor(t, golden.Model(t, name), 1024)
			e := newEngine(t, g, cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), engine.Options{Context: 1024})
			var wg sync.WaitGroup
			for _, p := range golden.Record(t, name).Prompts {
				if testing.Short() && (name != sliding || p.Index != 2) {
					continue
				}
				wg.Go(func() {
					s := e.NewSequence()
					defer s.Close()
					tokens, text := generate(t, s, engine.Request{Prompt: prompt(t, name, p.Index, 0), Max: most, End: end, Decoder: tok.Decoder(false)})
					ids := idsOf(tokens)
					if !slices.Equal(ids, p.GreedyIDs) {
						if !tied(t, e, prompt(t, name, p.Index, 0), ids, p) {
							t.Errorf("prompt %d: %v, want %v", p.Index, ids, p.GreedyIDs)
						}
						return
					}
					stop, want := tokens[len(tokens)-1].Stop, engine.StopLength
					if last := ids[len(ids)-1]; slices.Contains(end, last) {
						ids, want = ids[:len(ids)-1], engine.StopEnd
					}
					if stop != want {
						t.Errorf("prompt %d: stopped by %q, want %q", p.Index, stop, want)
					}
					if decoded := tok.Decode(ids, false); text != decoded || !strings.HasPrefix(p.GreedyText, text) {
						t.Errorf("prompt %d: text %q, want %q of %q", p.Index, text, decoded, p.GreedyText)
					}
				})
			}
			wg.Wait()
		})
	}
}

// tied reports whether the first id that is not the record's is as likely as that one, within the
// distance of the record's float32.
func tied(t *testing.T, e *engine.Engine, text []int32, ids []int, p golden.Prompt) bool {
	i := 0
	for i < min(len(ids), len(p.GreedyIDs)) && ids[i] == p.GreedyIDs[i] {
		text, i = append(text, int32(ids[i])), i+1
	}
	if i == min(len(ids), len(p.GreedyIDs)) {
		return false
	}
	logits := scratch(t, e, text, 1)[0]
	margin := float64(logits[ids[i]]) - float64(logits[p.GreedyIDs[i]])
	t.Logf("prompt %d: token %d is %d, not %d, %.2g apart", p.Index, i, ids[i], p.GreedyIDs[i], margin)
	return math.Abs(margin) <= p.Float32.MaxAbsDiff
}

// TestMax: the number of tokens is what was asked for, or what fits.
func TestMax(t *testing.T) {
	e := toy(t, engine.Options{Context: 20}, nil)
	ids := toyText(15)
	for _, n := range []int{0, 1, 5, 6} {
		s := e.NewSequence()
		tokens, _ := generate(t, s, engine.Request{Prompt: ids, Max: n, Decoder: numbers{}})
		if len(tokens) != n || n > 0 && tokens[n-1].Stop != engine.StopLength || n > 1 && tokens[n-2].Stop != "" {
			t.Errorf("Max %d: %d tokens, %+v", n, len(tokens), tokens)
		}
		s.Close()
	}
	s := e.NewSequence()
	defer s.Close()
	n := 0
	var last error
	for token, err := range s.Generate(context.Background(), engine.Request{Prompt: ids, Max: -1, Decoder: numbers{}}) {
		if last = err; err == nil {
			n++
		} else if token.ID != 0 || token.Text != "" {
			t.Errorf("a token with the error: %+v", token)
		}
	}
	// 15 of the prompt and 5 of the generated tokens fit; a sixth follows them.
	if n != 6 || !errors.Is(last, engine.ErrFull) {
		t.Errorf("without limit: %d tokens, then %v", n, last)
	}
}

// TestGenerateErrors: bad requests are errors before anything is computed.
func TestGenerateErrors(t *testing.T) {
	steps := 0
	e := toy(t, engine.Options{Context: 20}, func(*backend.Step) error { steps++; return nil })
	for name, r := range map[string]engine.Request{
		"no prompt":     {Max: 1},
		"long prompt":   {Prompt: make([]int32, 21), Max: 1},
		"no token":      {Prompt: []int32{1, 1 << 30}, Max: 1},
		"sampling":      {Prompt: []int32{1}, Max: 1, Sample: sample.Options{TopP: 2}},
		"not a penalty": {Prompt: []int32{1}, Max: 1, Sample: sample.Options{RepeatPenalty: math.NaN()}},
	} {
		s := e.NewSequence()
		r.Decoder = numbers{}
		n := 0
		for _, err := range s.Generate(context.Background(), r) {
			if n++; err == nil {
				t.Errorf("%s: a token", name)
			}
		}
		if n != 1 || steps != 0 || s.Len() != 0 {
			t.Errorf("%s: %d errors, %d steps", name, n, steps)
		}
		s.Close()
	}
}

// TestStop ends the text at strings that lie across tokens.
func TestStop(t *testing.T) {
	_, g := openModel(t, golden.Model(t, sliding))
	e := newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 128})
	tok, end := tokenizerOf(t, sliding)
	s := e.NewSequence()
	defer s.Close()
	r := engine.Request{Prompt: prompt(t, sliding, 2, 0), Max: 20, End: end, Decoder: tok.Decoder(true)}
	tokens, text := generate(t, s, r)
	if len(tokens) < 10 || len(text) < 20 {
		t.Fatalf("%d tokens, %q", len(tokens), text)
	}
	for at := 0; at < len(text)-8; at += 5 {
		r.Stop = []string{"never" + text, text[at : at+8]}
		r.Decoder = tok.Decoder(true)
		want := text[:strings.Index(text, r.Stop[1])]
		got, short := generate(t, s, r)
		if short != want || got[len(got)-1].Stop != engine.StopString {
			t.Errorf("stop %q: %q, want %q; %q", r.Stop[1], short, want, got[len(got)-1].Stop)
		}
		if !slices.Equal(idsOf(got), idsOf(tokens)[:len(got)]) {
			t.Errorf("stop %q: other tokens", r.Stop[1])
		}
	}
	// What could have become a stop string is not lost at the end.
	r.Stop, r.Decoder = []string{text[len(text)-5:] + "never"}, tok.Decoder(true)
	if _, all := generate(t, s, r); all != text {
		t.Errorf("half a stop string at the end: %q, want %q", all, text)
	}
}

// TestHeldAtError: what could have become a stop string is not lost where the context is
// full or the generation cancelled.
func TestHeldAtError(t *testing.T) {
	e := toy(t, engine.Options{Context: 24}, nil)
	s := e.NewSequence()
	defer s.Close()
	r := engine.Request{Prompt: toyText(20), Max: 5, Decoder: numbers{}}
	_, text := generate(t, s, r)
	for name, end := range map[string]func(cancel func(), n int){
		"full": func(func(), int) {},
		"cancelled": func(cancel func(), n int) {
			if n == 4 {
				cancel()
			}
		},
	} {
		r.Max, r.Stop = -1, []string{text + "never"}
		ctx, cancel := context.WithCancel(context.Background())
		got, n := "", 0
		var last error
		for token, err := range s.Generate(ctx, r) {
			if n++; err == nil && token.Text != "" {
				t.Errorf("%s: %q is certain", name, token.Text)
			}
			got, last = got+token.Text, err
			end(cancel, n)
		}
		cancel()
		if last == nil || n < 5 || strings.Count(got, "<") != n-1 || !strings.HasPrefix(text, got) {
			t.Errorf("%s: %q and %v, want the first %d of %q", name, got, last, n-1, text)
		}
	}
}

// TestLogprobs: probabilities are those of the logits, before any option.
func TestLogprobs(t *testing.T) {
	e := toy(t, engine.Options{Context: 64}, nil)
	ids := toyText(10)
	for _, o := range []sample.Options{{}, {Temperature: 1.5, TopK: 40, Seed: 3}} {
		s := e.NewSequence()
		tokens, _ := generate(t, s, engine.Request{Prompt: ids, Max: 5, Top: 7, Logprob: true, Logits: true, Sample: o, Decoder: numbers{}})
		s.Close()
		at := ids
		for _, x := range tokens {
			if want := scratch(t, e, at, 1); !same([][]float32{x.Logits}, want) {
				t.Fatal("the logits are not those of a pass over the same tokens")
			}
			sum, rank := 0.0, 0
			for _, v := range x.Logits {
				sum += math.Exp(float64(v))
				if v > x.Logits[x.Top[6].ID] {
					rank++
				}
			}
			logprob := func(id int) float64 { return float64(x.Logits[id]) - math.Log(sum) }
			if d := math.Abs(x.Logprob - logprob(x.ID)); !(d < 1e-9) {
				t.Errorf("token %d: log-probability %v, want %v", x.ID, x.Logprob, logprob(x.ID))
			}
			if len(x.Top) != 7 || rank != 6 || o.Temperature == 0 && x.Top[0].ID != x.ID {
				t.Errorf("the likeliest of token %d: %v (%d above the last)", x.ID, x.Top, rank)
			}
			for i, y := range x.Top {
				if d := math.Abs(y.Logprob - logprob(y.ID)); !(d < 1e-9) || i > 0 && y.Logprob > x.Top[i-1].Logprob {
					t.Errorf("likeliest %d: %v, want %v", i, y, logprob(y.ID))
				}
			}
			at = append(slices.Clone(at), int32(x.ID))
		}
	}
	s := e.NewSequence()
	defer s.Close()
	tokens, _ := generate(t, s, engine.Request{Prompt: ids, Max: 1, Decoder: numbers{}})
	if tokens[0].Logits != nil || tokens[0].Top != nil {
		t.Errorf("logits and likeliest tokens that nobody asked for: %d, %v", len(tokens[0].Logits), tokens[0].Top)
	}
}

// TestPenalty: the repeat penalty sees the prompt and what was generated since.
func TestPenalty(t *testing.T) {
	e := toy(t, engine.Options{Context: 64}, nil)
	history := toyText(10)
	s := e.NewSequence()
	defer s.Close()
	tokens, _ := generate(t, s, engine.Request{Prompt: history, Max: 30, Logits: true, Decoder: numbers{},
		Sample: sample.Options{RepeatPenalty: 50, RepeatLast: -1}})
	for i, x := range tokens {
		best, top := -1, math.Inf(-1)
		for id, v := range x.Logits {
			v := float64(v)
			if slices.Contains(history, int32(id)) {
				v = min(v/50, v*50)
			}
			if v > top {
				best, top = id, v
			}
		}
		if x.ID != best {
			t.Errorf("token %d: %d, want %d", i, x.ID, best)
		}
		history = append(history, int32(x.ID))
	}
	if len(tokens) != 30 {
		t.Errorf("%d tokens", len(tokens))
	}
}

// TestBreakAndCancel: a loop that is left, or whose context is cancelled,
// computes nothing more; its sequence goes on from there.
func TestBreakAndCancel(t *testing.T) {
	steps := 0
	e := toy(t, engine.Options{Context: 64}, func(*backend.Step) error { steps++; return nil })
	r := engine.Request{Prompt: toyText(20), Max: 12, Decoder: numbers{}}
	s := e.NewSequence()
	defer s.Close()
	want, _ := generate(t, s, r)

	s.Rewind(nil)
	steps = 0
	n := 0
	for range s.Generate(context.Background(), r) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 || steps != 3 {
		t.Errorf("left after 3 tokens: %d, %d steps", n, steps)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n = 0
	var last error
	for _, err := range s.Generate(ctx, r) {
		if last = err; err == nil {
			n++
		}
		if n == 4 {
			cancel()
		}
	}
	cancel()
	if n != 4 || !errors.Is(last, context.Canceled) {
		t.Errorf("cancelled after 4 tokens: %d, then %v", n, last)
	}
	if got, _ := generate(t, s, r); !slices.Equal(idsOf(got), idsOf(want)) {
		t.Errorf("after both: %v, want %v", idsOf(got), idsOf(want))
	}
}

// TestConcurrent: eight conversations at once, with prompts and options of
// their own, get what each gets alone, and leave no goroutine.
func TestConcurrent(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("eight", func(t *testing.T) {
		e := toy(t, engine.Options{Context: 128, Chunk: 16}, nil)
		ids := toyText(200)
		requests := make([]engine.Request, 8)
		var alone [][]engine.Token
		for i := range requests {
			requests[i] = engine.Request{Prompt: ids[i*20:][:3+i*7], Max: 6, Logits: true, Decoder: numbers{},
				Sample: sample.Options{Temperature: float64(i % 3), Seed: uint64(i)}}
			s := e.NewSequence()
			tokens, _ := generate(t, s, requests[i])
			alone = append(alone, tokens)
			s.Close()
		}
		var wg sync.WaitGroup
		for i, r := range requests {
			wg.Go(func() {
				s := e.NewSequence()
				defer s.Close()
				tokens, _ := generate(t, s, r)
				if !slices.Equal(idsOf(tokens), idsOf(alone[i])) {
					t.Errorf("request %d: %v, alone %v", i, idsOf(tokens), idsOf(alone[i]))
					return
				}
				for j, x := range tokens {
					if !same([][]float32{x.Logits}, [][]float32{alone[i][j].Logits}) {
						t.Errorf("request %d: token %d has other logits", i, j)
					}
				}
			})
		}
		wg.Wait()
	})
	noneLeft(t, before)
}
