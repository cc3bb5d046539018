package round

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/tensor"
)

func TestRound(t *testing.T) {
	for _, c := range []struct {
		f         Format
		row, want []float64
	}{
		{"", []float64{math.Pi, 1e300}, []float64{math.Pi, 1e300}},
		{F32, []float64{1 + 0x1p-30, -1.0 / 3}, []float64{1, -0.3333333432674408}},
		{F16, []float64{1 + 0x1p-10 + 0x1p-12, 70000, 0x1p-26}, []float64{1 + 0x1p-10, math.Inf(1), 0}},
		{BF16, []float64{1 + 0x1p-7 + 0x1p-9, 3e38}, []float64{1 + 0x1p-7, 0x1.c4p127}},
		// Binary16's nearest to 1/127 is 0x1.02p-7.
		{Q8_32, []float64{-1, 0.5, 1.49 / 127, 0}, []float64{-127 * 0x1.02p-7, 64 * 0x1.02p-7, 0x1.02p-7, 0}},
		{Q8_256, []float64{2, -1, 0}, []float64{-127 * single(1/-63.5), 64 * single(1/-63.5), 0}},
		{I16_32, []float64{-1, 0.25}, []float64{-32767 * single(1.0/32767), 8192 * single(1.0/32767)}},
		{I16_32, []float64{1e-31}, []float64{0}},
		{Q8_256, []float64{0, 0}, []float64{0, 0}},
		{Q8_32, []float64{0, 0}, []float64{0, 0}},
	} {
		got := slices.Clone(c.row)
		c.f.Round(got)
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 1e-16 {
				t.Errorf("%s of %v: %v, want %v", c.f, c.row, got, c.want)
				break
			}
		}
		if s := c.f.Stored(); slices.Contains(KV, s) && s == c.f {
			for i, v := range c.row {
				if got := c.f.To(v); got != c.want[i] {
					t.Errorf("%s of %v: %v, want %v", c.f, v, got, c.want[i])
				}
			}
		}
	}
	// A bad value spoils its block, and no other.
	for _, bad := range []float64{math.NaN(), math.Inf(-1)} {
		row := make([]float64, 40)
		row[3], row[5], row[35] = bad, 1, 1
		for _, f := range []Format{Q8_32, I16_32} {
			got := slices.Clone(row)
			if f.Round(got); got[31] == got[31] || got[5] == got[5] || !(got[35] > 0.99) {
				t.Errorf("%s with %v: %v", f, bad, got)
			}
		}
	}
}

// TestI16 wants what Karat's kernels make of a row.
func TestI16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, row := make([]float32, 512), make([]float64, 512)
	for i := range x {
		x[i] = float32(r.NormFloat64())
		row[i] = float64(x[i])
	}
	q, dx := make([]int16, len(x)), make([]float32, len(x)/simd.ActGroup)
	simd.Quantize(q, dx, x)
	I16_32.Round(row)
	var want []float64
	for i, v := range q {
		want = append(want, float64(v)*float64(dx[i/simd.ActGroup]))
	}
	for g := range dx { // Quantize has an order of its own in each group
		slices.Sort(want[g*32 : (g+1)*32])
		slices.Sort(row[g*32 : (g+1)*32])
	}
	if !slices.Equal(row, want) {
		t.Error("other values than simd.Quantize's")
	}
}

func TestInput(t *testing.T) {
	for _, c := range []struct {
		f    Format
		w    tensor.DType
		want Format
	}{
		{F64, tensor.Q8_0, F64}, {BF16, tensor.F32, BF16}, {Q8_32, tensor.F32, Q8_32}, {I16_32, tensor.Q4_K, I16_32}, {I16_32, tensor.BF16, F32},
		{Q8, tensor.F32, F32}, {Q8, tensor.F16, F16}, {Q8, tensor.BF16, BF16}, {Q8, tensor.Q5_1, Q8_32}, {Q8, tensor.MXFP4, Q8_32},
		{Q8, tensor.IQ4_NL, Q8_32}, {Q8, tensor.IQ4_XS, Q8_256}, {Q8, tensor.Q6_K, Q8_256},
	} {
		if got := c.f.Input(c.w); got != c.want {
			t.Errorf("%s for %v: %s, want %s", c.f, c.w, got, c.want)
		}
	}
}

func TestClass(t *testing.T) {
	c := Class{BF16, F16, F16Table, 8}
	const text = "activations=bf16,kv=f16,gelu=f16-table,lanes=8"
	if got, err := Parse(text); err != nil || got != c || c.String() != text {
		t.Errorf("%+v, %v; %s", got, err, c)
	}
	for text, want := range map[string]string{
		"":                      "is not KEY=VALUE",
		"activations=":          "is not KEY=VALUE",
		"activations=int4":      `activations "int4", want f64, f32,`,
		"kv=q8":                 `kv "q8", want f64, f32, f16, bf16`,
		"gelu=fast":             `gelu "fast", want exact, f16-table`,
		"lanes=3":               "lanes 3, want a power of two up to 64",
		"lanes=x":               `lanes "x", want`,
		"lanes=0":               `lanes "0", want`,
		"kv=f16,kv=f16":         "kv a second time",
		"weights=f16":           `"weights", want activations`,
		"activations=f32 kv=f8": ", want f64",
	} {
		if c, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want an error with %q", text, c, err, want)
		}
	}
	var d Class
	if err := json.Unmarshal([]byte(`{"activations": "bfloat16", "kv": "float32", "gelu": "exact"}`), &d); err != nil || d != (Class{BF16, F32, Exact, 0}) {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestGELU(t *testing.T) {
	for _, x := range []float64{-12, -10, -3, -0.1, 0, 0.5, 9.99, 10, 200} {
		exact, table := Exact.At(x), F16Table.At(x)
		if d := math.Abs(exact - table); d > 0x1p-10*math.Max(math.Abs(x), 1) {
			t.Errorf("GELU of %v: %v, by the table %v", x, exact, table)
		}
	}
	if F16Table.At(0.1) == Exact.At(0.1) || F16Table.At(11) != 11 || F16Table.At(-11) != 0 {
		t.Error("the table is not llama.cpp's")
	}
	if x := F16Table.At(math.NaN()); x == x {
		t.Errorf("GELU of NaN: %v", x)
	}
}
