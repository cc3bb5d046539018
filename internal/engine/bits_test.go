package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
)

// subject is a model and the ids that its bits are tested on.
type subject struct {
	name, path string
	ids        []int32
}

// longPrompt returns the last of a record's first eight prompts with 30 ids, or else the longest, and its ids, at most 30.
func longPrompt(t *testing.T, name string) (index, n int) {
	for _, p := range golden.Record(t, name).Prompts {
		if p.Index <= 7 && min(len(p.IDs), 30) >= n {
			index, n = p.Index, min(len(p.IDs), 30)
		}
	}
	return index, n
}

// subjects are all golden models and families, and quantized files of most formats. Gemma's
// prompts are three windows of 64 long, and go around every ring.
func subjects(t *testing.T) (list []subject) {
	add := func(name, path, model string, i, n int) {
		if !testing.Short() || name == sliding {
			list = append(list, subject{name, path, prompt(t, model, i, n)})
		}
	}
	for _, name := range golden.Sample(golden.Models(t)) {
		switch {
		case strings.HasPrefix(name, "tiny-gemma"):
			add(name, golden.Model(t, name), name, 8, 200)
		default:
			i, n := longPrompt(t, name)
			add(name, golden.Model(t, name), name, i, n)
		}
	}
	for _, name := range golden.Sample(golden.Families(t)) {
		i, n := longPrompt(t, name)
		add(name, golden.Model(t, name), name, i, n)
	}
	add("demo.Q4_K_M", demo(t), "demo", 7, 20)
	for _, name := range []string{"tiny-llama.Q2_K", "tiny-llama.IQ4_XS", "tiny-gemma4-moe.MXFP4_MOE", "tiny-gemma3.Q8_0"} {
		if p, _ := filepath.Glob(filepath.Join(golden.Dir(t), "gguf", name+".gguf")); len(p) == 1 {
			model, _, _ := strings.Cut(name, ".")
			add(name, p[0], model, 7, 20)
		}
	}
	return list
}

// kept is the number of last rows whose logits are compared. They depend on
// the keys and values of all rows before them.
const kept = 12

// TestBits computes each subject's prompt in many ways, which must all give
// the same bits: in steps of 1, 7, 32 and all rows, by 1, 2 and 8 threads, in
// one pass and as a prefill and single steps, alone and with other sequences in
// the same steps, with taps and without.
func TestBits(t *testing.T) {
	for _, s := range subjects(t) {
		t.Run(s.name+"/kv f16", func(t *testing.T) { s.bits(t, cpu.KVF16) })
		if len(s.ids) > 40 && !testing.Short() {
			s.ids = s.ids[:70]
		}
		t.Run(s.name+"/kv f32", func(t *testing.T) { s.bits(t, cpu.KVF32) })
	}
}

func (s subject) bits(t *testing.T, kv cpu.KVType) {
	if testing.Short() {
		s.ids = s.ids[:24]
	}
	_, g := openModel(t, s.path)
	engineOf := func(chunk, threads int, want func(*graph.Node) bool) *engine.Engine {
		return newEngine(t, g, cpu.New(cpu.Options{Threads: threads, KV: kv}),
			engine.Options{Context: len(s.ids), Chunk: chunk, Want: want, Tap: func(*graph.Node, []float32) {}})
	}
	want := scratch(t, engineOf(len(s.ids), 1, nil), s.ids, kept)
	check := func(way string, got [][]float32) {
		if !same(got, want) {
			t.Errorf("%s: other bits", way)
		}
	}
	check("chunk 7, 8 threads, taps", scratch(t, engineOf(7, 8, everything), s.ids, kept))
	check("chunk 32, with other sequences", together(t, engineOf(32, 2, nil), s.ids))
	if testing.Short() {
		return
	}
	check("chunk 1, 2 threads", scratch(t, engineOf(1, 2, nil), s.ids, kept))
	check("chunk 64, prefill and decode", decode(t, engineOf(64, 1, nil), s.ids))
	if s.name == sliding || len(s.ids) < 100 {
		check("chunk 32, 1 thread", scratch(t, engineOf(32, 1, nil), s.ids, kept))
		check("whole, 8 threads, taps", scratch(t, engineOf(len(s.ids), 8, everything), s.ids, kept))
	}
}

func everything(*graph.Node) bool { return true }

// decode feeds all but the last rows at once, and those one by one.
func decode(t *testing.T, e *engine.Engine, ids []int32) (logits [][]float32) {
	s := e.NewSequence()
	defer s.Close()
	feed(t, s, ids[:len(ids)-kept], 0)
	for _, id := range ids[len(ids)-kept:] {
		logits = append(logits, feed(t, s, []int32{id}, 1)...)
	}
	return logits
}

// together feeds ids in pieces, each in one step with pieces of two other
// sequences: the last rows of each of them are the only ones of their kind.
func together(t *testing.T, e *engine.Engine, ids []int32) [][]float32 {
	others := [][]int32{ids[:len(ids)/3], append([]int32{ids[0]}, ids[len(ids)/2:]...)}
	seqs := []*engine.Sequence{e.NewSequence(), e.NewSequence(), e.NewSequence()}
	var logits [][]float32
	for at, piece := 0, 1; at < len(ids); piece = piece%16 + 3 {
		end := min(len(ids), at+piece)
		release := e.Hold()
		var wg sync.WaitGroup
		queued := 0
		for i, tokens := range [][]int32{others[0], ids, others[1]} {
			from, to := min(at/2, len(tokens)), min(end/2, len(tokens))
			if i == 1 {
				from, to = at, end
			}
			if from == to {
				continue
			}
			wg.Go(func() {
				rows, err := seqs[i].Feed(context.Background(), tokens[from:to], to-from)
				if err != nil {
					t.Error(err)
				}
				if i == 1 {
					logits = append(logits, rows...)
				}
			})
			queued++
			e.WaitQueued(queued)
		}
		release()
		wg.Wait()
		at = end
	}
	for _, s := range seqs {
		s.Close()
	}
	return logits[len(logits)-kept:]
}

// hashes are the SHA-256 of the logits (float32, little-endian) after each of
// the first ids of prompt 7, as `karat run` computes them. They are the same on
// every architecture; a change that alters one alters the contract of a kernel.
var hashes = map[string]string{
	"granitehybrid":   "ee6ed7492baa6bc9cd78c3b50f8611ad44394c734c4d01f9af0d857f572265b8",
	"nemotronh":       "2a228e05827bf1a3799ba962132c7d4266daf1b13b4bfc295f9b3f34c87cc793",
	"falconh1":        "746e24d490368e8e8ee0215af4a1f295d88fbf44315f8b363543b828567b3669",
	"mamba2":          "191ce6a4aa8d893b4e6ab5dab62e293118a123cb71be046dbfb99172d7ad70bc",
	"demo.Q4_K_M":     "7f4b0b050bd68159439ac8f3a4415285c12c67e67692a552bf4b8b0822beb98d",
	"tiny-gemma3":     "a98bf2e3b87e79471d630c0dbe0208ea0f65be96b9e0ff7ca9db7af701b21bd8",
	"tiny-gemma4":     "259b7c5cd3b034174dce3bc9aec6583e221cd62c80e16f7da6ca57727672a155",
	"tiny-gemma4-moe": "996131bcb3ae11bf94d09e950a201eaaeebf1121ea22e8ee1e6a4ef0e59d8b78",
	"tiny-llama":      "dff9f1483fc28f330ef62c4fe45e3f6923fe6bb740a55c3f7f39913881e65e8f",
	"tiny-qwen2":      "f22e8b85f028e4e3ddb9221ef7f969c90c249b4d76ae34dbad0b640fc041de11",
	"tiny-qwen3":      "11f1cdb15106577f6925fc060e26b8117edbc6bc2d7c225b9a1c4ab7ca34a511",
}

// hashed runs f for each model of a table of hashes, with an engine for it and a prompt. With -short only the model of
// that name has its turn.
func hashed(t *testing.T, table map[string]string, short string, f func(t *testing.T, e *engine.Engine, g *graph.Graph, ids []int32, want string)) {
	for name, want := range table {
		if testing.Short() && name != short {
			continue
		}
		t.Run(name, func(t *testing.T) {
			model, path, n := name, "", 30
			if name == "demo.Q4_K_M" {
				model, path, n = "demo", demo(t), 12
			} else {
				path = golden.Model(t, name)
			}
			_, g := openModel(t, path)
			f(t, newEngine(t, g, cpu.New(cpu.Options{}), engine.Options{Context: 64}), g, prompt(t, model, 7, n), want)
		})
	}
}

// digest is the SHA-256 of logits, float32, little-endian.
func digest(rows [][]float32) string {
	h := sha256.New()
	for _, row := range rows {
		for _, v := range row {
			h.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestHashes(t *testing.T) {
	hashed(t, hashes, sliding, func(t *testing.T, e *engine.Engine, _ *graph.Graph, ids []int32, want string) {
		if got := digest(scratch(t, e, ids, len(ids))); got != want {
			t.Errorf("logits hash to %s, want %s", got, want)
		}
	})
	t.Run("pages of scans", func(t *testing.T) { // of random weights: the models' prompts have one page
		e := newEngine(t, backendtest.Hybrid(t, 4), cpu.New(cpu.Options{}), engine.Options{Context: 256, Chunk: 100})
		const want = "86ea7420055a302fd4bad3e05f2cca6bb5411a04a5e46a694ed3fe05a003a247"
		if got := digest(scratch(t, e, ids(e.VocabSize(), 200, 0), 200)); got != want {
			t.Errorf("logits hash to %s, want %s", got, want)
		}
	})
}

// TestTogether: what is queued at the same time is computed in one step.
func TestTogether(t *testing.T) {
	var steps [][2]int // rows and sequences
	e := toy(t, engine.Options{Context: 64, Chunk: 16}, func(s *backend.Step) error {
		seqs := map[any]bool{}
		for _, q := range s.Seqs {
			seqs[q] = true
		}
		steps = append(steps, [2]int{len(s.Tokens), len(seqs)})
		return nil
	})
	release := e.Hold()
	var wg sync.WaitGroup
	for i, n := range []int{5, 11, 3, 1, 30} {
		wg.Go(func() {
			s := e.NewSequence()
			defer s.Close()
			if _, err := s.Feed(context.Background(), toyText(n), 1); err != nil {
				t.Error(err)
			}
		})
		e.WaitQueued(i + 1)
	}
	release()
	wg.Wait()
	if len(steps) != 4 && len(steps) != 3 || steps[0] != [2]int{16, 2} {
		t.Errorf("steps of [rows, sequences] %v, want the first 16 rows of 2 sequences", steps)
	}
}
