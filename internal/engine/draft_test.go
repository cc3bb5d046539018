package engine_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

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
	n := 12
	if golden.Slow() {
		n = 60
	}
	kinds := [2]int{} // accepted, rejected
	for _, x := range subjects(t) {
		t.Run(x.name, func(t *testing.T) {
			_, g := openFor(t, x.path, 512)
			o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: g.Result().Shape.Size()}
			plain, drafting := newEngine(t, g, cpu.New(cpu.Options{}), o), newEngine(t, g, cpu.New(cpu.Options{}), o)
			drafting.Pace(func(int) time.Duration { return time.Second }) // rows cost nothing, so each draft is verified
			all := requests(x.ids, n)
			want := make([]string, len(all))
			for i, r := range all {
				s := plain.NewSequence()
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
	if kinds[0] == 0 || kinds[1] == 0 {
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
