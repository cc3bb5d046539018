package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tensor"
)

// narrows are graphs whose older keys and values have 8 bits: full layers, windows long and short, latents, states.
func narrows(t *testing.T) map[string]*graph.Graph {
	all := map[string]*graph.Graph{"windows": backendtest.Decoder(t, 1, tensor.Q8_0, 0, 520, 64)}
	names := []string{sliding}
	if !testing.Short() {
		all["attributes"], all["hybrid"] = backendtest.Attributes(t, 4), backendtest.Hybrid(t, 4)
		names = append(names, golden.Sample(golden.Families(t))...)
	}
	for _, name := range names {
		_, all[name] = openFor(t, golden.Model(t, name), 1024)
	}
	return all
}

// TestNarrowBits: with older positions in 8 bits logits have the same bits in steps of any size, by any number of
// threads, with taps, beside other sequences, and behind prefixes of others; in other bits than with binary16.
func TestNarrowBits(t *testing.T) {
	for name, g := range narrows(t) {
		t.Run(name, func(t *testing.T) {
			n := 700
			switch {
			case name == "hybrid":
				n = 500 // its table of positions
			case backend.Vocab(g) > 4*backendtest.Vocab && testing.Short():
				n = 400
			}
			text := ids(backend.Vocab(g), n, 0)
			engineOf := func(chunk, threads int, kv cpu.KVType, want func(*graph.Node) bool) *engine.Engine {
				o := engine.Options{Context: n, Chunk: chunk, Budget: 1 << 30, Want: want}
				if want != nil {
					o.Tap = func(*graph.Node, []float32) {}
				}
				return newEngine(t, g, cpu.New(cpu.Options{Threads: threads, KV: kv}), o)
			}
			want := scratch(t, engineOf(n, 2, cpu.KVQ8, nil), text, kept)
			narrow := slices.ContainsFunc(g.KVs(), func(s *graph.KV) bool { return backend.IsNarrow(g, s) })
			if narrow && same(want, scratch(t, engineOf(n, 2, cpu.KVF16, nil), text, kept)) {
				t.Error("the bits of binary16")
			}
			for _, x := range []struct{ chunk, threads int }{{7, 8}, {64, 1}, {100, 3}} {
				if !same(scratch(t, engineOf(x.chunk, x.threads, cpu.KVQ8, nil), text, kept), want) {
					t.Errorf("in steps of %d by %d threads: other bits", x.chunk, x.threads)
				}
			}
			e := engineOf(32, 2, cpu.KVQ8, nil)
			if !same(together(t, e, text), want) {
				t.Error("with other sequences: other bits")
			}
			if !same(decode(t, engineOf(200, 2, cpu.KVQ8, everything), text), want) {
				t.Error("prefill and decode, with taps: other bits")
			}
			r := rand.New(rand.NewPCG(7, 8))
			s := e.NewSequence()
			defer s.Close()
			edits := 4
			if golden.Slow() {
				edits = 12
			}
			for range edits { // edited prompts: back to any place, into pages in 8 bits
				at := 1 + r.IntN(n-kept-1)
				other := slices.Concat(text[:at], ids(backend.Vocab(g), 1+r.IntN(n-at), 5))
				feed(t, s, other[s.Rewind(other):], 0)
				if !same(feed(t, s, text[s.Rewind(text[:n-kept+1]):], kept), want) {
					t.Fatalf("back to %d: other bits", at)
				}
			}
			for _, at := range []int{63, 130, 320, n - 100} {
				s := e.NewSequence()
				salt := fmt.Sprint(at)
				s.Prefix(text[:at], salt)
				feed(t, s, text[:at], 0)
				s.Close()
				s = e.NewSequence()
				if s.Prefix(text[:n-kept+1], salt) == 0 && at > 64 {
					t.Errorf("nothing is left of %d tokens", at)
				}
				if !same(feed(t, s, text[s.Len():], kept), want) {
					t.Errorf("behind the first %d tokens of another: other bits", at)
				}
				s.Close()
			}
		})
	}
}

// TestNarrowDrafts: rejected drafts leave nothing where their pages are soon in 8 bits.
func TestNarrowDrafts(t *testing.T) {
	_, g := openFor(t, golden.Model(t, sliding), 1024)
	o := engine.Options{Context: 1024, Budget: 1 << 28, Tokens: g.Result().Shape.Size()}
	newOf := func() *engine.Engine { return newEngine(t, g, cpu.New(cpu.Options{KV: cpu.KVQ8}), o) }
	plain, drafting := newOf(), newOf()
	drafting.Pace(func(int) time.Duration { return time.Second })
	text := slices.Repeat(prompt(t, sliding, 8, 90), 4)
	var wrong int
	for i, r := range requests(text, 6) {
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
}

// TestNarrowReference: the CPU's rows lie much nearer to the interpreter's with the same form of keys and values than to
// float64 keys and values, of full layers, windows, latents and chunks.
func TestNarrowReference(t *testing.T) {
	for name, g := range map[string]*graph.Graph{"windows": backendtest.Decoder(t, 1, tensor.F32, 0, 520, 64),
		"attributes": backendtest.Attributes(t, 4)} {
		const n, last = 680, 100
		text := ids(backend.Vocab(g), n, 0)
		rows := func(b backend.Backend) [][]float32 {
			return scratch(t, newEngine(t, g, b, engine.Options{Context: n, Chunk: 170}), text, last)
		}
		got := rows(cpu.New(cpu.Options{KV: cpu.KVQ8, Precision: cpu.F32}))
		pages := rows(reference.Backend{Class: round.Class{KV: round.KVPages}})
		exact := rows(reference.Backend{})
		middle := func(want [][]float32) float64 { // a row may change its experts
			kl := divergences(want, got)
			slices.Sort(kl)
			return kl[last/2]
		}
		near, far := middle(pages), middle(exact)
		t.Logf("%s: KL %.1e, to float64 %.1e", name, near, far)
		if near > far/20 {
			t.Errorf("%s: a KL of %.1e, to float64 %.1e", name, near, far)
		}
	}
}

// TestNarrowKL: keys and values in 8 bits move a family's predictions by no more than allowed, or the family says how
// much. Texts are the records' prompts, to 900 tokens; rows count from the first that sees a page in 8 bits. (The table
// is in docs/numbers.md.)
func TestNarrowKL(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute")
	}
	names := append(golden.Sample(golden.Families(t)), "demo")
	if golden.Slow() {
		names = append(names, golden.Models(t)...)
	}
	for _, name := range names {
		path := demo(t)
		if name != "demo" {
			path = golden.Model(t, name)
		}
		c, g := openFor(t, path, 1024)
		var text []int32
		for len(text) < 900 {
			for _, p := range golden.Record(t, name).Prompts {
				for _, id := range p.IDs {
					text = append(text, int32(id))
				}
			}
		}
		text = text[:900]
		rows := func(kv cpu.KVType) [][]float32 {
			e := newEngine(t, g, cpu.New(cpu.Options{KV: kv, Precision: cpu.F32}), engine.Options{Context: len(text)})
			return scratch(t, e, text, len(text)-backend.Recent-64)
		}
		exact, figures := rows(cpu.KVF32), [3]float64{}
		half, narrow := divergences(exact, rows(cpu.KVF16)), divergences(exact, rows(cpu.KVQ8))
		for i := range exact {
			figures[0] += half[i] / float64(len(exact))
			figures[1] += narrow[i] / float64(len(exact))
		}
		slices.Sort(narrow)
		figures[2] = narrow[len(narrow)/2]
		t.Logf("| %s | %.1e | %.1e | %.1e | %.1e |", name, figures[0], figures[1], figures[2], narrow[len(narrow)-1])
		said := 0.0
		if c.Family.Coarse != nil {
			said = c.Family.Coarse(c.Values)
		}
		if (figures[1] > family.MostCoarse) != (said > 0) {
			t.Errorf("%s: a mean KL of %.1e, the family says %.1e", name, figures[1], said)
		}
	}
}

// divergences returns the KL divergence of each row's distributions.
func divergences(a, b [][]float32) (kl []float64) {
	logs := func(x []float32) (logs []float64) {
		sum, top := 0.0, float64(slices.Max(x))
		for _, v := range x {
			sum += math.Exp(float64(v) - top)
		}
		for _, v := range x {
			logs = append(logs, float64(v)-top-math.Log(sum))
		}
		return logs
	}
	for i := range a {
		p, q, d := logs(a[i]), logs(b[i]), 0.0
		for j := range p {
			d += math.Exp(p[j]) * (p[j] - q[j])
		}
		kl = append(kl, d)
	}
	return kl
}
