package webgpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// TestFaults are the faults that an engine on WebGPU has published of itself, each
// as what would show it here.
func TestFaults(t *testing.T) {
	d := device(t)
	for name, f := range map[string]func(t *testing.T, d *Device){
		"packed or row-wise blocks":             packedBlocks,
		"the minimum's sign":                    minimumSign,
		"fields of the host's structs swapped":  swappedFields,
		"more than 65535 workgroups":            manyWorkgroups,
		"a binding that was optimized away":     unusedBinding,
		"a shader that does not compile":        brokenShader,
		"readback before submit":                earlyReadback,
		"buffers after an odd number of layers": oddLayers,
		"uniforms evicted while commands wait":  manyUniforms,
		"f16 written where f32 is read":         mixedCaches,
		"prefill's kernel used in decode":       prefillInDecode,
		"argmax past 65536":                     wideLogits,
		"a pool's padding in what is seen":      poisoned,
		"keys and values of the run before":     cacheReset,
		"a batch of one and of many":            batches,
		"probes change the logits":              probes,
		"a scale without a fence":               chain,
		"a device that is lost":                 lostDevice,
		"memory kept by what has failed":        failedGrowth,
		"weights larger than a binding":         shards,
	} {
		t.Run(name, func(t *testing.T) { f(t, d) })
	}
}

// weightOf is a weight whose bytes are random, but for its scales: halves tell where
// these binary16 lie in a block, and get the value scale.
func weightOf(r *rand.Rand, d tensor.DType, scale uint16, halves []int, shape ...int) *graph.Weight {
	size, err := tensor.Bytes(d, shape)
	if err != nil {
		panic(err) // of a shape in this file
	}
	w := &graph.Weight{GGUF: "w", HF: "w", Tensor: tensor.Tensor{Name: "w", DType: d, Shape: shape, Data: make([]byte, size)}}
	for i := range w.Data {
		w.Data[i] = byte(r.Uint32())
	}
	for b := w.Data; len(b) > 0; b = b[d.BlockBytes():] {
		for _, at := range halves {
			binary.LittleEndian.PutUint16(b[at:], scale)
		}
	}
	return w
}

// floats is a float32 weight of random numbers.
func floats(r *rand.Rand, shape ...int) *graph.Weight {
	w := &graph.Weight{GGUF: "w", HF: "w", Tensor: tensor.Tensor{Name: "w", DType: tensor.F32, Shape: shape}}
	for range w.Shape.Size() {
		w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(float32(r.NormFloat64())))
	}
	return w
}

// made is a graph whose last node is build's, of a row of size random numbers for each
// of 16 tokens.
func made(t *testing.T, size int, build func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node) *graph.Graph {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	b := graph.New()
	b.Outputs(build(b, r, b.Embed(floats(r, 16, size), 16, size, 1)))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runner runs steps of one sequence.
type runner struct {
	t    *testing.T
	plan backend.Executable
	c    backend.Cache
	pool *kv.Pool
	seq  *kv.Sequence
}

func start(t *testing.T, b backend.Backend, g *graph.Graph, rows int, want func(*graph.Node) bool) *runner {
	t.Helper()
	return startWith(t, b, g, backend.Options{Rows: rows, Want: want})
}

func startWith(t *testing.T, b backend.Backend, g *graph.Graph, o backend.Options) *runner {
	t.Helper()
	t.Cleanup(func() { b.Close() })
	plan, err := b.Compile(g, o)
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 1024, Chunk: o.Rows})
	c, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	return &runner{t, plan, c, pool, pool.NewSequence()}
}

// step makes room for tokens.
func (r *runner) step(tokens []int32) *backend.Step {
	r.t.Helper()
	at := r.seq.Len()
	if err := r.seq.Grow(len(tokens)); err != nil {
		r.t.Fatal(err)
	}
	s := &backend.Step{Tokens: tokens, Cache: r.c}
	for i := range tokens {
		s.Pos, s.Seqs, s.Outputs = append(s.Pos, int32(at+i)), append(s.Seqs, r.seq), append(s.Outputs, int32(i))
	}
	return s
}

// run computes the logits of tokens.
func (r *runner) run(tokens ...int32) []float32 {
	r.t.Helper()
	y, err := r.plan.Run(r.t.Context(), r.step(tokens), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.Clone(y)
}

// near wants got to be want but for rounding.
func near(t *testing.T, got, want []float32, bound float64) {
	t.Helper()
	var diff, norm float64
	for i, v := range want {
		diff, norm = diff+float64(got[i]-v)*float64(got[i]-v), norm+float64(v)*float64(v)
	}
	if len(got) != len(want) || !(math.Sqrt(diff) <= bound*math.Sqrt(norm)) {
		t.Errorf("relative error %.3g, at most %.3g; %d and %d values", math.Sqrt(diff/norm), bound, len(got), len(want))
	}
}

func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// asRef compares rows of g with package reference's.
func asRef(t *testing.T, d *Device, g *graph.Graph, rows int) {
	t.Helper()
	tokens := make([]int32, rows)
	for i := range tokens {
		tokens[i] = int32(i * 5 % 16)
	}
	got := start(t, New(d, Options{F32KV: true}), g, rows, nil).run(tokens...)
	near(t, got, start(t, reference.Backend{}, g, rows, nil).run(tokens...), 1e-6)
}

// half is a binary16 of 2^-6.
const half = 0x2400

// packedBlocks: rows of 1152 weights are 36 blocks of 32, and no whole ones of 256; the
// blocks of a row follow each other, and the next row's follow them.
func packedBlocks(t *testing.T, d *Device) {
	for dt, halves := range map[tensor.DType][]int{tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0}, tensor.IQ4_NL: {0}} {
		t.Run(dt.String(), func(t *testing.T) {
			asRef(t, d, made(t, 1152, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
				return b.Linear(weightOf(r, dt, half, halves, 45, 1152), x, 45)
			}), 3)
		})
	}
	w := weightOf(rand.New(rand.NewPCG(1, 1)), tensor.Q8_0, half, []int{0}, 4, 1152)
	w.DType, w.Data = tensor.Q4_K, w.Data[:4*4*144]
	g := made(t, 1152, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node { return b.Linear(w, x, 4) })
	b := New(d, Options{})
	defer b.Close()
	if _, err := b.Compile(g, backend.Options{}); err == nil || !strings.Contains(err.Error(), "rows of 1152 elements are no multiple of Q4_K's blocks of 256") {
		t.Errorf("rows of 4.5 blocks: %v", err)
	}
}

// minimumSign: where all codes are 0, what is left of a weight is its minimum, which
// blocks of 256 subtract and those of 32 add.
func minimumSign(t *testing.T, d *Device) {
	for dt, halves := range map[tensor.DType][]int{tensor.Q4_1: {0, 2}, tensor.Q5_1: {0, 2}, tensor.Q2_K: {80, 82}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}} {
		t.Run(dt.String(), func(t *testing.T) {
			asRef(t, d, made(t, 512, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
				w := weightOf(r, dt, half, halves, 9, 512)
				scales := map[tensor.DType][2]int{tensor.Q4_1: {0, 4}, tensor.Q5_1: {0, 4}, tensor.Q2_K: {0, 16}, tensor.Q4_K: {0, 16}, tensor.Q5_K: {0, 16}}[dt]
				for block := w.Data; len(block) > 0; block = block[dt.BlockBytes():] {
					for i := range dt.BlockBytes() {
						if (i < scales[0] || i >= scales[1]) && !slices.Contains(halves, i) && !slices.Contains(halves, i-1) {
							block[i] = 0
						}
					}
				}
				return b.Linear(w, x, 9)
			}), 2)
		})
	}
}

// swappedFields: each kernel's Params are packed in the shader's order by name.
func swappedFields(t *testing.T, _ *Device) {
	for shader, c := range map[string]struct {
		variant any
		fields  string // in the shader's order; those with a star are float32
	}{
		"map":       {variant{"Is": "a * p.value"}, "size period value*"},
		"norm":      {chainVariant{order: orderOf(2), Weight: true, Add: true, Next: true}, "vectors zero eps* offset* next_eps* next_offset*"},
		"head":      {headVariant{order: orderOf(8), Dim: 8, Store: true, Values: true}, "size heads pairs eps* offset* value_eps*"},
		"rope":      {nil, "size heads pairs"},
		"pick":      {variant{"Gather": true}, "size width offset"},
		"order":     {variant{"Experts": true}, "k choices share"},
		"store":     {variant{"F16": true, "Latent": false, "What": ""}, "width wide"},
		"attention": {attentionVariant{seenVariant: seenVariant{F16: true, Dim: 8, Chunk: 8, ValueDim: 8}, Groups: 4}, "heads kv_heads window scale*"},
		"join":      {joinVariant{ValueDim: 8}, "heads window"},
		"turn":      {variant{"F16": true}, "size queries width pairs"},
		"route":     {nil, "experts choices"},
		"combine":   {variant{"Weighed": true}, "size choices"},
		"top":       {topVariant{}, "size before tokens"},
		"embed":     {layout{Plain: "f32"}, "n k first rows scale*"},
		"low":       {nil, "k node rows"},
		"adapt":     {nil, "n k node rows"},
	} {
		numbers := params{}
		for i, name := range strings.Fields(c.fields) {
			if name, float := strings.CutSuffix(name, "*"); float {
				numbers[name] = float32(i + 1)
			} else {
				numbers[name] = i + 1
			}
		}
		k, err := newKernel(shader, c.variant)
		if err != nil {
			t.Fatal(err)
		}
		data, err := k.pack(numbers)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, f := range k.fields {
			want := uint32(i + 1)
			if f.float {
				want = math.Float32bits(float32(i + 1))
			}
			if got := binary.LittleEndian.Uint32(data[4*i:]); got != want {
				t.Errorf("%s: %s is %#x, want %#x", shader, f.name, got, want)
			}
		}
	}
}

// manyWorkgroups: 33 rows of 2000 vectors of 2 are 66,000 workgroups.
func manyWorkgroups(t *testing.T, d *Device) {
	asRef(t, d, made(t, 4000, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node {
		return b.Normalize(b.Heads(x, 2), 1e-6)
	}), 33)
}

// unusedBinding: newKernel refuses it (TestKernelErrors), so all variants that plans
// have use all of theirs.
func unusedBinding(t *testing.T, _ *Device) {
	if n := len(variants(t)); n < 60 {
		t.Errorf("%d variants", n)
	}
}

// faulty is a GPU that fails.
type faulty struct {
	gpu.Device
	run, compile error
}

func (f *faulty) Run(l *gpu.List) error {
	if f.run != nil {
		return f.run
	}
	return f.Device.Run(l)
}

func (f *faulty) NewPipeline(name, wgsl string, access []gpu.Access) (gpu.Pipeline, error) {
	if f.compile != nil {
		return nil, f.compile
	}
	return f.Device.NewPipeline(name, wgsl, access)
}

// brokenShader: the error names the node, where it was recorded, and the kernel.
func brokenShader(t *testing.T, d *Device) {
	f := &faulty{Device: d.gpu, compile: errors.New("no shader")}
	b := New(newDevice(f), Options{})
	defer b.Close()
	g := made(t, 8, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node {
		return b.Name(b.Scale(x, 2), "doubled", "")
	})
	if _, err := b.Compile(g, backend.Options{}); err == nil || !strings.Contains(err.Error(), "doubled (faults_test.go:") || !strings.Contains(err.Error(), "no shader") {
		t.Error(err)
	}
}

// lostDevice: the step fails with an error that names what ran, and so do later ones,
// without harm.
func lostDevice(t *testing.T, d *Device) {
	f := &faulty{Device: d.gpu}
	g := backendtest.Decoder(t, 3, tensor.Q8_0, 0)
	r := start(t, New(newDevice(f), Options{}), g, 4, nil)
	r.run(1, 2)
	f.run = fmt.Errorf("gpu: X: %w: error -4", gpu.ErrLost)
	for range 2 {
		_, err := r.plan.Run(t.Context(), r.step([]int32{3}), nil)
		if !errors.Is(err, gpu.ErrLost) {
			t.Fatal(err)
		}
		if text := err.Error(); strings.HasPrefix(text, "webgpu: ") || !strings.Contains(text, " dispatches from ") || !strings.Contains(text, "softcap") {
			t.Error(text)
		}
	}
}

// failedGrowth: a cache that could not grow holds no more than before.
func failedGrowth(t *testing.T, d *Device) {
	f := &faulty{Device: d.gpu}
	r := start(t, New(newDevice(f), Options{}), backendtest.Decoder(t, 3, tensor.Q8_0, 0), 128, nil)
	r.run(1, 2)
	made := len(r.b().memory.made)
	f.run = errors.New("fails")
	if _, err := r.plan.Run(t.Context(), r.step(make([]int32, 128)), nil); err == nil || !strings.Contains(err.Error(), "keys and values of layer 0: fails") {
		t.Error(err)
	}
	if n := len(r.b().memory.made); n != made {
		t.Errorf("%d buffers and groups, %d before", n, made)
	}
}

// earlyReadback: reads are commands of the list that computes, so there is none before
// it; what a tap gets is what the node has just computed, also in a second step.
func earlyReadback(t *testing.T, d *Device) {
	g := made(t, 8, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node { return b.Scale(b.Scale(x, 2), 3) })
	r := start(t, New(d, Options{}), g, 2, func(*graph.Node) bool { return true })
	for _, token := range []int32{1, 7, 3} {
		var taps [][]float32
		if _, err := r.plan.Run(t.Context(), r.step([]int32{token}), func(_ *graph.Node, out []float32) { taps = append(taps, slices.Clone(out)) }); err != nil {
			t.Fatal(err)
		}
		for i, v := range taps[0] {
			if taps[1][i] != 2*v || taps[2][i] != 6*v || taps[3][i] != 6*v {
				t.Fatalf("token %d: %v", token, taps)
			}
		}
	}
}

// oddLayers: with one, two and three layers the last one's result is read.
func oddLayers(t *testing.T, d *Device) {
	for layers := 1; layers <= 3; layers++ {
		g := backendtest.Decoder(t, 4, tensor.F32, make([]int, layers)...)
		got := start(t, New(d, Options{F32KV: true}), g, 4, nil).run(1, 2, 3, 4)
		near(t, got, start(t, reference.Backend{}, g, 4, nil).run(1, 2, 3, 4), 3e-6)
	}
}

// manyUniforms: a list has more kernels than one of the arena's buffers has places.
func manyUniforms(t *testing.T, d *Device) {
	const n = 2*arenaBytes/256 + 50
	g := made(t, 4, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node {
		for i := range n {
			x = b.Scale(x, []float64{3, 1. / 3, 1, 1}[i%4])
		}
		return b.Scale(x, 5)
	})
	asRef(t, d, g, 3)
}

// mixedCaches: a cache is of one backend, and so of one form.
func mixedCaches(t *testing.T, d *Device) {
	g := backendtest.Decoder(t, 6, tensor.F32, 0)
	wide, narrow := start(t, New(d, Options{F32KV: true}), g, 4, nil), start(t, New(d, Options{}), g, 4, nil)
	s := wide.step([]int32{1, 2})
	if _, err := narrow.plan.Run(t.Context(), s, nil); err == nil {
		t.Error("a plan for binary16 ran with a cache of float32")
	}
	near(t, narrow.run(1, 2, 3), start(t, reference.Backend{}, g, 4, nil).run(1, 2, 3), 3e-3)
	if a, b := wide.c.Bytes(), narrow.c.Bytes(); a != 0 || b == 0 {
		t.Errorf("%d and %d bytes", a, b)
	}
}

// prefillInDecode: the plan for many rows and the one for one give a row the same bits.
func prefillInDecode(t *testing.T, d *Device) {
	g := backendtest.Decoder(t, 7, tensor.Q4_1, 0, 7)
	b := New(d, Options{})
	many, one := start(t, b, g, 64, nil), start(t, New(d, Options{}), g, 1, nil)
	for i := range int32(9) {
		if !same(many.run(i), one.run(i)) {
			t.Fatalf("position %d has other bits", i)
		}
	}
}

// wideLogits: of 70,001 logits the largest is the one that ref has, past 65,536, and the
// GPU chooses it, too.
func wideLogits(t *testing.T, d *Device) {
	const vocab, top = 70001, 65900
	g := made(t, 3, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		w := floats(r, vocab, 3)
		for i := range 3 {
			copy(w.Data[(top*3+i)*4:], binary.LittleEndian.AppendUint32(nil, math.Float32bits(100)))
		}
		return b.Linear(w, b.Normalize(x, 1e-6), vocab)
	})
	got, want := start(t, New(d, Options{}), g, 2, nil).run(3, 8), start(t, reference.Backend{}, g, 2, nil).run(3, 8)
	near(t, got, want, 1e-6)
	chosen := start(t, New(d, Options{}), g, 2, nil).choose(1, 1, 3, 8)
	for row := range 2 {
		a, b := got[row*vocab:(row+1)*vocab], want[row*vocab:(row+1)*vocab]
		if i, j := slices.Index(a, slices.Max(a)), slices.Index(b, slices.Max(b)); i != j || int(chosen[row].ID) != j {
			t.Errorf("row %d: the largest logit is %d's, the GPU chooses %d, want %d", row, i, chosen[row].ID, j)
		}
	}
}

// poisoned: with NaNs in every buffer that is free, and in the parts of buffers that a
// step does not use, nothing changes: not the logits, nor what taps see, nor what is
// computed together where there are none.
func poisoned(t *testing.T, d *Device) {
	for i, g := range []*graph.Graph{backendtest.Decoder(t, 8, tensor.Q4_0, 0, 7), fusible(t)} {
		collect := func(poison bool, rows int, want func(*graph.Node) bool) (all [][]float32) {
			b := New(d, Options{})
			b.poison = poison
			r := start(t, b, g, rows, want)
			for _, tokens := range [][]int32{{1, 2, 3, 4, 5}, {6}, {7, 8}, {5, 4, 3, 2, 1, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8}} {
				y, err := r.plan.Run(t.Context(), r.step(tokens), func(_ *graph.Node, out []float32) { all = append(all, slices.Clone(out)) })
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, slices.Clone(y))
			}
			return all
		}
		for _, want := range []func(*graph.Node) bool{nil, func(*graph.Node) bool { return true }} {
			if clean, dirty := collect(false, 17, want), collect(true, 40, want); !slices.EqualFunc(clean, dirty, same) {
				t.Errorf("graph %d, taps %v: NaNs in free memory change what is computed", i, want != nil)
			}
		}
	}
}

// cacheReset: a sequence in pages that another one has left has the bits of one in new
// pages.
func cacheReset(t *testing.T, d *Device) {
	g := backendtest.Decoder(t, 9, tensor.F16, 0, 7)
	used, fresh := start(t, New(d, Options{}), g, 16, nil), start(t, New(d, Options{}), g, 16, nil)
	used.run(9, 8, 7, 6, 5, 4, 3, 2, 1)
	used.seq.Free()
	used.seq = used.pool.NewSequence()
	if !same(used.run(1, 2, 3), fresh.run(1, 2, 3)) {
		t.Error("the run before shows")
	}
}

// batches: a sequence alone, and beside three others, has the same bits, and so it has
// the same tokens, one by one and several at once.
func batches(t *testing.T, d *Device) {
	g := backendtest.Decoder(t, 10, tensor.Q8_0, 0, 7)
	b := New(d, Options{})
	b.all = true
	alone, beside := start(t, New(d, Options{}), g, 16, nil), start(t, b, g, 16, nil)
	tokens := []int32{5, 6, 7}
	s := &backend.Step{Cache: beside.c}
	for q := range 4 {
		seq := beside.pool.NewSequence()
		if err := seq.Grow(len(tokens)); err != nil {
			t.Fatal(err)
		}
		for i, id := range tokens {
			if q != 2 {
				id += int32(q) + 1
			}
			s.Outputs = append(s.Outputs, int32(len(s.Tokens)))
			s.Tokens, s.Pos, s.Seqs = append(s.Tokens, id), append(s.Pos, int32(i)), append(s.Seqs, seq)
		}
	}
	all, err := beside.plan.Run(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	one := alone.run(tokens...)
	if !same(all[2*len(one):3*len(one)], one) {
		t.Error("the others show")
	}
	const steps = 6
	s = &backend.Step{Tokens: []int32{1, 2, 3, 4}, Pos: []int32{3, 3, 3, 3}, Outputs: []int32{0, 1, 2, 3}, Seqs: []*kv.Sequence{s.Seqs[0], s.Seqs[3], s.Seqs[6], s.Seqs[9]}, Cache: beside.c}
	for _, seq := range s.Seqs {
		if err := seq.Grow(steps); err != nil {
			t.Fatal(err)
		}
	}
	together, err := beside.plan.(backend.Chooser).Choose(t.Context(), s, 1, steps)
	if err != nil {
		t.Fatal(err)
	}
	next := []int32{3}
	for i := range steps {
		if next[0] = ranks(alone.run(next...), 1)[0].ID; next[0] != together[4*i+2].ID {
			t.Errorf("token %d is %d, and %d beside others, of several steps at once", i, next[0], together[4*i+2].ID)
		}
	}
}

// probes: a plan that shows every node, one that could but is not asked to, and one that
// cannot have the same logits.
func probes(t *testing.T, d *Device) {
	g := backendtest.Decoder(t, 11, tensor.Q4_0, 0)
	want := start(t, New(d, Options{}), g, 8, nil).run(1, 2, 3)
	r := start(t, New(d, Options{}), g, 8, func(*graph.Node) bool { return true })
	seen := 0
	got, err := r.plan.Run(t.Context(), r.step([]int32{1, 2, 3}), func(*graph.Node, []float32) { seen++ })
	if err != nil || !same(got, want) || seen < 20 {
		t.Errorf("%d probes change the logits, %v", seen, err)
	}
	r.seq = r.pool.NewSequence()
	if !same(r.run(1, 2, 3), want) {
		t.Error("probes that nobody reads change the logits")
	}
}

// chain: a hundred operations, each of which needs the one before it, in one list, over
// rows that many workgroups share.
func chain(t *testing.T, d *Device) {
	g := made(t, 2048, func(b graph.Builder, _ *rand.Rand, x *graph.Node) *graph.Node {
		for range 50 {
			x = b.Normalize(b.Add(x, b.Scale(x, 0.5)), 1e-6)
		}
		return x
	})
	r := start(t, New(d, Options{}), g, 16, nil)
	first := r.run(1, 2, 3, 4, 5, 6, 7, 8)
	asRef(t, d, g, 8)
	for range 5 {
		if !same(r.run(1, 2, 3, 4, 5, 6, 7, 8), first) {
			t.Fatal("other bits in another run")
		}
	}
}

// shards: with a small limit a weight lies in several buffers, whose rows, or experts,
// come together again; and what does not fit at all is an error that tells the limit.
func shards(t *testing.T, d *Device) {
	g := made(t, 64, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		x = b.Linear(floats(r, 300, 64), x, 300)
		route := b.Route(b.Linear(floats(r, 5, 300), x, 5), floats(r, 5), 2)
		return b.Experts(graph.SiLU, floats(r, 5, 2*16, 300), floats(r, 5, 300, 16), x, route, 5, 16)
	})
	small := New(d, Options{F32KV: true})
	small.memory.limit = 1 << 16
	tokens := []int32{1, 2, 3, 4, 5, 6}
	got, want := start(t, small, g, 6, nil).run(tokens...), start(t, New(d, Options{F32KV: true}), g, 6, nil).run(tokens...)
	if !same(got, want) {
		t.Error("in shards there are other bits")
	}
	counts := map[int]int{}
	for _, w := range small.weights {
		counts[len(w.shards)]++
	}
	if counts[2] != 1 || counts[5] != 2 || counts[1] != 2 { // matrix, gateUp and down, router and embeddings
		t.Errorf("weights by shards: %v", counts)
	}
	near(t, got, start(t, reference.Backend{}, g, 6, nil).run(tokens...), 2e-6)
	g = made(t, 20000, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
		return b.Linear(floats(r, 2, 20000), x, 2)
	})
	if _, err := small.Compile(g, backend.Options{}); err == nil || !strings.Contains(err.Error(), "80000 bytes do not fit a binding, which has at most 65536") {
		t.Error(err)
	}
}
