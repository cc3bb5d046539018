package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
)

// openHead opens a family's model with a head.
func openHead(t testing.TB, name string) (plain, feeding, drafting *graph.Graph) {
	t.Helper()
	c, err := checkpoint.Open(golden.WithHead(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if plain, _, err = arch.LoadFor(c, 512); err == nil {
		feeding, drafting, _, err = arch.LoadHead(c, 512)
	}
	if err != nil || drafting == nil {
		t.Fatalf("%v, a head: %v", err, drafting != nil)
	}
	return plain, feeding, drafting
}

// TestHeadDrafts: answers have the same ids, texts and logits with drafts by the model's head as without, alone and
// under load, of few tokens, so that some drafts are right.
func TestHeadDrafts(t *testing.T) {
	for _, name := range golden.Sample(golden.Headed) {
		t.Run(name, func(t *testing.T) {
			plainGraph, feeding, drafting := openHead(t, name)
			o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: 12}
			plain := newEngine(t, plainGraph, cpu.New(cpu.Options{}), o)
			o.Head = drafting
			heading := newEngine(t, feeding, cpu.New(cpu.Options{}), o)
			heading.Pace(func(int) time.Duration { return time.Second })
			all := requests(prompt(t, name, 7, 30), 6)
			var counts struct {
				sync.Mutex
				draft.Counts
			}
			for i, r := range all {
				s := plain.NewSequence()
				want := answer(t, s, r)
				s.Close()
				for range 2 {
					s := heading.NewSequence()
					d := draft.New(r.Prompt, nil)
					r.Draft, r.Head = func() *draft.Drafter { return d }, true
					if got := answer(t, s, r); got != want {
						t.Errorf("request %d: %s, without drafts %s", i, got, want)
					}
					s.Close()
					for k, c := range d.Counts() {
						counts.Counts[k].Accepted += c.Accepted
						counts.Counts[k].Rejected += c.Rejected
					}
				}
			}
			if c := counts.Counts[draft.MTP]; c.Accepted == 0 || c.Rejected == 0 {
				t.Errorf("of the head's tokens %d were right and %d wrong", c.Accepted, c.Rejected)
			} else {
				t.Logf("of the head's tokens %d were right and %d wrong", c.Accepted, c.Rejected)
			}
		})
	}
}
