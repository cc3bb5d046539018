package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/sample"
	"github.com/karat-run/karat/internal/tensor"
)

// choosing is a backend that chooses tokens, by the logits of another one.
type choosing struct {
	backend.Backend
	seen *[]int // steps of each choice
}

func (b choosing) Compile(g *graph.Graph, o backend.Options) (backend.Executable, error) {
	plan, err := b.Backend.Compile(g, o)
	return choosingPlan{plan, b.seen}, err
}

type choosingPlan struct {
	backend.Executable
	seen *[]int
}

func (choosingPlan) Most() (k, steps int) { return 50, 16 }

func (p choosingPlan) Choose(ctx context.Context, s *backend.Step, k, steps int) (found []backend.Likely, err error) {
	if *p.seen = append(*p.seen, steps); k > 50 || steps > 16 || k > 1 && steps > 1 {
		return nil, fmt.Errorf("the %d likeliest of %d steps", k, steps)
	}
	for range steps {
		logits, err := p.Run(ctx, s, nil)
		if err != nil {
			return nil, err
		}
		next := *s
		next.Tokens, next.Pos = nil, nil
		vocab := len(logits) / len(s.Outputs)
		for _, row := range s.Outputs {
			x := logits[:vocab]
			logits = logits[vocab:]
			first := len(found)
			for id := range x {
				found = append(found, backend.Likely{ID: int32(id), Logit: x[id]})
			}
			slices.SortStableFunc(found[first:], func(a, b backend.Likely) int { return cmp.Compare(b.Logit, a.Logit) })
			found = found[:first+k]
			next.Tokens, next.Pos = append(next.Tokens, found[first].ID), append(next.Pos, s.Pos[row]+1)
		}
		s = &next
	}
	return found, nil
}

// both are engines for one model, of which the second one's backend chooses tokens; and
// what that has chosen so far.
func both(t *testing.T, o engine.Options) (plain, far *engine.Engine, seen *[]int) {
	t.Helper()
	seen = new([]int)
	g := backendtest.Decoder(t, 1, tensor.BF16, 0, 64)
	plain = newEngine(t, g, cpu.New(cpu.Options{Threads: 2}), o)
	return plain, newEngine(t, g, choosing{cpu.New(cpu.Options{Threads: 2}), seen}, o), seen
}

// result is all that a generation shows, and how much of it the sequence keeps for what
// goes on from there. One that is longer than any context of these
// tests does not end, and is cut off.
func result(s *engine.Sequence, r engine.Request, leave int) string {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out string
	n, all := 0, slices.Clone(r.Prompt)
	for x, err := range s.Generate(ctx, r) {
		out += fmt.Sprintf("%d %q %q %v; ", x.ID, x.Text, x.Stop, err)
		all = append(all, int32(x.ID))
		if n++; n == leave {
			break
		}
		if n > 150 {
			out += "and so on; "
			break
		}
		if n == -leave {
			cancel()
		}
	}
	return fmt.Sprintf("%s%d, %d kept", out, s.Len(), s.Rewind(append(all, 0)))
}

// TestAhead: with a backend that chooses tokens, and several at once, all is as without:
// tokens, text, ends, errors, what the sequence holds afterwards, and what follows.
func TestAhead(t *testing.T) {
	plain, far, seen := both(t, engine.Options{Context: 100, Chunk: 16})
	ids := toyText(90)
	most := 0
	for name, c := range map[string]struct {
		r     engine.Request
		leave int // after so many tokens: break, or negative, cancel
	}{
		"max":           {r: engine.Request{Prompt: ids[:20], Max: 40}},
		"one":           {r: engine.Request{Prompt: ids[:20], Max: 1}},
		"none":          {r: engine.Request{Prompt: ids[:20]}},
		"context":       {r: engine.Request{Prompt: ids[:83], Max: -1}},
		"long prompt":   {r: engine.Request{Prompt: ids, Max: 5}},
		"end":           {r: engine.Request{Prompt: ids[:5], Max: 40, End: []int{3, 7, 11}}},
		"stop":          {r: engine.Request{Prompt: ids[:30], Max: 60, Stop: []string{"7><8", "4>"}}},
		"break":         {r: engine.Request{Prompt: ids[:20], Max: 40}, leave: 13},
		"cancel":        {r: engine.Request{Prompt: ids[:20], Max: 40}, leave: -13},
		"top-k":         {r: engine.Request{Prompt: ids[:20], Max: 40, Sample: sample.Options{Temperature: 1.3, TopK: 20, TopP: 0.9, Seed: 5}}},
		"large top-k":   {r: engine.Request{Prompt: ids[:20], Max: 40, Sample: sample.Options{Temperature: 1, TopK: 51, Seed: 5}}},
		"top-p":         {r: engine.Request{Prompt: ids[:20], Max: 40, Sample: sample.Options{Temperature: 1, TopP: 0.9, Seed: 5}}},
		"penalty":       {r: engine.Request{Prompt: ids[:20], Max: 40, Sample: sample.Options{RepeatPenalty: 1.5}}},
		"probabilities": {r: engine.Request{Prompt: ids[:20], Max: 40, Top: 3}},
	} {
		*seen = nil
		c.r.Decoder = numbers{}
		a, b := plain.NewSequence(), far.NewSequence()
		for range 2 { // the second one of them goes on from what the first one left
			want, got := result(a, c.r, c.leave), result(b, c.r, c.leave)
			if got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		if logits := slices.Contains([]string{"none", "large top-k", "top-p", "penalty", "probabilities"}, name); logits != (*seen == nil) {
			t.Errorf("%s: %d choices", name, len(*seen))
		}
		if len(*seen) > 0 {
			most = max(most, slices.Max(*seen))
		}
		for i, s := range []*engine.Sequence{a, b} { // cut back, each has the room that it should have
			for range s.Generate(t.Context(), c.r) {
				break
			}
			if _, err := s.Feed(t.Context(), toyText(100-s.Len()), 0); err != nil || s.Len() != 100 {
				t.Errorf("%s: sequence %d holds %d tokens, %v", name, i, s.Len(), err)
			}
			s.Close()
		}
	}
	if most < 2 { // 16 at most; how many of them follows from how long one takes
		t.Errorf("at most %d steps at once", most)
	}
}

// TestAheadTogether: sequences in common steps, greedy ones and others, have the tokens
// that each has alone, and a budget with no page left gives one step at a time its pages.
func TestAheadTogether(t *testing.T) {
	plain, far, seen := both(t, engine.Options{Context: 64, Chunk: 16, Budget: toyBytes(t, 64, 16) * 6})
	ids := toyText(90)
	var wg sync.WaitGroup
	for i := range 6 {
		r := engine.Request{Prompt: ids[i:][:3+5*i], Max: 40 - 5*i, Decoder: numbers{}, Sample: sample.Options{Temperature: float64(i / 3), TopK: 7 * (i % 3), Seed: uint64(i)}}
		a := plain.NewSequence()
		want := result(a, r, 0)
		a.Close()
		wg.Go(func() {
			s := far.NewSequence()
			defer s.Close()
			if got := result(s, r, 0); got != want {
				t.Errorf("request %d: %s, want %s", i, got, want)
			}
		})
	}
	wg.Wait()
	if len(*seen) == 0 {
		t.Error("no choices")
	}
}

// TestFollow: the likeliest tokens, with and without a backend that chooses them.
func TestFollow(t *testing.T) {
	plain, far, _ := both(t, engine.Options{Context: 50, Chunk: 16})
	a, b := plain.NewSequence(), far.NewSequence()
	defer a.Close()
	defer b.Close()
	follow := func(s *engine.Sequence) (all []int, err error) {
		next := toyText(10)
		for len(all) < 41 {
			ids, err := s.Follow(context.Background(), next, 41-len(all))
			if err != nil {
				return all, err
			}
			all = append(all, ids...)
			next = []int32{int32(ids[len(ids)-1])}
		}
		return all, nil
	}
	want, err := follow(a)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := follow(b); err != nil || !slices.Equal(got, want) || a.Len() != 50 || b.Len() != 50 {
		t.Errorf("%v, want %v; %d and %d tokens, %v", got, want, b.Len(), a.Len(), err)
	}
	if _, err := b.Follow(context.Background(), []int32{1}, 3); !errors.Is(err, engine.ErrFull) {
		t.Error(err)
	}
}
