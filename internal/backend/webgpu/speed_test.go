package webgpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/tensor"
)

// launch is a dispatch with its buffers.
type launch struct {
	p       gpu.Pipeline
	g       gpu.Group
	x, y, z int
}

// timed is how long launches take, one after another, repeated.
func timed(t *testing.T, d *Device, list []launch, repeat int) time.Duration {
	t.Helper()
	var l gpu.List
	l.Stamp()
	for range repeat {
		for _, x := range list {
			l.Dispatch(x.p, x.g, x.x, x.y, x.z)
		}
	}
	l.Stamp()
	best := time.Duration(1 << 62)
	for start, n := time.Now(), 0; n < 4 || time.Since(start) < 40*time.Millisecond; n++ { // the clock rises slowly
		if err := d.gpu.Run(&l); err != nil {
			t.Fatal(err)
		}
		best = min(best, l.Times()[1])
	}
	return best / time.Duration(repeat*len(list))
}

// TestSpeed prints how fast kernels are, and with KARAT_SPEED=FILE which share of a
// model's steps each has, on matrix units where there are any, unless KARAT_F32 is set.
func TestSpeed(t *testing.T) {
	path := os.Getenv("KARAT_SPEED")
	if path == "" {
		t.Skip("KARAT_SPEED is not set")
	}
	d := device(t)
	t.Run("products", func(t *testing.T) { speedOfProducts(t, d) })
	t.Run("model", func(t *testing.T) { speedOfModel(t, d, path) })
}

func speedOfProducts(t *testing.T, d *Device) {
	b := New(d, Options{})
	defer b.Close()
	r := rand.New(rand.NewPCG(1, 2))
	x, err := b.memory.empty("x", 4*512*8192)
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.memory.empty("out", 4*512*8192)
	if err != nil {
		t.Fatal(err)
	}
	limits := d.Adapter().Limits
	counts, err := b.memory.empty("step", 2*limits.Alignment)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.memory.write(counts, 0, []byte{1, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := b.memory.write(counts, limits.Alignment, []byte{0, 2, 0, 0}); err != nil {
		t.Fatal(err)
	}
	a := &arena{memory: b.memory, align: limits.Alignment}
	prepare := func(shader string, v any, numbers params, rows int, w gpu.Buffer, x3, y3, z3 int) launch {
		p, err := d.pipe(shader, v)
		if err != nil {
			t.Fatal(err)
		}
		data, err := p.pack(numbers)
		if err != nil {
			t.Fatal(err)
		}
		at, err := a.place(data)
		if err != nil {
			t.Fatal(err)
		}
		step := gpu.Range{Buffer: counts, Size: 16}
		if rows > 1 {
			step.At = limits.Alignment
		}
		g, err := d.gpu.NewGroup(p.Pipeline, at, step, gpu.Range{Buffer: out}, gpu.Range{Buffer: x}, gpu.Range{Buffer: w})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.memory.flush(); err != nil {
			t.Fatal(err)
		}
		return launch{p.Pipeline, g, x3, y3, z3}
	}
	{
		p, err := d.pipe("map", variant{"Is": "a * p.value"})
		if err != nil {
			t.Fatal(err)
		}
		data, _ := p.pack(params{"size": 2048, "period": 0, "value": float32(1)})
		at, _ := a.place(data)
		g, err := d.gpu.NewGroup(p.Pipeline, at, gpu.Range{Buffer: counts, Size: 16}, gpu.Range{Buffer: out}, gpu.Range{Buffer: x})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.memory.flush(); err != nil {
			t.Fatal(err)
		}
		t.Logf("a small dispatch: %v", timed(t, d, []launch{{p.Pipeline, g, 32, 1, 1}}, 500))
	}
	for _, dt := range []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q6_K} {
		for _, size := range [][2]int{{2048, 2048}, {2048, 8192}, {8192, 2048}, {2048, 32768}} {
			k, n := size[0], size[1]
			w := weightOf(r, dt, half, []int{0}, n, k)
			var ws []*weight
			for bytes := 0; bytes < 100<<20; bytes += len(w.Data) {
				made, err := b.upload(w)
				if err != nil {
					t.Fatal(err)
				}
				ws = append(ws, made)
			}
			size := float64(ws[0].bytes(k) * n)
			for _, v := range speedLinears(ws[0].layout) {
				var list []launch
				for _, w := range ws {
					list = append(list, prepare("linear", v, params{"n": n, "k": k, "column": 0, "stride": n}, 1, w.shards[0].buffer, (n+v.Lanes*v.Per-1)/(v.Lanes*v.Per), 1, 1))
				}
				s := timed(t, d, list, 4)
				t.Logf("%v %d x %d, a row, %d %d %d: %v, %.0f GB/s", dt, n, k, v.Lanes, v.Per, v.Unroll, s, size/s.Seconds()/1e9)
			}
			if dt != tensor.Q4_0 && dt != tensor.Q8_0 || n > 8192 {
				continue
			}
			for _, tl := range speedTiles {
				v := productVariant{ws[0].layout, ending{Outs: 1}, tl}
				l := prepare("product", v, params{"n": n, "k": k, "column": 0, "stride": n}, 512, ws[0].shards[0].buffer, (n+tl.BN-1)/tl.BN, (512+tl.BM-1)/tl.BM, 1)
				s := timed(t, d, []launch{l}, 8)
				t.Logf("%v %d x %d, 512 rows, tiles %v: %v, %.1f TFLOP/s", dt, n, k, tl, s, 2*512*float64(n)*float64(k)/s.Seconds()/1e12)
			}
		}
	}
}

var speedTiles = []tile{{64, 64, 4, 4, 8}, {64, 64, 8, 4, 8}, {64, 64, 4, 8, 8}, {64, 64, 8, 4, 4}, {128, 64, 8, 4, 4}, {64, 32, 8, 4, 8}, {32, 64, 4, 4, 8}}

func speedLinears(l layout) (list []linearVariant) {
	for _, x := range [][3]int{{8, 1, 1}, {8, 1, 2}, {8, 1, 4}, {4, 1, 2}, {4, 1, 4}, {8, 2, 2}, {4, 2, 2}} {
		list = append(list, linearVariant{layout: l, ending: ending{Outs: 1}, Lanes: x[0], Per: x[1], Rows: 1, Unroll: x[2]})
	}
	return list
}

// speedOfModel prints the kernels' times of a step, for one row behind 64 and for 512.
func speedOfModel(t *testing.T, d *Device, path string) {
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	b := New(d, Options{Matrices: os.Getenv("KARAT_F32") == ""})
	defer b.Close()
	plan, err := b.Compile(g, backend.Options{Rows: 512, Outputs: 1})
	if err != nil {
		t.Fatal(err)
	}
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, b), Context: 4096, Chunk: 512})
	cache, err := b.NewCache(g, pool)
	if err != nil {
		t.Fatal(err)
	}
	speedOfChoice(t, b, plan.(backend.Chooser), pool, cache)
	for _, rows := range []int{1, 512} {
		seq := pool.NewSequence()
		run := func(rows int) time.Duration {
			s := &backend.Step{Cache: cache, Outputs: []int32{int32(rows - 1)}}
			for i := range rows {
				s.Tokens, s.Pos, s.Seqs = append(s.Tokens, int32(i%100+1)), append(s.Pos, int32(seq.Len()+i)), append(s.Seqs, seq)
			}
			if err := seq.Grow(rows); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if _, err := plan.Run(t.Context(), s, nil); err != nil {
				t.Fatal(err)
			}
			return time.Since(start)
		}
		run(64)
		for start := time.Now(); time.Since(start) < 300*time.Millisecond; { // the clock rises slowly
			seq.Free()
			seq = pool.NewSequence()
			run(rows)
		}
		var walls []time.Duration
		for range 20 {
			if rows > 1 {
				seq.Free()
				seq = pool.NewSequence()
			}
			walls = append(walls, run(rows))
		}
		slices.Sort(walls)
		b.times = map[string]time.Duration{}
		if rows > 1 {
			seq.Free()
			seq = pool.NewSequence()
		}
		run(rows)
		var all []string
		var sum time.Duration
		for name, s := range b.times {
			sum += s
			all = append(all, fmt.Sprintf("%10v %s", s, name))
		}
		b.times = nil
		slices.Sort(all)
		t.Logf("%d rows: %v a step; kernels together, timed one by one: %v", rows, walls[len(walls)/2], sum)
		for _, line := range all {
			t.Log(line)
		}
		seq.Free()
	}
}

// speedOfChoice prints what a token takes that the GPU chooses, several in a list.
func speedOfChoice(t *testing.T, b *Backend, plan backend.Chooser, pool *kv.Pool, cache backend.Cache) {
	_, most := plan.Most()
	for _, k := range []int{1, 40, likeliest} {
		for steps := 1; steps <= most && (k == 1 || steps == 1); steps *= 2 {
			seq := pool.NewSequence()
			if err := seq.Grow(64); err != nil {
				t.Fatal(err)
			}
			run := func() time.Duration {
				at := int32(seq.Len())
				if err := seq.Grow(steps); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				s := &backend.Step{Cache: cache, Tokens: []int32{7}, Pos: []int32{at}, Seqs: []*kv.Sequence{seq}, Outputs: []int32{0}}
				if _, err := plan.Choose(t.Context(), s, k, steps); err != nil {
					t.Fatal(err)
				}
				return time.Since(start) / time.Duration(steps)
			}
			for range max(4, 32/steps) {
				run()
			}
			b.Meter()
			var walls []time.Duration
			for range max(8, 64/steps) {
				walls = append(walls, run())
			}
			m := b.Meter()
			b.meter = nil
			slices.Sort(walls)
			t.Logf("the %d likeliest, %d steps a list: %v a step, the GPU %v", k, steps, walls[len(walls)/2], m.Device/time.Duration(max(m.Steps, 1)))
			seq.Free()
		}
	}
}
