package webgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// choose is what the next step, of tokens, and some more find likeliest.
func (r *runner) choose(k, steps int, tokens ...int32) []backend.Likely {
	r.t.Helper()
	s := r.step(tokens)
	if err := r.seq.Grow(steps - 1); err != nil {
		r.t.Fatal(err)
	}
	found, err := r.plan.(backend.Chooser).Choose(r.t.Context(), s, k, steps)
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// ranks is the k likeliest tokens by their definition: an error is likelier than all
// else, and -0 is 0.
func ranks(logits []float32, k int) []backend.Likely {
	all := make([]backend.Likely, len(logits))
	for id, x := range logits {
		all[id] = backend.Likely{ID: int32(id), Logit: x}
	}
	rank := func(x float32) float64 {
		if x != x {
			return math.Inf(1)
		}
		return float64(x)
	}
	slices.SortStableFunc(all, func(a, b backend.Likely) int {
		switch x, y := rank(a.Logit), rank(b.Logit); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return all[:min(k, len(all))]
}

// odd fills rows of logits: with random numbers, ties, errors, zeros of both signs,
// subnormal numbers, and what bans tokens.
func odd(r *rand.Rand, rows [][]float32) {
	inf, tiny := float32(math.Inf(1)), math.Float32frombits(1)
	for i, row := range rows {
		for id := range row {
			x := float32(r.NormFloat64() * 5)
			switch i {
			case 1:
				x = float32(math.Round(float64(x)) / 2)
			case 2:
				x = -3
			case 3:
				x = []float32{0, float32(math.Copysign(0, -1)), tiny, -tiny, 2 * tiny}[r.IntN(5)]
			case 4:
				x = -inf
			case 5:
				x = []float32{-inf, x}[r.IntN(2)]
			case 6:
				x = -math.MaxFloat32
			}
			row[id] = x
		}
		at := func() *float32 { return &row[r.IntN(len(row))] }
		switch i {
		case 6:
			*at() = math.MaxFloat32
		case 7:
			*at() = float32(math.NaN())
		case 8:
			*at(), *at() = inf, math.Float32frombits(0xffc00001)
		case 9:
			*at(), *at() = inf, inf
		case 10:
			row[len(row)-1] = 100
		case 11:
			row[0], row[len(row)-1] = 100, 100
		}
	}
}

// TestTop: the likeliest tokens are those of the definition, whatever is among the logits
// and however many there are.
func TestTop(t *testing.T) {
	d := device(t)
	r := rand.New(rand.NewPCG(9, 10))
	for _, size := range []int{1, 2, 3, 255, 256, 257, 2047, 2048, 2049, 4097, 65535, 65537, 70001, 200000} {
		if size > 100000 && !golden.Slow() {
			continue
		}
		w := floats(r, 16, size)
		rows, tokens := make([][]float32, 16), make([]int32, 16)
		for i := range rows {
			rows[i], tokens[i] = make([]float32, size), int32(i)
		}
		odd(r, rows)
		for i, row := range rows {
			copy(w.Data[4*size*i:], bytesIn(row))
		}
		b := graph.New()
		b.Outputs(b.Embed(w, 16, size, 1))
		g, err := b.Graph()
		if err != nil {
			t.Fatal(err)
		}
		o := backend.Options{Rows: 16}
		if n := size - 44; n > 256 { // of a vocabulary that is smaller than the model's rows
			o.Tokens = n
			for i := range rows {
				rows[i] = rows[i][:n]
			}
		}
		run := startWith(t, New(d, Options{}), g, o)
		longest := make([][]backend.Likely, len(rows))
		for i, row := range rows {
			longest[i] = ranks(row, 256)
		}
		for _, k := range []int{1, 2, 40, 255, 256} {
			if size > 10000 && k != 1 && k != 40 && !golden.Slow() {
				continue
			}
			found := run.choose(k, 1, tokens...)
			for i := range rows {
				got, want := found[i*k:(i+1)*k], longest[i][:min(k, len(longest[i]))]
				for j, x := range got {
					if j < len(want) && (x.ID != want[j].ID || math.Float32bits(x.Logit) != math.Float32bits(want[j].Logit)) || j >= len(want) && !math.IsInf(float64(x.Logit), -1) {
						t.Fatalf("%d logits, row %d: number %d of %d is %+v, want %+v", size, i, j, k, x, want[min(j, len(want)-1)])
					}
				}
			}
		}
	}
}

// TestEmbed: the rows of a table that the GPU reads, for tokens that it chose and for those
// of a step, are those that the host reads, to the bit, for all types, in shards, and for a
// token that the table does not have its last. Products of subnormal numbers may be zeros: Dawn
// on llvmpipe makes them so, and GPUs.
func TestEmbed(t *testing.T) {
	d := device(t)
	flushes := os.Getenv("KARAT_WEBGPU_LIB") != "" || !strings.Contains(d.Adapter().Name, "llvmpipe")
	r := rand.New(rand.NewPCG(11, 12))
	for dt := tensor.DType(0); dt < 64; dt++ {
		l, err := layoutOf(dt, 512)
		if err != nil {
			continue
		}
		halves := scales[dt]
		for _, k := range []int{512, 31} {
			const vocab = 300
			if l.Plain == "" && k%dt.BlockSize() != 0 {
				continue
			}
			t.Run(fmt.Sprint(dt, "/", k), func(t *testing.T) {
				w := weightOf(r, dt, half, halves, vocab, k)
				b := graph.New()
				b.Outputs(b.Embed(w, vocab, k, 1.5))
				g, err := b.Graph()
				if err != nil {
					t.Fatal(err)
				}
				back := New(d, Options{})
				back.all, back.memory.limit = true, 1<<16
				run := start(t, back, g, 4, nil)
				check := func(got []float32, tokens ...int32) {
					t.Helper()
					want := make([]float32, len(tokens)*k)
					if err := embeddings(bytesIn(want), g.Nodes[0], tokens, g.Nodes[0].Attr.(graph.EmbedAttr).Scale); err != nil {
						t.Fatal(err)
					}
					for i, x := range want {
						tiny := flushes && math.Abs(float64(x)) < 0x1p-122 && got[i] == 0
						if math.Float32bits(got[i]) != math.Float32bits(x) && (x == x || got[i] == got[i]) && !tiny {
							t.Fatalf("token %d: element %d is %v, want %v", tokens[i/k], i%k, got[i], x)
						}
					}
				}
				check(run.run(7, 299, 0, 150), 7, 299, 0, 150)
				for id := range int32(20) {
					found := run.choose(1, 2, id*13)
					got := make([]float32, k)
					var list gpu.List
					e := run.plan.(*executable).whole
					list.Read(bytesIn(got), e.last.out, 0)
					if err := d.gpu.Run(&list); err != nil {
						t.Fatal(err)
					}
					check(got, min(found[0].ID, vocab-1))
				}
			})
		}
	}
}

// TestChoose: steps ahead find the tokens and logits that steps one by one find, alone and
// beside other sequences, with windows and over the edges of pages.
func TestChoose(t *testing.T) {
	d := device(t)
	for _, dt := range []tensor.DType{tensor.F32, tensor.Q4_0} {
		g := backendtest.Decoder(t, 12, dt, 0, 7)
		more := New(d, Options{})
		more.all = true
		slow, fast := start(t, New(d, Options{}), g, 32, nil), start(t, more, g, 32, nil)
		prompt := make([]int32, 30)
		for i := range prompt {
			prompt[i] = int32(i * 7 % 16)
		}
		want := slow.choose(1, 1, prompt...)[29:]
		got := fast.choose(1, 1, prompt...)[29:]
		for len(got) < 120 {
			got = append(got, fast.choose(1, 1+len(got)%ahead, got[len(got)-1].ID)...)
		}
		for len(want) < len(got) {
			logits := slow.run(want[len(want)-1].ID)
			want = append(want, ranks(logits, 1)...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: steps ahead find %v, one by one %v", dt, got, want)
		}
	}
}

// TestChooseValues: a step that chooses tokens has the values of nodes that a step with logits has.
func TestChooseValues(t *testing.T) {
	d := device(t)
	g := backendtest.Decoder(t, 12, tensor.F32, 0, 7)
	n := g.Result().In[0]
	keep := func(x *graph.Node) bool { return x == n }
	tokens, of := []int32{3, 1, 4, 1, 5}, [2][]float32{}
	for i := range of {
		b := New(d, Options{})
		b.all = true
		r := startWith(t, b, g, backend.Options{Rows: 8, Keep: keep})
		of[i] = make([]float32, n.Shape.Size())
		s := r.step(tokens)
		s.Values = []backend.Value{{Node: n, Row: 4, Out: of[i]}}
		var err error
		if i == 0 {
			_, err = r.plan.Run(t.Context(), s, nil)
		} else {
			_, err = r.plan.(backend.Chooser).Choose(t.Context(), s, 1, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(of[0], of[1]) || !slices.ContainsFunc(of[0], func(v float32) bool { return v != 0 }) {
		t.Errorf("with logits %v, with chosen tokens %v", of[0], of[1])
	}
}

// TestReserve: what is reserved for several steps has room for the tables of each, of which
// the last one's need not be the largest: a window may end a page before.
func TestReserve(t *testing.T) {
	const steps, window = 16, 41
	r := start(t, New(device(t), Options{}), block(t, tensor.Q4_0, 64, window), 128, nil)
	c := r.c.(*cache)
	s := &backend.Step{Outputs: []int32{0, 1}}
	for range 2 {
		seq := r.pool.NewSequence()
		if err := seq.Grow(95 + steps); err != nil {
			t.Fatal(err)
		}
		s.Tokens, s.Pos, s.Seqs = append(s.Tokens, 1), append(s.Pos, 95), append(s.Seqs, seq)
	}
	one := &backend.Step{Tokens: s.Tokens[:1], Pos: []int32{5}, Seqs: s.Seqs[:1], Outputs: s.Outputs[:1]}
	for _, x := range []struct {
		s     *backend.Step
		steps int
	}{{one, 1}, {s, steps}} {
		if err := c.reserve(parts(x.s), x.steps, nil); err != nil {
			t.Fatal(err)
		}
	}
	for class, table := range c.tables[every] {
		for i := range steps {
			if n := len(c.table(later(s, i), class)); n > table.Size() {
				t.Errorf("step %d of class %d: a table of %d bytes, %d are reserved", i, class, n, table.Size())
			}
		}
	}
}
