package webgpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/dev/backendtest"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// TestFill wants of fill what layout says: every number of every row, and every scale,
// where it lies for weight.wgsl.
func TestFill(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, d := range tensor.QuantizedTypes() {
		if bits, zero := d.Groups(); zero && bits == 8 {
			continue // random codes of 8 bits have no zero points
		}
		for _, blocks := range []int{1, 3, 17} {
			testFill(t, r, d, blocks*d.BlockSize())
		}
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.F64, tensor.F16, tensor.BF16} {
		for _, k := range []int{1, 30, 64, 259} {
			testFill(t, r, d, k)
		}
	}
}

func testFill(t *testing.T, r *rand.Rand, d tensor.DType, k int) {
	t.Helper()
	const rows, first, n = 37, 5, 45 // some before them in the same words, some behind
	l, err := layoutOf(d, k)
	if err != nil {
		t.Fatal(err)
	}
	w := weightOf(r, d, 0, nil, rows+1, k)
	for b := w.Data; l.Zero && len(b) > 0; b = b[d.BlockBytes():] {
		b[2] &= 1<<(l.Bits+l.High) - 1
	}
	f := filler{layout: l, w: &tensor.Coded{Tensor: w.Tensor, Mul: 1, Div: 1}, from: 1, first: first, n: n, k: k, words: make([]byte, n*l.bytes(k)), peak: &peak{}}
	if err := f.all(rows); err != nil {
		t.Fatal(err)
	}
	want := laid{layout: l, n: n, k: k, words: make([]uint32, n*l.bytes(k)/4)}
	for i := range rows {
		want.row(t, first+i, d, w.Row(1+i))
	}
	if !bytes.Equal(f.words, bytesIn(want.words)) {
		t.Errorf("%v of %d columns do not lie as they should", d, k)
	}
	if got := math.Float32frombits(f.peak.bits.Load()); !(got >= want.peak && got <= 4*want.peak) {
		t.Errorf("%v of %d columns: the peak is %g, the largest number %g", d, k, got, want.peak)
	}
}

// laid is a weight as layout has it, put there number by number.
type laid struct {
	layout
	n, k  int
	words []uint32
	peak  float32
}

// put adds bits to word i of row n, of those that lie side by side in so many.
func (l *laid) put(i, n, together int, word uint32) {
	l.words[(i/together*l.n+n)*together+i%together] |= word
}

func (l *laid) row(t *testing.T, n int, d tensor.DType, row []byte) {
	t.Helper()
	if l.Plain != "" {
		l.floats(n, d, row)
		return
	}
	low, high, _ := l.layout.words(l.k)
	side, codes := min(l.Bits, 4), make([]byte, l.k)
	if err := quant.Codes(d, codes, row); err != nil {
		t.Fatal(err)
	}
	numbers := make([]float32, l.k)
	if err := quant.Dequantize(d, numbers, row); err != nil {
		t.Fatal(err)
	}
	for i, c := range codes {
		if l.Zero {
			c += row[i/d.BlockSize()*d.BlockBytes()+2] - 128
		}
		if levels := quant.Levels(d); levels != nil {
			c = byte(slices.Index(levels, int8(c-128)))
		}
		if x := math.Abs(float64(numbers[i])); x <= math.MaxFloat32 {
			l.peak = max(l.peak, float32(x))
		}
		l.put(i*l.Bits/32, n, side, uint32(c)&(1<<l.Bits-1)<<(i*l.Bits%32))
		if l.High > 0 {
			j := i % 32 / 8 // high bits lie as far apart as low ones, of several eights in turns
			l.put(low+i*l.High/32, n, 1, uint32(c)>>l.Bits<<(i%8*l.Bits+map[int][4]int{2: {0, 1, 16, 17}, 4: {0, l.High, 2 * l.High % 4, 3 * l.High % 4}}[l.Bits][j]))
		}
	}
	for b := range l.k / d.BlockSize() {
		var h quant.Header
		h.Read(d, row[b*d.BlockBytes():])
		if l.Units == 1 && !l.Min { // two numbers in a word: of two units, or of a unit's groups
			for i := range d.BlockSize() / quant.GroupSize(d) {
				v, at := h.D, b*d.BlockSize()/quant.GroupSize(d)+i
				if l.Each {
					v = h.Each[i]
				}
				l.put(low+high+at/2, n, 1, uint32(v)<<(at%2*16))
			}
			continue
		}
		at := low + high + b*l.Head
		l.put(at, n, 1, uint32(h.D)|uint32(h.Min)<<16|uint32(h.Zero)<<16)
		for g := range (l.Head - 1) * 4 {
			scale := uint8(h.Scales[g%(256/l.Group)])
			if g >= 256/l.Group {
				scale = uint8(h.Mins[g%(256/l.Group)])
			}
			l.put(at+1+g/4, n, 1, uint32(scale)<<(g%4*8))
		}
	}
}

func (l *laid) floats(n int, d tensor.DType, row []byte) {
	for i := range l.k {
		switch d {
		case tensor.F32:
			l.put(i, n, 4, binary.LittleEndian.Uint32(row[4*i:]))
		case tensor.F64:
			l.put(i, n, 4, math.Float32bits(float32(math.Float64frombits(binary.LittleEndian.Uint64(row[8*i:])))))
		default:
			l.put(i/2, n, 4, uint32(binary.LittleEndian.Uint16(row[2*i:]))<<(i%2*16))
		}
	}
}

// BenchmarkFill is how fast weights are laid out for the GPU.
func BenchmarkFill(b *testing.B) {
	const rows, k = 512, 2048
	for _, d := range []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K, tensor.Q2_K, tensor.F16} {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			l, err := layoutOf(d, k)
			if err != nil {
				b.Fatal(err)
			}
			f := filler{layout: l, w: &tensor.Coded{Tensor: weightOf(rand.New(rand.NewPCG(1, 2)), d, 0, nil, rows, k).Tensor, Mul: 1, Div: 1}, n: rows, k: k, words: make([]byte, rows*l.bytes(k)), peak: &peak{}}
			b.SetBytes(int64(len(f.w.Data)))
			for b.Loop() {
				if err := f.fill(0, rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRemote: a model takes as many bytes as Weights says before, and the GPU tells what it has.
func TestRemote(t *testing.T) {
	b, g := New(device(t), Options{}), backendtest.Decoder(t, 3, tensor.Q8_0, 0, 7)
	want := b.Weights(g)
	start(t, b, g, 4, nil)
	var got int64
	for w := range b.weights {
		got += w.bytes()
	}
	if got != want || got == 0 {
		t.Errorf("%d bytes were uploaded, Weights says %d", got, want)
	}
	if name, bytes := b.Memory(); name != b.d.Adapter().Name || bytes != b.d.Adapter().Memory {
		t.Errorf("%s has %d bytes", name, bytes)
	}
}

// TestNormal: a weight with a subnormal scale is as exact as others, which have a shorter conversion.
func TestNormal(t *testing.T) {
	d := device(t)
	for scale, normal := range map[uint16]bool{0x1400: true, 0: true, 0x0201: false, 0x83ff: false} {
		g := made(t, 256, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
			return b.Linear(weightOf(r, tensor.Q6_K, scale, scales[tensor.Q6_K], 32, 256), x, 32)
		})
		b := New(d, Options{})
		got := start(t, b, g, 4, nil).run(1, 2, 3)
		near(t, got, start(t, reference.Backend{}, g, 4, nil).run(1, 2, 3), 1e-6)
		for _, w := range b.weights {
			if w.Bits == 4 && w.Normal != normal {
				t.Errorf("scale %#x: normal is %v", scale, w.Normal)
			}
		}
	}
}
