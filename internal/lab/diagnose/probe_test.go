package diagnose

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// begun measures a right engine's dump.
func begun(t *testing.T) *measurement {
	t.Helper()
	m, err := checkpoint.Open(golden.Model(t, "tiny-qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, _, err := arch.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	p := &lab.Prompt{IDs: []int32{1, 2, 3, 4}}
	recorder, err := lab.NewRecorder(t.Context(), g, reference.Backend{}, len(p.IDs), len(p.IDs))
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Close()
	if err := recorder.Record(t.Context(), p, true); err != nil {
		t.Fatal(err)
	}
	d, err := place(t.Context(), Options{Graph: g, Dump: &lab.Record{Names: lab.NamesHF, Prompts: []*lab.Prompt{p}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := measure(d)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// doubled is a tap that holds twice the values.
type doubled struct{ reference.Known }

func (k doubled) Read(dst []float64, row int) {
	k.Known.Read(dst, row)
	for i := range dst {
		dst[i] *= 2
	}
}

// TestHoldsWithout: an equation that cannot be computed without some taps does not hold
// without them; that a weight cannot be read, or the time is over, is an error.
func TestHoldsWithout(t *testing.T) {
	m := begun(t)
	of := func(name string) *equation {
		i := slices.IndexFunc(m.eqs, func(eq *equation) bool { return eq.target.Name == name })
		if i < 0 {
			t.Fatalf("no equation of %s", name)
		}
		return m.eqs[i]
	}
	q, norm := of("blk.1.attn_q"), of("blk.1.attn_norm")
	set := []*equation{norm}
	if ok, err := holdsWithout(m, q, set); ok || err != nil {
		t.Errorf("a right engine comes no nearer: %v, %v", ok, err)
	}
	for _, p := range m.dump.prompts {
		if k := p.known[norm.target]; k != nil {
			p.known[norm.target] = doubled{k}
			defer func() { p.known[norm.target] = k }()
		}
	}
	m.engine = newEngine(m.dump, m.engine.class, nil)
	var err error
	if q.errors, _, err = m.holds(q, nil, nil); err != nil {
		t.Fatal(err)
	}
	if ok, err := holdsWithout(m, q, set); !ok || err != nil {
		t.Errorf("a tap with other values: %v, %v", ok, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	stop()
	m.dump.ctx = ctx
	if _, err := holdsWithout(m, q, set); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	m.dump.ctx = t.Context()

	build := func(edits reference.Edits) { m.engine = newEngine(m.dump, m.engine.class, edits) }
	build(reference.Edits{norm.target: {func(s *reference.Spec) { s.In = []*graph.Node{q.target} }}}) // a circle
	if ok, err := holdsWithout(m, q, []*equation{norm, q}); ok || err != nil {
		t.Errorf("what cannot be computed: %v, %v", ok, err)
	}

	broken := errors.New("the file ends")
	build(reference.Edits{norm.target: {func(s *reference.Spec) {
		s.Func = func(*reference.Eval, *reference.Spec, []int) ([]float64, error) { return nil, broken }
	}}})
	if _, err := holdsWithout(m, q, set); !errors.Is(err, broken) {
		t.Errorf("a weight that cannot be read is taken for an equation that does not hold: %v", err)
	}
}
