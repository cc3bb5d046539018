package diagnose_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	. "github.com/karat-run/karat/internal/lab/diagnose"
)

func floorGraph(t *testing.T, name string) *graph.Graph {
	t.Helper()
	m, err := checkpoint.Open(golden.Model(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	g, _, err := arch.Load(m)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestFloors wants each class of rounding where it rounds and as large as its digits
// say, and nowhere else.
func TestFloors(t *testing.T) {
	g := floorGraph(t, "tiny-gemma4-moe")
	prompts := [][]int32{{2, 818, 1204, 300, 307, 990, 314}, {2}}
	calls, last := 0, 0
	floors, err := MeasureFloors(context.Background(), g, prompts, func(_ string, done, total int) {
		if calls++; done < last || done >= total {
			t.Errorf("%d of %d", done, total)
		}
		last = done
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls == 0 {
		t.Error("no progress")
	}
	by := map[string]Floor{}
	for _, f := range floors {
		by[f.Class] = f
		if f.MeanKL > f.MaxKL || f.Top1 < 0.8 || f.Top1 > 1 || f.Meaning == "" {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range []struct {
		class, op   string
		least, most lab.Number
	}{
		{"f64", "Linear", 1e-9, 0x1p-24}, {"f64", "Attention", 1e-9, 0x1p-24},
		{"f32", "Linear", 0x1p-24, 0x1p-18}, {"f32 reversed", "Linear", 0x1p-24, 0x1p-18}, {"f32 16 lanes", "Linear", 0x1p-24, 0x1p-20},
		{"f32 jitter", "Add", 0x1p-25, 0x1p-21}, {"f32 jitter", "Experts", 0x1p-25, 0x1p-20}, // whose numbers are left alone
		{"f16", "Add", 0x1p-14, 0x1p-11}, {"bf16", "Add", 0x1p-11, 0x1p-8},
		{"q8", "Add", 1e-9, 0x1p-23}, {"q8", "Linear", 0x1p-11, 0x1p-6}, // of bfloat16 weights: rows in bfloat16
		{"kv=f16", "Attention", 0x1p-14, 0x1p-8}, {"kv=f16", "Linear", 1e-9, 0x1p-24}, {"kv=bf16", "Attention", 0x1p-11, 0x1p-5},
		{"gelu=f16-table", "GLU", 0x1p-14, 0x1p-9}, {"gelu=f16-table", "Attention", 1e-9, 0x1p-24},
	} {
		if x := by[c.class].Ops[c.op]; !(x >= c.least && x <= c.most) {
			t.Errorf("%s makes %.2g of %s, want %.2g to %.2g", c.class, x, c.op, c.least, c.most)
		}
	}
	for _, order := range [][]string{{"f64", "f32 16 lanes", "f32", "kv=f16", "f16", "bf16"}, {"f64", "gelu=f16-table", "bf16"}} {
		for i, class := range order[1:] {
			if !(by[order[i]].MeanKL < by[class].MeanKL) {
				t.Errorf("KL of %s is %.2g, of %s %.2g", order[i], by[order[i]].MeanKL, class, by[class].MeanKL)
			}
		}
	}
	if _, ok := by["i16_32"]; ok {
		t.Error("a floor of 16-bit integers, though no weight is quantized")
	}
}

func TestFloorsCancelled(t *testing.T) {
	g := floorGraph(t, "tiny-qwen3")
	ctx, cancel := context.WithCancel(context.Background())
	floors, err := MeasureFloors(ctx, g, [][]int32{{1, 2, 3}}, func(_ string, done, _ int) {
		if done == 100 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || floors != nil {
		t.Errorf("%v, %v", floors, err)
	}
}

func TestFloorsRefuse(t *testing.T) {
	g := floorGraph(t, "tiny-qwen3")
	for want, ids := range map[string][]int32{"no token": {}, "position 0: token -1": {-1}, "position 1: token 1000000": {2, 1000000}} {
		_, err := MeasureFloors(context.Background(), g, [][]int32{{2}, ids}, nil)
		if err == nil || !strings.Contains(err.Error(), "prompt 1: "+want) {
			t.Errorf("%v: %v", ids, err)
		}
	}
}
