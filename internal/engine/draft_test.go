package engine_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
)

// answer hashes the ids, logits, texts and log-probabilities of an answer.
func answer(t testing.TB, s *engine.Sequence, r engine.Request) string {
	h := sha256.New()
	tokens, _ := generate(t, s, r)
	for _, x := range tokens {
		fmt.Fprintln(h, x.ID, x.Text, x.Logprob, x.Top, x.Stop)
		var b []byte
		for _, v := range x.Logits {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		h.Write(b)
	}
	return fmt.Sprintf("%d tokens, %x", len(tokens), h.Sum(nil)[:8])
}

// requests are of all kinds of sampling, behind prompts that repeat a part.
func requests(ids []int32, n int) (all []engine.Request) {
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		prompt := append([]int32{}, ids...)
		for len(prompt) < len(ids)+8+r.IntN(80) {
			at := r.IntN(len(ids))
			prompt = append(prompt, ids[at:at+r.IntN(len(ids)-at+1)]...)
		}
		q := engine.Request{Prompt: prompt, Max: 12 + r.IntN(24), Decoder: numbers{}, Logits: i%2 == 0}
		switch q.Sample.Seed = uint64(i); i % 6 {
		case 1:
			q.Sample.Temperature = 0.7
		case 2:
			q.Sample.Temperature, q.Sample.TopK, q.Sample.TopP = 1.1, 20, 0.9
		case 3:
			q.Sample.RepeatPenalty, q.Sample.PresencePenalty, q.Sample.FrequencyPenalty = 1.3, 0.2, 0.1
			q.Logprob, q.Top = true, 3
		case 4:
			q.Sample.LogitBias, q.Grammar = map[int]float32{5: 3, 6: float32(math.Inf(-1))}, laborious{}
		case 5:
			q.Stop = []string{" 7"}
		}
		all = append(all, q)
	}
	return all
}

// TestDrafts: answers have the same ids, texts and logits with drafts as without, alone and under load. Nothing of a
// wrong draft is left: later requests find the pages of the answer, and give the same bits on them.
func TestDrafts(t *testing.T) {
	n := 6 // a request of each kind
	if golden.Slow() {
		n = 60
	}
	kinds := [2]int{} // accepted, rejected
	for _, x := range subjects(t) {
		if strings.Contains(x.name, ".") && x.name != "demo.Q4_K_M" && !golden.Slow() {
			continue // other types of weights
		}
		t.Run(x.name, func(t *testing.T) {
			_, g := openFor(t, x.path, 512)
			o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: g.Result().Shape.Size()}
			plain, drafting := newEngine(t, g, cpu.New(cpu.Options{}), o), newEngine(t, g, cpu.New(cpu.Options{}), o)
			drafting.Pace(func(int) time.Duration { return time.Second }) // rows cost nothing, so each draft is verified
			all := requests(x.ids, n)
			blends := []*backend.Blend{nil, nil, blendOf(t, g, 0.25, -0.125)} // a third of the requests has adapters
			want := make([]string, len(all))
			for i, r := range all {
				s := plain.NewSequence()
				s.Adapt(blends[(i+i/6)%len(blends)])
				want[i] = answer(t, s, r)
				s.Close()
			}
			for round, workers := range []int{1, 4} {
				var wg sync.WaitGroup
				var mu sync.Mutex
				for w := range workers {
					wg.Go(func() {
						s := drafting.NewSequence()
						defer s.Close()
						for i := w; i < len(all); i += workers {
							r := all[i]
							var predicted []int32
							if i%3 == 0 {
								predicted = r.Prompt[len(r.Prompt)/2:]
							}
							d := draft.New(r.Prompt, predicted)
							r.Draft = func() *draft.Drafter { return d }
							s.Adapt(blends[(i+i/6)%len(blends)])
							if got := answer(t, s, r); got != want[i] {
								t.Errorf("round %d, request %d: %s, without drafts %s", round, i, got, want[i])
							}
							mu.Lock()
							for _, c := range d.Counts() {
								kinds[0], kinds[1] = kinds[0]+c.Accepted, kinds[1]+c.Rejected
							}
							mu.Unlock()
						}
					})
				}
				wg.Wait()
			}
		})
	}
	t.Logf("%d tokens of drafts were right, %d wrong", kinds[0], kinds[1])
	if !testing.Short() && (kinds[0] == 0 || kinds[1] == 0) {
		t.Errorf("%d tokens of drafts were right and %d wrong, want some of both", kinds[0], kinds[1])
	}
}

// TestDraftSteps: an answer that repeats its prompt takes a step for several tokens where rows cost nothing, and the
// steps of one row each where a row costs a step.
func TestDraftSteps(t *testing.T) {
	steps := func(row time.Duration) int {
		e := toy(t, engine.Options{Context: 512}, nil)
		e.Pace(func(rows int) time.Duration { return time.Second + time.Duration(rows-1)*row })
		s := e.NewSequence()
		defer s.Close()
		prompt := []int32{2, 5}
		generate(t, s, engine.Request{Prompt: prompt, Max: 100, Decoder: numbers{}, Draft: func() *draft.Drafter { return draft.New(prompt, nil) }, Sample: sample.Options{}})
		return e.Stats().Steps
	}
	if free, dear := steps(0), steps(time.Second); free > 80 || dear < 95 {
		t.Errorf("%d steps for 100 tokens where rows cost nothing, %d where a row costs a step", free, dear)
	}
}

// spelling is a grammar of the texts that begin with certain tokens.
type spelling struct{ left []int32 }

func (g *spelling) Steps() int { return 0 }

func (g *spelling) Mask() (*sample.Mask, error) {
	if len(g.left) == 0 {
		return nil, nil
	}
	return &sample.Mask{IDs: g.left[:1]}, nil
}

func (g *spelling) Accept(int) error {
	g.left = g.left[min(1, len(g.left)):]
	return nil
}

func (g *spelling) Forced(most int) (text []byte, err error) {
	for _, id := range g.left[:min(most, len(g.left))] {
		text = append(text, byte(id))
	}
	return text, nil
}

// TestForcedDrafts: a text that a grammar forces takes a step for many tokens, where its tokens are known and where
// some are others.
func TestForcedDrafts(t *testing.T) {
	forced := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4}
	say := func(force func([]byte) []int32) (text string, steps int) {
		e := toy(t, engine.Options{Context: 128}, nil)
		e.Pace(func(rows int) time.Duration { return time.Second })
		s := e.NewSequence()
		defer s.Close()
		d := draft.New([]int32{2}, nil)
		r := engine.Request{Prompt: []int32{2}, Max: 24, Decoder: numbers{}, Logits: true, Grammar: &spelling{forced}, Force: force}
		if force != nil {
			r.Draft = func() *draft.Drafter { return d }
		}
		return answer(t, s, r), e.Stats().Steps
	}
	want, most := say(nil)
	for wrong, limit := range []int{8, 18} {
		got, steps := say(func(text []byte) (ids []int32) {
			for i, id := range text {
				ids = append(ids, int32(id)+int32(wrong*(i%3/2))) // each third
			}
			return ids
		})
		if got != want || steps > limit || most < 24 {
			t.Errorf("wrong %d: %s in %d steps, without drafts %s in %d", wrong, got, steps, want, most)
		}
	}
}

// TestDraftAhead: where the backend chooses several tokens at once, answers with a drafter are the same, and the tokens
// chosen ahead are all used, since no step verifies drafts that take too long.
func TestDraftAhead(t *testing.T) {
	for name, row := range map[string]time.Duration{"free": 0, "dear": time.Hour} {
		plain, far, seen := both(t, engine.Options{Context: 512, Chunk: 16})
		far.Pace(func(rows int) time.Duration { return time.Second + time.Duration(rows-1)*row })
		for n := 1; n < 20; n += 6 {
			r := engine.Request{Prompt: toyText(n), Max: 60, Decoder: numbers{}}
			a, b := plain.NewSequence(), far.NewSequence()
			want := result(a, r, 0)
			d := draft.New(r.Prompt, nil)
			r.Draft = func() *draft.Drafter { return d }
			if got := result(b, r, 0); got != want {
				t.Errorf("%s, prompt of %d:\n%s\nwant\n%s", name, n, got, want)
			}
			if c := d.Counts()[draft.Ngram]; row > 0 && c.Accepted+c.Rejected > 4 { // until the time of rows is known
				t.Errorf("%s: drafts of %v were verified", name, c)
			}
			a.Close()
			b.Close()
		}
		most := 0
		for _, n := range *seen {
			most = max(most, n)
		}
		if row > 0 && most < 2 {
			t.Errorf("%s: at most %d steps at once", name, most)
		}
	}
}

// TestDraftClosed: a sequence closed while its tokens are taken ends the answer, with drafts and without.
func TestDraftClosed(t *testing.T) {
	for _, leave := range []bool{false, true} {
		e := toy(t, engine.Options{Context: 512, Budget: 1 << 24}, nil)
		e.Pace(func(int) time.Duration { return time.Second })
		for closing := range 12 {
			s := e.NewSequence()
			prompt, n := []int32{2, 5, 2, 5, 2, 5}, 0
			var last error
			for _, err := range s.Generate(t.Context(), engine.Request{Prompt: prompt, Max: 40, Decoder: numbers{},
				Draft: func() *draft.Drafter { return draft.New(prompt, nil) }}) {
				if last = err; n == closing {
					s.Close()
					if leave {
						break
					}
				}
				n++
			}
			if !leave && !errors.Is(last, engine.ErrClosed) {
				t.Errorf("closed after %d tokens: %v", closing, last)
			}
		}
	}
}

// TestDraftsOfMany: more sequences than a step with drafts has rows decode together, each with a drafter.
func TestDraftsOfMany(t *testing.T) {
	e := toy(t, engine.Options{Context: 128, Chunk: 256}, nil)
	e.Meet()
	e.Pace(func(int) time.Duration { return time.Second })
	var wg sync.WaitGroup
	for i := range 70 {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			prompt := []int32{int32(i % 7), 5, 2, 5, 2}
			generate(t, s, engine.Request{Prompt: prompt, Max: 10, Decoder: numbers{},
				Draft: func() *draft.Drafter { return draft.New(prompt, nil) }})
		})
	}
	wg.Wait()
}

// TestDraftCounts: the tokens verified in the last step of an answer count as well, and a caller pays for all tokens.
func TestDraftCounts(t *testing.T) {
	e := toy(t, engine.Options{Context: 512}, nil)
	e.Pace(func(int) time.Duration { return time.Second })
	prompt := []int32{2, 5}
	s := e.NewSequence()
	defer s.Close()
	tokens, _ := generate(t, s, engine.Request{Prompt: prompt, Max: 30, Decoder: numbers{}})
	var told []int32
	for _, x := range tokens {
		told = append(told, int32(x.ID))
	}
	before := e.Served("a")
	d := draft.New(prompt, told)
	generate(t, s, engine.Request{Prompt: prompt, Max: 30, Decoder: numbers{}, Caller: engine.Caller{Key: "a"},
		Draft: func() *draft.Drafter { return d }})
	c := d.Counts()[draft.Prediction]
	if c.Accepted < 25 || c.Rejected > 0 {
		t.Errorf("of an answer predicted in full %d tokens are accepted and %d rejected", c.Accepted, c.Rejected)
	}
	if n := e.Served("a") - before; n < 29 || n > 32 {
		t.Errorf("%d tokens are on the account of an answer of 30", n)
	}
}
