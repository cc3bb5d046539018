package webgpu

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// blended is a step of some tokens with a row's adapters.
func (r *runner) blended(blend *backend.Blend, tokens ...int32) *backend.Step {
	s := r.step(tokens)
	s.Adapters = slices.Repeat([]*backend.Blend{blend}, len(tokens))
	return s
}

func (r *runner) compute(s *backend.Step) []float32 {
	r.t.Helper()
	y, err := r.plan.Run(r.t.Context(), s, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return slices.Clone(y)
}

// TestAdapters: where every fusion has its place, rows with adapters are ref's, rows without keep
// their bits beside them, and an adapter that comes later changes no bit of the earlier ones.
func TestAdapters(t *testing.T) {
	g := fusible(t)
	first, later := backendtest.Adapter(1, g, nil, 3, 16), backendtest.Adapter(2, g, func(n *graph.Node) bool { return n.ID%2 == 0 }, 8)
	blends := []*backend.Blend{backendtest.Blend(t, backend.Part{Adapter: first, By: 1}), nil, backendtest.Blend(t, backend.Part{Adapter: later, By: -2}, backend.Part{Adapter: first, By: 0.5})}
	r, plain, want := start(t, New(device(t), Options{F32KV: true}), g, 17, nil), start(t, New(device(t), Options{F32KV: true}), g, 17, nil), start(t, reference.Backend{}, g, 17, nil)
	prompt := []int32{5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6}
	fresh := func(r *runner, blend *backend.Blend) [][]float32 {
		r.seq = r.pool.NewSequence()
		return [][]float32{r.compute(r.blended(blend, prompt...)), r.compute(r.blended(blend, 1)), r.compute(r.blended(blend, 2, 3))}
	}
	before := fresh(r, blends[0])
	for i, blend := range blends {
		got, exact := fresh(r, blend), fresh(want, blend)
		for step := range got {
			near(t, got[step], exact[step], 1e-5)
		}
		if same := slices.EqualFunc(got, fresh(plain, nil), same); same != (blend == nil) {
			t.Errorf("blend %d: the bits of a model without adapters: %v", i, same)
		}
	}
	if !slices.EqualFunc(before, fresh(r, blends[0]), same) {
		t.Error("a second adapter changes the bits of the first one")
	}
	s := &backend.Step{Cache: r.c}
	for row := range 6 {
		seq := r.pool.NewSequence()
		if err := seq.Grow(1); err != nil {
			t.Fatal(err)
		}
		s.Tokens, s.Pos, s.Seqs = append(s.Tokens, int32(row/3)), append(s.Pos, 0), append(s.Seqs, seq)
		s.Outputs, s.Adapters = append(s.Outputs, int32(row)), append(s.Adapters, blends[row%3])
	}
	together := r.compute(s)
	s.Outputs = []int32{1, 2, 4}
	for i, y := range slices.Collect(slices.Chunk(r.compute(s), len(together)/6)) {
		if row := int(s.Outputs[i]); !same(y, together[row*len(y):(row+1)*len(y)]) {
			t.Errorf("row %d has other bits where the logits of some rows are wanted", row)
		}
	}
	for row := range 6 {
		from, blend := plain, blends[row%3]
		if blend != nil {
			from = r
		}
		from.seq = from.pool.NewSequence()
		if n := len(together) / 6; !same(together[row*n:(row+1)*n], from.compute(from.blended(blend, int32(row/3)))) {
			t.Errorf("row %d has other bits beside others", row)
		}
	}
}

// TestAdapterDispatches: two dispatches for each product that the step's adapters have pairs beside,
// of however many rows and adapters; none where no row has adapters.
func TestAdapterDispatches(t *testing.T) {
	g := fusible(t)
	r := start(t, New(device(t), Options{}), g, 4, nil)
	of := func(s *backend.Step) int {
		r.b().meter = &backend.Meter{}
		r.compute(s)
		return r.b().meter.Dispatches
	}
	bare := of(r.step([]int32{1, 2, 3, 4}))
	made := len(r.b().memory.made)
	if n := of(r.blended(nil, 1, 2, 3, 4)); n != bare || len(r.b().memory.made) != made {
		t.Errorf("%d dispatches without adapters, %d where there are none to be found", bare, n)
	}
	var parts []backend.Part
	for i := range 3 {
		parts = append(parts, backend.Part{Adapter: backendtest.Adapter(uint64(i), g, func(n *graph.Node) bool { return n.ID > 20 || i == 2 }, 2), By: 1e-4})
	}
	nothing := &backend.Adapter{Name: "of another graph", Pairs: map[*graph.Weight]*backend.Pair{{}: {Rank: 1}}}
	apart := of(r.blended(backendtest.Blend(t, backend.Part{Adapter: nothing, By: 1}), 1, 2, 3, 4))
	one, all := backendtest.Blend(t, parts[0]), backendtest.Blend(t, parts...)
	if n := of(r.blended(one, 1, 2, 3, 4)); n != apart+2*len(parts[0].Pairs) {
		t.Errorf("%d dispatches with an adapter beside %d products, %d without", n, len(parts[0].Pairs), apart)
	}
	s := r.blended(all, 1, 2, 3, 4)
	s.Adapters[0], s.Adapters[2] = nil, one
	if n := of(s); n != apart+2*len(parts[2].Pairs) {
		t.Errorf("%d dispatches with three adapters beside %d products, %d without", n, len(parts[2].Pairs), apart)
	}
	if n := of(r.step([]int32{1, 2, 3, 4})); n != bare {
		t.Errorf("%d dispatches without adapters after steps with them, %d before", n, bare)
	}
}

// b is r's backend.
func (r *runner) b() *Backend { return r.plan.(*executable).whole.b }

// TestAdapterChosen: several steps in one list choose the tokens that steps one by one do, with adapters that
// differ by row.
func TestAdapterChosen(t *testing.T) {
	g := backendtest.Decoder(t, 21, tensor.Q8_0, 0, 7)
	b := New(device(t), Options{})
	b.all = true
	r := start(t, b, g, 8, nil)
	blend := backendtest.Blend(t, backend.Part{Adapter: backendtest.Adapter(3, g, nil, 8), By: 64})
	const steps = 6
	s := &backend.Step{Tokens: []int32{7, 7}, Pos: []int32{0, 0}, Outputs: []int32{0, 1}, Adapters: []*backend.Blend{nil, blend}, Cache: r.c}
	for range 2 {
		s.Seqs = append(s.Seqs, r.pool.NewSequence())
		if err := s.Seqs[len(s.Seqs)-1].Grow(steps); err != nil {
			t.Fatal(err)
		}
	}
	together, err := r.plan.(backend.Chooser).Choose(t.Context(), s, 1, steps)
	if err != nil {
		t.Fatal(err)
	}
	differ := false
	for i, blend := range s.Adapters {
		r.seq = r.pool.NewSequence()
		next := int32(7)
		for step := range steps {
			next = ranks(r.compute(r.blended(blend, next)), 1)[0].ID
			if got := together[2*step+i].ID; got != next {
				t.Errorf("row %d, step %d: token %d, want %d", i, step, got, next)
			}
			differ = differ || together[2*step].ID != together[2*step+1].ID
		}
	}
	if !differ {
		t.Error("the adapter changes no token")
	}
}

// TestAdapterTooLarge: pairs that do not fit a buffer are an error that names the adapter and the product,
// and other steps go on.
func TestAdapterTooLarge(t *testing.T) {
	g := backendtest.Decoder(t, 22, tensor.Q8_0, 0)
	r := start(t, New(device(t), Options{}), g, 8, nil)
	blend := func(rank int) *backend.Blend {
		return backendtest.Blend(t, backend.Part{Adapter: backendtest.Adapter(4, g, nil, rank), By: 1})
	}
	fits := blend(4)
	want := r.compute(r.blended(fits, 1, 2))
	r.b().memory.limit = 1 << 14
	r.seq = r.pool.NewSequence()
	_, err := r.plan.Run(t.Context(), r.blended(blend(100), 1, 2), nil)
	if err == nil || !strings.Contains(err.Error(), "adapters: random 4 of ") || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("pairs that are too large: %v", err)
	}
	r.seq = r.pool.NewSequence()
	if !same(want, r.compute(r.blended(fits, 1, 2))) {
		t.Error("other bits after an error")
	}
}

// limited is a GPU with other limits, of workgroups and of a workgroup's invocations.
type limited struct {
	gpu.Device
	groups, invocations int
}

func (d limited) Adapter() gpu.Adapter {
	a := d.Device.Adapter()
	a.Limits.Groups, a.Limits.Invocations = d.groups, d.invocations
	return a
}

// TestAdapterRanks: a row's ranks are workgroups beside each other. More than the GPU has are an error that names the product.
func TestAdapterRanks(t *testing.T) {
	g := backendtest.Decoder(t, 23, tensor.Q8_0, 0)
	r := start(t, New(newDevice(limited{device(t).gpu, 1000, 256}), Options{}), g, 4, nil)
	blend := func(rank int) *backend.Blend {
		parts := []backend.Part{{Adapter: backendtest.Adapter(5, g, nil, rank), By: 1}, {Adapter: backendtest.Adapter(6, g, nil, 500), By: 1}}
		return backendtest.Blend(t, parts...)
	}
	r.compute(r.blended(blend(500), 1))
	r.seq = r.pool.NewSequence()
	_, err := r.plan.Run(t.Context(), r.blended(blend(501), 1), nil)
	if err == nil || !strings.Contains(err.Error(), "adapters: w") || !strings.Contains(err.Error(), "ranks of 1001 together, this GPU computes at most 1000") {
		t.Error(err)
	}
}

// TestAdapterPlansFail: plans for adapters that cannot be made are not tried at every step, and other steps go on.
func TestAdapterPlansFail(t *testing.T) {
	f := &faulty{Device: device(t).gpu}
	g := backendtest.Decoder(t, 24, tensor.Q8_0, 0)
	r := start(t, New(newDevice(f), Options{}), g, 4, nil)
	blend := backendtest.Blend(t, backend.Part{Adapter: backendtest.Adapter(7, g, nil, 4), By: 1})
	want := r.run(1, 2)
	f.compile = errors.New("no shader")
	made := 0
	for i := range 3 {
		r.seq = r.pool.NewSequence()
		_, err := r.plan.Run(t.Context(), r.blended(blend, 1, 2), nil)
		if err == nil || !strings.Contains(err.Error(), "no shader") {
			t.Fatal(err)
		}
		if n := len(r.b().memory.made); i > 0 && n != made {
			t.Errorf("step %d: %d buffers and groups, %d before", i, n, made)
		}
		made = len(r.b().memory.made)
	}
	r.seq = r.pool.NewSequence()
	if !same(r.run(1, 2), want) {
		t.Error("other bits after an error")
	}
}
