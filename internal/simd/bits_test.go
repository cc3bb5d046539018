package simd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"
)

// digest is the SHA-256 of x's bits, all NaNs counted as one.
func digest(x []float32) string {
	h := sha256.New()
	for _, v := range x {
		b := math.Float32bits(v)
		if v != v {
			b = 0x7fc00000
		}
		h.Write(binary.LittleEndian.AppendUint32(nil, b))
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// A sample is a use of kernels, for tests that compare: it fills dst from a and
// b, all of one length; b may hold specials.
type sample struct {
	name, digest string
	run          func(a, b, dst []float32)
}

// samples are the kernels with the digests of what they give TestBits.
var samples = []sample{
	{"exp", "4ddc0be898bb8c26", func(a, b, dst []float32) {
		for i := range dst {
			dst[i] = Exp(b[i]) + Exp(float32(a[i]*60))
		}
	}},
	{"tanh", "0d2dbb9e6d39aeba", func(a, b, dst []float32) {
		for i := range dst {
			dst[i] = tanh(a[i]) - tanh(b[i])
		}
	}},
	{"dot f32", "ba604a1f881fbead", func(a, b, dst []float32) { DotsF32(dst, 1, a, b, len(a)) }},
	{"dot f16", "eaa02e171ed133b4", func(a, b, dst []float32) { DotsF16(dst, 1, bits16(b), a, len(a)) }},
	{"dot bf16", "60b819b97db10b14", func(a, b, dst []float32) { DotsBF16(dst, 1, bits16(b), a, len(a)) }},
	{"f16", "a661e4045e41f17c", func(a, b, dst []float32) {
		h := make([]uint16, len(dst))
		StoreF16(h, a)
		LoadF16(dst, h)
		LoadF16(dst[len(h)/2:], bits16(b)[len(h)/2:])
	}},
	{"panel", "5431c36da8158e80", panelBits},
	{"silu", "9033b98f33aea3bc", func(a, b, dst []float32) { silu(dst, b); AddScaled(dst, a, 3) }},
	{"gelu", "83240b2383cb7ec7", func(a, b, dst []float32) { gelu(dst, a); Add(dst, dst, b) }},
	{"swiglu", "bae717c33f3a2f2d", func(a, b, dst []float32) { SwiGLU(dst, a, b) }},
	{"geglu", "c9ebef839f5b217f", func(a, b, dst []float32) { GeGLU(dst, a, b) }},
	{"softcap", "69e5c9114d44696b", func(a, b, dst []float32) { Softcap(dst, a, 0.7); Mul(dst, dst, b) }},
	{"rms norm", "e46d960ad4d6b25c", func(a, b, dst []float32) { RMSNorm(dst, a, b, 1, 1e-6) }},
	{"rotate", "5ed9f8700543e027", func(a, b, dst []float32) {
		copy(dst, a)
		Rotate(dst, b[:len(b)/2], b[len(b)/2:])
	}},
	{"softmax", "198e764782c7a5f2", func(a, b, dst []float32) { Softmax(dst, a) }},
	{"add scaled", "0ed111dd8f0df820", func(a, b, dst []float32) { Scale(dst, a, 1.1); AddScaled(dst, b, 1.3) }},
	{"max", "3b4cdcdf534eafb4", func(a, b, dst []float32) { dst[0] = Maximum(a) }},
	{"attention", "9e075c16c24f6a5a", attentionBits},
	{"layer norm", "ac3582106188c01e", func(a, b, dst []float32) {
		LayerNorm(dst, a, b, a, slices.Repeat([]float32{1}, len(a)), 1e-5)
	}},
	{"l2 norm", "7c05a68461dbcae3", func(a, b, dst []float32) { L2Norm(dst, a, 1e-6); Add(dst, dst, b) }},
	{"softplus", "456b0b1b04bbd288", func(a, b, dst []float32) {
		for i := range dst {
			dst[i] = softplus(a[i])
		}
		Sigmoid(dst, dst)
		for i := range dst {
			dst[i] *= softplus(b[i])
		}
	}},
	{"conv", "419a51f4157ccb21", func(a, b, dst []float32) {
		n := len(a)
		Conv(dst, slices.Concat(a, b), b, 0, slices.Concat(a, a, b), b, make([]float32, n), n)
		Add(dst, dst, b)
	}},
	{"scan", "03d8365b89c0b4d5", scanBits},
}

// TestBits holds every kernel to one digest on all architectures and at every
// tier, over inputs of every size, ordinary and wild.
func TestBits(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for _, s := range samples {
			t.Run(s.name, func(t *testing.T) {
				r := rng(99)
				var out []float32
				for _, n := range sizes[1:] {
					for i := range 8 {
						a, b, dst := values(r, n), values(r, n), make([]float32, n)
						if i%2 == 1 {
							b = anything(r, n, i%4 == 3)
						}
						s.run(a, b, dst)
						out = append(out, dst...)
					}
				}
				if got := digest(out); got != s.digest {
					t.Errorf("digest %s, want %s", got, s.digest)
				}
			})
		}
	})
}

// bits16 is the upper halves of b's patterns.
func bits16(b []float32) []uint16 {
	h := make([]uint16, len(b))
	for i, v := range b {
		h[i] = uint16(math.Float32bits(v) >> 16)
	}
	return h
}

// scanBits runs a chunk of a scan with a state of a and b, whose rows are parts of both.
func scanBits(a, b, dst []float32) {
	const n, rows = 3, 7
	dim := len(a)
	all := slices.Concat(a, b, make([]float32, n))
	c := &Chunk{State: slices.Concat(a, b, a), Kept: make([]float32, ChunkRows*dim), Logs: make([]float32, ChunkRows),
		Rests: make([]float32, ChunkRows)}
	for i := range ChunkRows {
		_, log := Decay(-0.7, a[i%dim], b[0])
		c.Follow(i, log)
		c.Keys = append(c.Keys, all[i%(2*dim):][:n]...)
	}
	x, y, q, beta := slices.Repeat(a, rows), make([]float32, rows*dim), c.Keys[:rows*n], []float32{1, 0.2, 0.5, 0, 0.3, 1, 0.7}
	var s Scan
	s.Meet(c.Keys, q, n, 1, 0, rows)
	s.SSM(c, y, x, dim, q, n, 0.3, 0, rows)
	Add(dst, dst, y[6*dim:])
	asks := c.asks(q, n, 0)
	s.Meet(c.Keys, asks, n, 2, 0, rows)
	s.Delta(c, y, x, dim, asks, n, beta, 0, rows)
	s.Turn(c.Keys, n)
	s.Advance(c, c.State)
	for i := range n {
		Add(dst, dst, c.State[i*dim:(i+1)*dim])
		Add(dst, dst, y[i*2*dim:][:dim])
	}
}

// panelBits quantizes a as activations and takes b's bits as the integers of a
// panel's row. Nothing reads what the other rows give.
func panelBits(a, b, dst []float32) {
	const group, offset = 16, 128
	row, padded := len(a)%PanelRows, append(slices.Clone(a), make([]float32, -len(a)&(ActGroup-1))...)
	k := len(padded)
	w := &Panel{Codes: make([]byte, k*PanelRows), Scale: eachRow(k/group, 0.1, 3e-5, -7), Group: group}
	for c, v := range b {
		w.Codes[c/4*vector+4*row+c%4] = byte(math.Float32bits(v)>>13) + offset
	}
	x := &Acts{Q: make([]int16, k), DX: make([]float32, k/ActGroup), Init: make([]int32, k/group), Sums: make([]float32, k/group)}
	Quantize(x.Q, x.DX, padded)
	GroupInit(x.Init, x.Q, group, offset)
	GroupSums(x.Sums, x.Q, x.DX, group)
	var plain, min [PanelRows]float32
	AddPanel(plain[:], w, x)
	dst[0] = plain[row]
	w.Min = eachRow(k/group, 1, -0.3)
	AddPanel(min[:], w, x)
	dst[len(dst)-1] += min[row]
}

// eachRow gives a panel's groups these numbers in turn, the same in all rows.
func eachRow(groups int, numbers ...float32) []float32 {
	x := make([]float32, groups*PanelRows)
	for i := range x {
		x[i] = numbers[i/PanelRows%len(numbers)]
	}
	return x
}

// attentionBits has heads of 8 or 1, ten query heads' worth of keys in b.
func attentionBits(a, b, dst []float32) {
	d := 8
	if len(a) < d {
		d = 1
	}
	slots := min(len(a)/d, BlockSlots)
	var att Attention
	ask(&att, d, a[:d])
	seeRows(&att, d, a, b, slots, 3)
	k, v := make([]float32, len(a)), make([]float32, len(b))
	LoadF16(k, bits16(a))
	LoadF16(v, bits16(b))
	seeRows(&att, d, k, v, slots, -2)
	att.Result(0, dst[:d])
}
