package diagnose

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab"
)

// TestExpectFloors: an expectation has the floors of the equation's rows, those near the limit measured again.
func TestExpectFloors(t *testing.T) {
	c, err := checkpoint.Open(golden.Model(t, "tiny-llama"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, _, err := arch.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	dump, err := lab.ReadRecord(golden.Record(t, "tiny-llama").Tensors(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Close()
	const tap = "model.layers.0.self_attn.o_proj.in"
	dump.Prompts = slices.DeleteFunc(dump.Prompts, func(p *lab.Prompt) bool { return p.Taps[tap] == nil })[:1]
	x := *dump.Prompts[0].Taps[tap]
	right, raised := x.Data, 0
	for _, times := range []float32{0, 10} {
		x.Data = slices.Clone(right)
		for i := 0; i < len(x.Data); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(x.Data[i:]))
			v *= 1 + times*0x1p-23
			binary.LittleEndian.PutUint32(x.Data[i:], math.Float32bits(v))
		}
		dump.Prompts[0].Taps[tap] = &x
		d, err := place(t.Context(), Options{Graph: g, Dump: dump})
		if err != nil {
			t.Fatal(err)
		}
		m, err := measure(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, eq := range m.eqs {
			p, e := d.prompts[0], &Expectation{}
			if err := m.expectIn(p, eq.target, e); err != nil {
				t.Fatal(err)
			}
			errors, err := m.measure(eq, nil, nil, m.sites(eq), nil)
			if err != nil || len(errors) != len(e.Rows) {
				t.Fatal(err, len(errors), len(e.Rows))
			}
			rows, floors := errorsOf(errors, 0)
			want, err := m.engine.center[p].Compute(eq.target, rows)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := m.floors(p, eq.target, nil, rows, want, m.engine.arms[p])
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range e.Rows {
				if float64(r.Floor) != floors[i] {
					t.Errorf("%s, position %d: floor %v, want %v", eq.tap, r.Position, r.Floor, floors[i])
				}
				if floors[i] > plain[i] {
					raised++
				}
			}
		}
	}
	if raised == 0 {
		t.Error("no floor is measured again")
	}
}
