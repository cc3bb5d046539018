package quant

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tensor"
)

// blockTypes returns the types of encoded.json.gz. TestEncodedBits has the others.
func blockTypes() (all []tensor.DType) {
	for d := tensor.Q4_0; d <= tensor.MXFP4; d++ {
		all = append(all, d)
	}
	return all
}

// A row is data of one kind, and an importance of its columns.
type row struct {
	name          string
	x, importance []float32
}

// rows makes n weights of each kind that quantizers have been wrong on.
func rows(n int) []row {
	r := rand.New(rand.NewPCG(7, 11))
	bell := func() float32 { return float32(r.IntN(1<<16)+r.IntN(1<<16)+r.IntN(1<<16)-3<<15) / (1 << 16) }
	var all []row
	add := func(name string, f func(i int) float32) {
		x, w := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i], w[i] = f(i), float32(r.IntN(1<<12))/(1<<8)
		}
		all = append(all, row{name, x, w})
	}
	add("signed", func(int) float32 { return bell() / 16 })
	add("positive", func(int) float32 { return 0.25 + float32(r.IntN(1<<16))/(1<<17) })
	add("negative", func(int) float32 { return -0.25 - float32(r.IntN(1<<16))/(1<<17) })
	add("constant", func(int) float32 { return 0.5 })
	add("negative constant", func(int) float32 { return -0.5 })
	add("zero", func(int) float32 { return 0 })
	add("outlier", func(i int) float32 {
		if i%256 == 77 {
			return -30
		}
		return bell() / 64
	})
	add("large", func(int) float32 { return bell() * 4096 })
	add("small", func(int) float32 { return bell() / (1 << 20) }) // whose scales are subnormal in binary16
	add("uneven", func(i int) float32 { return bell() / float32(int(1)<<(i/16%16)) })
	return all
}

// An encoding is the blocks that llama.cpp's quantizers made of a row.
type encoding struct {
	Type       string `json:"type"`
	Row        string `json:"row"`
	Importance bool   `json:"importance,omitempty"`
	Blocks     string `json:"blocks"` // hexadecimal
}

// TestEncoded compares with what ggml_quantize_chunk of llama.cpp gave for rows of 256.
func TestEncoded(t *testing.T) {
	var all []encoding
	f, err := os.Open("testdata/encoded.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, e := range all {
		want[fmt.Sprint(e.Type, e.Row, e.Importance)] = e.Blocks
	}
	for _, d := range blockTypes() {
		for _, r := range rows(256) {
			for _, weighed := range []bool{false, true} {
				w := r.importance
				if !weighed {
					w = nil
				}
				got := make([]byte, d.RowBytes(256))
				if err := Quantize(d, got, r.x, 256, w); err != nil {
					t.Fatal(err)
				}
				if blocks := want[fmt.Sprint(d, r.name, weighed)]; hex.EncodeToString(got) != blocks {
					t.Errorf("%v of %s, importance %v:\n%x, want\n%s", d, r.name, weighed, got, blocks)
				}
			}
		}
	}
	if n := len(blockTypes()) * len(rows(256)) * 2; len(want) != n {
		t.Errorf("%d encodings, want %d", len(want), n)
	}
}

// sums are what was compared of a type.
type sums struct {
	tensors, weights, differ int
	lost, all                float64 // squares of errors, and of weights
}

// TestQuantizeFiles quantizes every tensor of llama.cpp's files from the bfloat16
// ones, to their bytes. With -v it prints the table of docs/quantizing.md.
func TestQuantizeFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Shared(t, "goldens/gguf"), "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[tensor.DType]*sums{}
	for _, d := range blockTypes() {
		seen[d] = &sums{}
	}
	for _, path := range files {
		name, kind, _ := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".gguf"), ".")
		from := filepath.Join(filepath.Dir(path), name+".bf16.gguf")
		if _, err := os.Stat(from); err != nil || kind == "bf16" {
			continue
		}
		t.Run(name+"."+kind, func(t *testing.T) { compareFiles(t, path, from, seen) })
	}
	for _, d := range blockTypes() {
		s := seen[d]
		if s.tensors == 0 {
			t.Errorf("no tensor of %v", d)
		}
		t.Logf("| %v | %.4g | %d | %d | %d | %.3g %% |", d, float64(8*d.BlockBytes())/float64(d.BlockSize()), s.tensors, s.weights, s.differ, 100*math.Sqrt(s.lost/s.all))
	}
}

func compareFiles(t *testing.T, path, from string, seen map[tensor.DType]*sums) {
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := gguf.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, want := range f.Tensors() {
		if !want.DType.Quantized() {
			continue
		}
		source, _ := g.Tensor(want.Name)
		w, got := make([]float32, source.Shape.Size()), make([]byte, len(want.Data))
		if err := Dequantize(source.DType, w, source.Data); err != nil {
			t.Fatal(err)
		}
		if err := Quantize(want.DType, got, w, want.Shape[len(want.Shape)-1], nil); err != nil {
			t.Fatal(err)
		}
		s := seen[want.DType]
		s.tensors, s.weights = s.tensors+1, s.weights+len(w)
		for i, v := range dequantized(t, want.DType, got) {
			s.lost, s.all = s.lost+float64(v-w[i])*float64(v-w[i]), s.all+float64(w[i])*float64(w[i])
		}
		for i, n := 0, want.DType.BlockBytes(); i < len(got); i += n {
			if !bytes.Equal(got[i:i+n], want.Data[i:i+n]) {
				if s.differ++; s.differ == 1 {
					t.Errorf("%s: %v: block %d is\n%x, llama.cpp's\n%x", want.Name, want.DType, i/n, got[i:i+n], want.Data[i:i+n])
				}
			}
		}
	}
}

// TestRoundTrip holds each type to what its bits can do.
func TestRoundTrip(t *testing.T) {
	// The most that an error is, in parts of the greatest magnitude of 256 weights.
	worst := map[tensor.DType]float64{
		tensor.Q4_0: 0.13, tensor.Q4_1: 0.07, tensor.Q5_0: 0.066, tensor.Q5_1: 0.035, tensor.Q8_0: 0.0045,
		tensor.Q2_K: 0.5, tensor.Q3_K: 0.27, tensor.Q4_K: 0.09, tensor.Q5_K: 0.05, tensor.Q6_K: 0.035,
		tensor.IQ4_NL: 0.14, tensor.IQ4_XS: 0.15, tensor.MXFP4: 0.26,
	}
	for _, d := range blockTypes() {
		for _, r := range rows(256) {
			for _, w := range [][]float32{nil, r.importance} {
				got := roundTrip(t, d, r.x, w)
				far := 0.0
				for i, v := range got {
					far = max(far, math.Abs(float64(v-r.x[i])))
				}
				top := float64(abs(peak(r.x)))
				if w == nil && r.name != "small" && far > worst[d]*top || far > top {
					t.Errorf("%v of %s: an error of %g of %g", d, r.name, far/top, top)
				}
			}
		}
	}
}

func roundTrip(t *testing.T, d tensor.DType, x, importance []float32) []float32 {
	t.Helper()
	b := make([]byte, d.RowBytes(len(x)))
	if err := Quantize(d, b, x, len(x), importance); err != nil {
		t.Fatal(err)
	}
	return dequantized(t, d, b)
}

// TestSubnormal: weights too small for any scale are zeros, and those in the same
// block as larger ones, too.
func TestSubnormal(t *testing.T) {
	x := make([]float32, 256)
	for i := range x {
		x[i] = math.Float32frombits(uint32(i) * 5)
	}
	for _, d := range blockTypes() {
		for i, v := range roundTrip(t, d, x, nil) {
			if abs(v) > 1e-37 {
				t.Fatalf("%v: weight %d of %v is %v", d, i, x[i], v)
			}
		}
	}
}

// TestRowsAlike: rows are independent, and so are the blocks of one without
// importance; rows that are no multiple of 256 have all their blocks.
func TestRowsAlike(t *testing.T) {
	const k = 288
	x := append(rows(k)[0].x, rows(k)[9].x...)
	w := rows(k)[0].importance
	for _, d := range blockTypes() {
		if k%d.BlockSize() != 0 {
			continue
		}
		for _, w := range [][]float32{nil, w} {
			n := d.RowBytes(k)
			both, first, second := make([]byte, 2*n), make([]byte, n), make([]byte, n)
			if err := Quantize(d, both, x, k, w); err != nil {
				t.Fatal(err)
			}
			Quantize(d, first, x[:k], k, w)
			Quantize(d, second, x[k:], k, w)
			if !bytes.Equal(both, append(first, second...)) {
				t.Errorf("%v: two rows differ from each alone", d)
			}
			if w == nil {
				Quantize(d, first[d.BlockBytes():], x[32:k], k-32, nil)
				Quantize(d, first, x[:32], 32, nil)
				if !bytes.Equal(both[:n], first) {
					t.Errorf("%v: blocks depend on each other", d)
				}
			}
		}
	}
}

func TestQuantizeErrors(t *testing.T) {
	quantize := func(d tensor.DType, k int, v float32, w []float32) error {
		x := make([]float32, 512)
		x[300] = v
		return Quantize(d, make([]byte, d.RowBytes(512)), x, k, w)
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		err  error
		want string
	}{
		{quantize(tensor.I32, 256, 0, nil), "weights are not written as I32"},
		{quantize(tensor.F64, 256, 0, nil), "weights are not written as F64"},
		{quantize(tensor.Q4_0, 0, 0, nil), "Q4_0: 512 weights are no rows of 0"},
		{quantize(tensor.Q4_0, 100, 0, nil), "Q4_0: 512 weights are no rows of 100"},
		{quantize(tensor.Q4_K, 128, 0, nil), "Q4_K: a row of 128 weights is no multiple of the block of 256"},
		{Quantize(tensor.Q8_0, nil, make([]float32, 32), 32, nil), "Q8_0: 0 bytes for 32 elements, need 1 blocks of 34"},
		{quantize(tensor.Q6_K, 256, 0, make([]float32, 3)), "Q6_K: importance of 3 columns, the rows have 256"},
		{quantize(tensor.Q6_K, 256, 0, append(make([]float32, 255), -1)), "Q6_K: importance of column 255 is -1"},
		{quantize(tensor.Q6_K, 256, 0, append(make([]float32, 255), inf)), "Q6_K: importance of column 255 is +Inf"},
		{quantize(tensor.Q8_0, 256, inf, nil), "Q8_0: weight 44 of row 1 is +Inf"},
		{quantize(tensor.F16, 256, float32(math.NaN()), nil), "F16: weight 44 of row 1 is NaN"},
		{quantize(tensor.F16, 256, 65520, nil), "F16: weight 44 of row 1 is 65520, more than it holds"},
		{quantize(tensor.BF16, 256, -math.MaxFloat32, nil), "BF16: weight 44 of row 1 is -3.4028235e+38, more than it holds"},
		{quantize(tensor.Q8_0, 256, 1e10, nil), "Q8_0: no scale of binary16 (at most 65504) holds weights 32 to 63 of row 1"},
		{quantize(tensor.Q4_K, 256, 1e30, nil), "Q4_K: no scale of binary16 (at most 65504) holds weights 0 to 255 of row 1"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %q", c.err, c.want)
		}
	}
	if err := quantize(tensor.MXFP4, 256, math.MaxFloat32, nil); err != nil {
		t.Error(err)
	}
}

// FuzzQuantize: any weights and importance give an error or blocks of finite
// weights, no further from them than their magnitude, or twice that. Those of no importance
// may be anywhere, as llama-quantize's are (TestZeroImportance).
func FuzzQuantize(f *testing.F) {
	f.Fuzz(func(t *testing.T, kind uint8, k uint16, raw []byte, weighed bool) {
		d := tensor.DType(kind)
		x := make([]float32, len(raw)/4)
		Dequantize(tensor.F32, x, raw[:len(x)*4])
		var w []float32
		if weighed && int(k) <= len(x) {
			w, x = x[:k], x[k:]
		}
		var b []byte
		if d.Quantized() || d.Float() {
			b = make([]byte, d.RowBytes(len(x)))
		}
		if err := Quantize(d, b, x, int(k), w); err != nil {
			if strings.HasPrefix(err.Error(), "quant: ") {
				t.Error(err)
			}
			return
		}
		top := abs(peak(x))
		for i, v := range dequantized(t, d, b) {
			if w != nil && w[i%int(k)] == 0 && abs(v) <= math.MaxFloat32 {
				continue
			}
			if !(abs(v-x[i]) <= 2*top+1e-37) {
				t.Fatalf("%v: weight %d of %v becomes %v, the largest is %v", d, i, x[i], v, top)
			}
		}
	})
}

// TestCodeE2M1 compares codes with the nearest values: in the middle of two values, beside it, and for scales without
// the order that codeE2M1 needs.
func TestCodeE2M1(t *testing.T) {
	for _, scale := range []float32{1, 0.1875, 1.75 / 1024, 240, 0x1p-99, 0x1p-101, 0x1p-149, 0x1p120, 0} {
		var x []float32
		for i := range 52 {
			v := float32(i) / 4 * scale
			x = append(x, v, -v, math.Nextafter32(v, 0), -math.Nextafter32(v, math.MaxFloat32))
		}
		for _, x := range [][]float32{x, append(x, scale*0x1p30), append(x, 1e-38, -1e-45)} {
			q := make([]byte, len(x))
			codeE2M1(q, x, scale, abs(peak(x)))
			for i, v := range x {
				if want := nearestE2M1(v, scale); q[i] != want {
					t.Fatalf("scale %g: %g is %d, want %d", scale, v, q[i], want)
				}
			}
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	r := rows(8192)[0]
	for d := tensor.F32; d <= tensor.Q2_0; d++ {
		for _, w := range [][]float32{nil, r.importance} {
			if !isWritten(d) || w == nil && needsImportance(d) ||
				w != nil && (!d.Quantized() || d == tensor.Q8_0 || d == tensor.MXFP4) {
				continue
			}
			b.Run(fmt.Sprintf("%v,importance=%v", d, w != nil), func(b *testing.B) {
				dst := make([]byte, d.RowBytes(len(r.x)))
				for b.Loop() {
					if err := Quantize(d, dst, r.x, len(r.x), w); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(len(r.x)), "ns/weight")
			})
		}
	}
}
