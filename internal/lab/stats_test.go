package lab

import (
	"math"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
)

func TestStats(t *testing.T) {
	var x tally
	for _, v := range []float64{0, -3, 1, math.NaN(), math.Inf(1), 2} {
		x.add(v)
	}
	s := x.stats()
	if s.Values != 6 || s.Min != -3 || s.Max != 2 || s.Mean != 0 || s.MaxAbs != 3 || s.Zeros != 1 || s.NaN != 1 || s.Inf != 1 || math.Abs(float64(s.RMS)-math.Sqrt(14.0/4)) > 1e-15 {
		t.Errorf("%+v", s)
	}
	if s := (&tally{values: 1, nan: 1}).stats(); s.Min == s.Min || s.RMS == s.RMS {
		t.Errorf("no finite value: %+v", s)
	}
}

// TestMeasureNodes: the numbers are those of the same values that a record has, also where prompts begin alike
// and are fed in pieces.
func TestMeasureNodes(t *testing.T) {
	g := loadGraph(t, golden.Model(t, "tiny-qwen3"))
	b := cpu.New(cpu.Options{Threads: 1})
	defer b.Close()
	match := func(n *graph.Node) bool { return n.Name == "blk.1.ffn_down" }
	ids := make([]int32, 150)
	for i := range ids {
		ids[i] = int32(i + 3)
	}
	got, err := MeasureNodes(t.Context(), g, b, 200, [][]int32{ids, ids}, match)
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	r, err := NewRecorder(t.Context(), g, b, 200, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &Prompt{IDs: ids}
	if err := r.Record(t.Context(), p, true); err != nil {
		t.Fatal(err)
	}
	var want tally
	x := rowsOf(p.Taps[g.Node("blk.1.ffn_down").HF])
	row := make([]float64, x.width)
	for i := range x.n {
		x.read(row, i)
		for _, v := range row {
			want.add(v)
		}
	}
	w := want.stats()
	if s := got[0]; s.Rows != 300 || s.Values != 2*w.Values || s.Min != w.Min || s.Max != w.Max || math.Abs(float64(s.RMS/w.RMS-1)) > 1e-12 || s.Layer != 1 {
		t.Errorf("%+v, want twice %+v", s, w)
	}
	if _, err := MeasureNodes(t.Context(), g, b, 200, [][]int32{ids}, func(*graph.Node) bool { return false }); err == nil || !strings.Contains(err.Error(), "no node") {
		t.Errorf("no node: %v", err)
	}
	weights, err := MeasureWeights(t.Context(), g, func(n *graph.Node) bool { return n.Op == graph.RMSNorm && n.Layer == 0 })
	if err != nil || len(weights) != 4 {
		t.Fatalf("%+v, %v", weights, err)
	}
	for _, w := range weights {
		if w.Gain == nil || w.Gain.Offset != 0 || w.Gain.RMS != w.RMS || w.RMS == 0 {
			t.Errorf("%+v", w)
		}
	}
}
