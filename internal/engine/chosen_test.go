package engine_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/kvfile"
)

// indexed are the families whose attention sees chosen positions, by an indexer's keys.
var indexed = []string{"deepseek32", "glmdsa"}

// TestPrefixChosen: keys of an indexer go with keys and values: in files, in sequences that take each other's room, and
// when drafts are rejected. Logits have the bits of a sequence alone.
func TestPrefixChosen(t *testing.T) {
	const n, last = 300, 4
	for _, name := range indexed {
		for what, kv := range map[string]cpu.KVType{"f16": cpu.KVF16, "f32": cpu.KVF32, "q8_0": cpu.KVQ8} {
			if name != indexed[0] && what != "q8_0" && !golden.Slow() {
				continue // all forms of one, and pages in both forms of each
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				_, g := openFor(t, golden.Model(t, name), 512)
				size := int64(kv.Bytes())
				engineOf := func(threads, chunk, room int) *engine.Engine {
					return newEngine(t, g, cpu.New(cpu.Options{Threads: threads, KV: kv}), engine.Options{Context: n,
						Chunk: chunk, Private: true, Tokens: g.Result().Shape.Size(),
						Budget: int64(room) * backend.CacheBytes(g, n, chunk, size, kv == cpu.KVQ8)})
				}
				wide, little := engineOf(1, n, 4), engineOf(2, 96, 1)
				var seqs [3]*engine.Sequence
				var want [3][][]float32
				for i := range seqs {
					text := ids(wide.VocabSize(), n, i)
					want[i] = scratch(t, wide, text, last)
					seqs[i] = little.NewSequence()
					defer seqs[i].Close()
					feed(t, seqs[i], text[:200], 0)
				}
				for i, s := range seqs {
					if !same(feed(t, s, ids(wide.VocabSize(), n, i)[200:], last), want[i]) {
						t.Errorf("sequence %d, after others took its room: other bits", i)
					}
				}
				if got, most := little.CacheBytes(), backend.CacheBytes(g, n, 96, size, kv == cpu.KVQ8); got != most {
					t.Errorf("one sequence's room of %d bytes has pages of %d", most, got)
				}
				text := ids(wide.VocabSize(), n, 0)
				for _, held := range []int{1, 20, 64, 129, 250} {
					s, to := wide.NewSequence(), little.NewSequence()
					feed(t, s, text[:held], 0)
					f, err := s.Carry()
					var b bytes.Buffer
					if err == nil {
						err = f.Write(&b)
					}
					if err == nil {
						f, err = kvfile.Parse(b.Bytes())
					}
					if err == nil {
						err = to.Take(f)
					}
					if err != nil {
						t.Fatalf("a file of %d tokens: %v", held, err)
					}
					if !same(feed(t, to, text[held:], last), want[0]) {
						t.Errorf("behind a file of %d tokens: other bits", held)
					}
					s.Close()
					to.Close()
				}
			})
		}
		t.Run(name+"/drafts", func(t *testing.T) {
			_, g := openFor(t, golden.Model(t, name), 512)
			o := engine.Options{Context: 512, Budget: 1 << 28, Tokens: 12}
			plain, drafting := newEngine(t, g, cpu.New(cpu.Options{}), o), newEngine(t, g, cpu.New(cpu.Options{}), o)
			drafting.Pace(func(int) time.Duration { return time.Second })
			wrong := 0
			for i, r := range requests(slices.Repeat(prompt(t, name, 2, 0), 4), 6) {
				s := plain.NewSequence()
				want := answer(t, s, r)
				s.Close()
				d := draft.New(r.Prompt, nil)
				r.Draft = func() *draft.Drafter { return d }
				s = drafting.NewSequence()
				if got := answer(t, s, r); got != want {
					t.Errorf("request %d: %s, without drafts %s", i, got, want)
				}
				s.Close()
				for _, c := range d.Counts() {
					wrong += c.Rejected
				}
			}
			if wrong == 0 {
				t.Error("no token of a draft was wrong")
			}
		})
	}
}
