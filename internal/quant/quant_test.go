package quant

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// facts says of each format what its definition gives: the range of its
// integers, where in a block its float16 factors lie, and the group.
var facts = map[tensor.DType]struct {
	low, high int8
	halves    []int
	group     int
}{
	tensor.Q4_0:   {-8, 7, []int{0}, 32},
	tensor.Q4_1:   {0, 15, []int{0, 2}, 32},
	tensor.Q5_0:   {-16, 15, []int{0}, 32},
	tensor.Q5_1:   {0, 31, []int{0, 2}, 32},
	tensor.Q8_0:   {-128, 127, []int{0}, 32},
	tensor.Q2_K:   {0, 3, []int{80, 82}, 16},
	tensor.Q3_K:   {-4, 3, []int{108}, 16},
	tensor.Q4_K:   {0, 15, []int{0, 2}, 32},
	tensor.Q5_K:   {0, 31, []int{0, 2}, 32},
	tensor.Q6_K:   {-32, 31, []int{208}, 16},
	tensor.IQ4_NL: {-127, 113, []int{0}, 32},
	tensor.IQ4_XS: {-127, 113, []int{0}, 32},
	tensor.MXFP4:  {-12, 12, nil, 32},

	tensor.IQ1_S:   {-9, 9, []int{0}, 32},
	tensor.IQ1_M:   {-9, 9, nil, 16},
	tensor.IQ2_XXS: {-43, 43, []int{0}, 32},
	tensor.IQ2_XS:  {-43, 43, []int{0}, 16},
	tensor.IQ2_S:   {-43, 43, []int{0}, 16},
	tensor.IQ3_XXS: {-62, 62, []int{0}, 32},
	tensor.IQ3_S:   {-15, 15, []int{0}, 32},
	tensor.TQ1_0:   {-1, 1, []int{52}, 32},
	tensor.TQ2_0:   {-1, 2, []int{64}, 32},
	tensor.NVFP4:   {-12, 12, nil, 16},
	tensor.Q1_0:    {-1, 1, []int{0}, 32},
	tensor.Q2_0:    {-1, 2, []int{0}, 32},
}

// unpacked is a row's integers and scales, from its codes and headers.
func unpacked(t testing.TB, d tensor.DType, src []byte) (q []int16, scale, min []float32) {
	t.Helper()
	codes := make([]byte, len(src)/d.BlockBytes()*d.BlockSize())
	if err := Codes(d, codes, src); err != nil {
		t.Fatalf("Codes(%v): %v", d, err)
	}
	for _, c := range codes {
		if table := Table(d); table != nil {
			q = append(q, int16(table[c]))
		} else {
			q = append(q, int16(c)-int16(Offset(d)))
		}
	}
	for b := range len(src) / d.BlockBytes() {
		h := Header{D: 9, Min: 9}
		h.Read(d, src[b*d.BlockBytes():])
		for g := range d.BlockSize() / GroupSize(d) {
			d0, min0 := h.floats(d)
			s, m := h.group(d, g, d0, min0)
			if scale = append(scale, s); HasMin(d) {
				min = append(min, m)
			}
		}
	}
	return q, scale, min
}

// weight is w = scale*q + min in float64, rounded once; it is exact before that.
func weight(d tensor.DType, i int, q []int16, scale, min []float32) float32 {
	g := i / GroupSize(d)
	w := float64(scale[g]) * float64(q[i])
	if min != nil {
		w += float64(min[g])
	}
	return float32(w)
}

func dequantized(t testing.TB, d tensor.DType, src []byte) []float32 {
	t.Helper()
	w := make([]float32, len(src)/d.BlockBytes()*d.BlockSize())
	if err := Dequantize(d, w, src); err != nil {
		t.Fatalf("Dequantize(%v): %v", d, err)
	}
	return w
}

// same is equality of bits, or two NaNs.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// TestBlocks compares blocks of real files, whose weights were written down when
// their tensors had llama.cpp's SHA-256 (TestSHA256 -update).
func TestBlocks(t *testing.T) {
	var examples []example
	raw, err := os.ReadFile("testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &examples); err != nil {
		t.Fatal(err)
	}
	seen := map[tensor.DType]bool{}
	for _, e := range examples {
		d, ok := tensor.ParseDType(e.Type)
		src, err := hex.DecodeString(e.Blocks)
		if !ok || err != nil || len(e.Weights) != 3*d.BlockSize() {
			t.Fatalf("%s: %v, %d weights", e.Type, err, len(e.Weights))
		}
		seen[d] = true
		got := dequantized(t, d, src)
		q, scale, min := unpacked(t, d, src)
		for i, want := range e.Weights {
			if !same(got[i], want) || !same(weight(d, i, q, scale, min), want) {
				t.Errorf("%v: weight %d = %v, unpacked %v, llama.cpp's %v", d, i, got[i], weight(d, i, q, scale, min), want)
				break
			}
		}
	}
	for d := range facts {
		if d <= tensor.MXFP4 && !seen[d] { // TestDequantizeBits has the others
			t.Errorf("%v: no example", d)
		}
	}
}

// TestCodes compares both layers and the range of q on random blocks.
func TestCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for d, f := range facts {
		src := make([]byte, 2000*d.BlockBytes())
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		w := dequantized(t, d, src)
		q, scale, min := unpacked(t, d, src)
		low, high := q[0], q[0]
		for i, v := range q {
			if v < low {
				low = v
			}
			if v > high {
				high = v
			}
			if want := weight(d, i, q, scale, min); !same(w[i], want) {
				t.Fatalf("%v: weight %d: %v, unpacked %v", d, i, w[i], want)
			}
		}
		if low != int16(f.low) || high != int16(f.high) {
			t.Errorf("%v: integers from %d to %d, want %d to %d", d, low, high, f.low, f.high)
		}
		if GroupSize(d) != f.group || HasMin(d) != (len(f.halves) == 2) {
			t.Errorf("%v: GroupSize %d, HasMin %v", d, GroupSize(d), HasMin(d))
		}
	}
}

// TestFloats reads the types without blocks.
func TestFloats(t *testing.T) {
	values := []float32{0, float32(math.Copysign(0, -1)), 1, -2.5, 65504, 0x1p-24, float32(math.Inf(-1)), float32(math.NaN())}
	for _, c := range []struct {
		d   tensor.DType
		put func(b []byte, v float32) []byte
	}{
		{tensor.F32, func(b []byte, v float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(v)) }},
		{tensor.F16, func(b []byte, v float32) []byte { return binary.LittleEndian.AppendUint16(b, float16.ToF16(v)) }},
		{tensor.F64, func(b []byte, v float32) []byte {
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
		}},
		{tensor.BF16, func(b []byte, v float32) []byte { return binary.LittleEndian.AppendUint16(b, float16.ToBF16(v)) }},
	} {
		var src []byte
		for _, v := range values {
			src = c.put(src, v)
		}
		if odd := append([]byte{0}, src...)[1:]; !slices.EqualFunc(dequantized(t, c.d, odd), dequantized(t, c.d, src), same) {
			t.Errorf("%v: other values from an odd address", c.d)
		}
		for i, got := range dequantized(t, c.d, src) {
			want := values[i]
			if c.d == tensor.BF16 && want == 65504 {
				want = 65536 // the nearest of 8 bits
			}
			if !same(got, want) {
				t.Errorf("%v: %v, want %v", c.d, got, want)
			}
		}
	}
	f64 := []float64{1 + 0x1p-24, 1 + 0x1.8p-23, 1e300, 1e-300}
	for i, want := range []float32{1, 1 + 0x1p-22, float32(math.Inf(1)), 0} { // ties to even
		if got := dequantized(t, tensor.F64, binary.LittleEndian.AppendUint64(nil, math.Float64bits(f64[i]))); got[0] != want {
			t.Errorf("F64 %v: %v, want %v", f64[i], got[0], want)
		}
	}
}

func TestMXFP4(t *testing.T) {
	codes := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for e := range 256 {
		src := []byte{byte(e), 0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe, 0, 0, 0, 0, 0, 0, 0, 0}
		w := dequantized(t, tensor.MXFP4, src)
		for i, v := range codes {
			want := float32(math.Ldexp(v, e-127))
			if e == 255 {
				want = float32(math.NaN())
			}
			for _, g := range []float32{w[i/2+i%2*16], -w[4+i/2+i%2*16]} {
				if g != want && (g == g || want == want) {
					t.Fatalf("scale %d: %v is read as %v, want %v", e, v, g, want)
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		err  error
		want string
	}{
		{Dequantize(tensor.Q4_K, f(256), make([]byte, 143)), "Q4_K: 143 bytes for 256 elements, need 1 blocks of 144"},
		{Dequantize(tensor.Q4_K, f(256), make([]byte, 288)), "Q4_K: 288 bytes for 256 elements, need 1 blocks of 144"},
		{Dequantize(tensor.Q4_K, f(128), make([]byte, 72)), "Q4_K: 128 elements are no multiple of the block of 256"},
		{Dequantize(tensor.F16, f(2), make([]byte, 3)), "F16: 3 bytes for 2 elements, need 2 blocks of 2"},
		{Dequantize(tensor.I32, f(1), make([]byte, 4)), "I32 elements are not weights"},
		{Dequantize(tensor.Invalid, f(1), make([]byte, 1)), "invalid elements are not weights"},
		{Dequantize(200, f(1), make([]byte, 1)), "DType(200) elements are not weights"},
		{Codes(tensor.F32, make([]byte, 1), make([]byte, 4)), "F32 has no blocks"},
		{Codes(200, nil, nil), "DType(200) has no blocks"},
		{Codes(tensor.Q8_0, make([]byte, 32), make([]byte, 33)), "Q8_0: 33 bytes for 32 elements, need 1 blocks of 34"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
	if GroupSize(tensor.F32) != 0 || GroupSize(200) != 0 || HasMin(200) {
		t.Error("a type without blocks has groups")
	}
}

// TestIncidents holds the rows of the list of incidents that a block can show.
func TestIncidents(t *testing.T) {
	t.Run("A10", func(t *testing.T) {
		for d, f := range facts {
			if d != tensor.NVFP4 { // whose scales are all finite
				t.Run(d.String(), func(t *testing.T) { hostileScales(t, d, f.halves) })
			}
		}
	})
}

// hostileScales sets the float16 factors of random blocks to NaN, infinity, the
// least denormal and zero. The integers must come out as before, the weights as
// the factors say.
func hostileScales(t *testing.T, d tensor.DType, halves []int) {
	r := rand.New(rand.NewPCG(3, 4))
	src := make([]byte, 64*d.BlockBytes())
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	with := func(factor uint16) []float32 {
		for i := 0; i < len(src); i += d.BlockBytes() {
			for _, at := range halves {
				binary.LittleEndian.PutUint16(src[i+at:], factor)
			}
			for j := range 4 {
				if d == tensor.IQ1_M { // four bits in the top of each word of scales
					src[i+49+2*j] = src[i+49+2*j]&15 | byte(factor>>(4*j))<<4
				}
			}
			if d == tensor.MXFP4 { // a scale of 8 bits: the same powers of two
				src[i] = map[uint16]byte{0x3c00: 127, 0x0001: 103, 0x7e00: 255, 0x7c00: 254, 0: 0}[factor]
			}
		}
		return dequantized(t, d, src)
	}
	one := with(0x3c00)
	check := func(name string, factor uint16, ok func(w, one float32) bool) {
		for i, w := range with(factor) {
			if !ok(w, one[i]) {
				t.Fatalf("%s: weight %d = %v, %v with a scale of 1", name, i, w, one[i])
			}
		}
	}
	check("denormal", 0x0001, func(w, one float32) bool { return w == one*0x1p-24 })
	check("NaN", 0x7e00, func(w, _ float32) bool { return w != w })
	check("infinity", 0x7c00, func(w, one float32) bool {
		return math.IsInf(float64(w), 0) || w != w || d == tensor.MXFP4 && w == one*0x1p127
	})
	check("zero", 0, func(w, one float32) bool { return w == 0 || d == tensor.MXFP4 && w == one*0x1p-127 })
	clear(src)
	for i, w := range dequantized(t, d, src) {
		if w != 0 {
			t.Fatalf("all-zero block: weight %d = %v", i, w)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for d := range facts {
		src, w := make([]byte, 4*d.BlockBytes()), make([]float32, 4*d.BlockSize())
		q := make([]byte, len(w))
		if n := testing.AllocsPerRun(10, func() {
			var h Header
			if h.Read(d, src); Dequantize(d, w, src) != nil || Codes(d, q, src) != nil {
				t.Fatal(d)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", d, n)
		}
	}
}

// FuzzDequantize: any type, length and bytes give an error or the weights that
// codes and headers give. The corpus is in testdata/fuzz.
func FuzzDequantize(f *testing.F) {
	f.Fuzz(func(t *testing.T, kind uint8, n uint16, src []byte) {
		d := tensor.DType(kind)
		w := make([]float32, n)
		if err := Dequantize(d, w, src); err != nil {
			if strings.HasPrefix(err.Error(), "quant: ") {
				t.Error(err)
			}
			return
		}
		if want := d.RowBytes(int(n)); want != len(src) {
			t.Fatalf("%v: %d elements read from %d bytes, want %d", d, n, len(src), want)
		}
		if !d.Quantized() {
			return
		}
		q, scale, min := unpacked(t, d, src)
		for i := range w {
			if !same(w[i], weight(d, i, q, scale, min)) {
				t.Fatalf("%v: weight %d: %v, unpacked %v", d, i, w[i], weight(d, i, q, scale, min))
			}
		}
	})
}

// The benchmarks count the bytes of the quantized row.

func BenchmarkDequantize(b *testing.B) {
	for d := tensor.F32; d <= tensor.Q2_0; d++ {
		if !d.Quantized() && !d.Float() {
			continue
		}
		b.Run(d.String(), func(b *testing.B) {
			w := make([]float32, 4096)
			src := make([]byte, d.RowBytes(len(w)))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := Dequantize(d, w, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(len(w)), "ns/weight")
		})
	}
}

func BenchmarkCodes(b *testing.B) {
	for d := tensor.Q4_0; d <= tensor.Q2_0; d++ {
		b.Run(d.String(), func(b *testing.B) {
			q := make([]byte, 4096)
			src := make([]byte, d.RowBytes(len(q)))
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				if err := Codes(d, q, src); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(len(q)), "ns/weight")
		})
	}
}
