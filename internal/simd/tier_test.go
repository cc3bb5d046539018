package simd

import (
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// eachTier runs a test at every tier of this machine.
func eachTier(t *testing.T, f func(t *testing.T)) {
	defer func(l level) { tier = l }(tier)
	for l := range bestLevel() + 1 {
		tier = l
		t.Run(Tier(), f)
	}
}

// generically runs f at the tier generic.
func generically(f func()) {
	defer func(l level) { tier = l }(tier)
	tier = generic
	f()
}

// packed are the codes that Unpack unpacks.
var packed = []Codes{Codes4, CodesTable, Codes41, Codes42, Codes2, Codes21, Codes1}

func TestChoose(t *testing.T) {
	x86, arm := []string{"generic", "avx2", "avx512", "amx"}, []string{"generic", "neon", "sdot"}
	for _, c := range []struct {
		name string
		have []string // of x86 or arm
		want level
		err  string
	}{
		{"", x86[:1], 0, ""}, {"", x86[:2], 1, ""}, {"", x86, 3, ""}, {"", arm, 2, ""},
		{"generic", x86, 0, ""}, {"avx2", x86, 1, ""}, {"avx512", x86, 2, ""}, {"neon", arm, 1, ""}, {"sdot", arm, 2, ""},
		{"avx512", x86[:2], 1, "no avx512, only generic, avx2"}, {"avx2", x86[:1], 0, "no avx2, only generic"},
		{"amx", x86[:3], 2, "no amx"}, {"neon", x86, 3, "no neon"}, {"sdot", arm[:2], 1, "no sdot"}, {"amx", arm, 2, "no amx"},
		{"AVX2", x86, 3, `"AVX2" is none of generic, avx2,`}, {"best", arm[:1], 0, `"best" is none`},
	} {
		all := x86
		if len(c.have) > 1 && c.have[1] == arm[1] {
			all = arm
		}
		l, err := choose(c.name, all, func(l level) bool { return int(l) < len(c.have) })
		if l != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q of %v: %v, %v", c.name, c.have, l, err)
		}
	}
	if all := Tiers(); all[0] != "generic" || !slices.Contains(all, Tier()) {
		t.Errorf("tier %s of %v", Tier(), all)
	}
	for _, name := range levels {
		if !slices.Contains(levelNames, name) {
			t.Errorf("KARAT_SIMD does not know %s", name)
		}
	}
}

// twins are uses of kernels on rows of many lengths, besides samples.
var twins = []sample{
	{"dot rows f32", "", func(a, b, dst []float32) {
		rows, k := shape(len(a))
		DotsF32(dst[:rows], 1, a[:k], b[:rows*k], k)
		DotsF32(dst[:rows], rows, a[len(a)-rows*k:], b[len(b)-k:], k)
	}},
	{"dot rows f16", "", func(a, b, dst []float32) {
		rows, k := shape(len(a))
		DotsF16(dst[:rows], 1, raw16(b)[len(b)-k:], a[len(a)-rows*k:], k)
		DotsF16(dst[:rows], rows, raw16(b)[len(b)-rows*k:], a[len(a)-k:], k)
	}},
	{"dot rows bf16", "", func(a, b, dst []float32) {
		rows, k := shape(len(a))
		DotsBF16(dst[:rows], 1, raw16(b)[len(b)-k:], a[len(a)-rows*k:], k)
		DotsBF16(dst[:rows], rows, raw16(b)[len(b)-rows*k:], a[len(a)-k:], k)
	}},
	{"attention", "", func(a, b, dst []float32) {
		n, d := shape(len(a))
		var x Attention
		ask(&x, d, a[:d], b[:d], a[len(a)-d:])
		seeRows(&x, d, a[len(a)-n*d:], b[len(a)-n*d:], n, 3)
		seeRows(&x, d, a[len(a)-n*d:], a[len(a)-n*d:], n, -0.3)
		x.Result(len(a)%3, dst[:d])
	}},
	{"in place", "", func(a, b, dst []float32) {
		silu(a, a)
		GeGLU(b, a, b)
		SwiGLU(b, b, a)
		Add(a, b, a)
		Mul(a, a, a)
		Scale(b, b, -0.3)
		Softcap(a, a, 5)
		Softmax(b, b)
		RMSNorm(a, a, b, 1, 1e-6)
		Add(dst, a, b)
	}},
	{"softmax of specials", "", func(a, b, dst []float32) { Softmax(dst, b) }},
	{"softcap of specials", "", func(a, b, dst []float32) { Softcap(dst, b, 3) }},
	{"gelu of specials", "", func(a, b, dst []float32) { gelu(dst, b) }},
	{"max of specials", "", func(a, b, dst []float32) { dst[0] = Maximum(b) }},
	{"load and store", "", func(a, b, dst []float32) {
		h := raw16(a)
		StoreF16(h, b)
		LoadF16(dst, h)
		LoadBF16(b, raw16(b))
		Add(dst, dst, b)
	}},
	{"rotate", "", func(a, b, dst []float32) {
		n := len(a) / 2
		Rotate(a[:2*n], b[:n], b[len(b)-n:])
		copy(dst, a)
	}},
	{"quantize", "", func(a, b, dst []float32) {
		groups := len(b) / ActGroup
		q, dx := make([]int16, groups*ActGroup), make([]float32, groups)
		Quantize(q, dx, b[len(b)-len(q):])
		for i, v := range q {
			dst[i] = float32(v) + dx[i/ActGroup]
		}
	}},
}

// raw16 is the upper half of b's memory as 16-bit patterns, len(b) of them.
func raw16(b []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), 2*len(b))[len(b):]
}

// shape cuts n elements into rows of k, with every number of rows up to 19. An
// even n makes rows of whole blocks where it can.
func shape(n int) (rows, k int) {
	rows = min(n, n%19+1)
	if k = n / rows; n%2 == 0 && k > lanes {
		k -= k % lanes
	}
	return rows, k
}

// differ runs s generically and at each tier and returns the tier that differs.
func differ(s sample, a, b []float32, guard func(n int) []float32) (wrong level, got, want []float32) {
	defer func(l level) { tier = l }(tier)
	for l := range bestLevel() + 1 {
		x, y, dst := guard(len(a)), guard(len(b)), guard(len(a))
		copy(x, a)
		copy(y, b)
		clear(dst)
		tier = l
		s.run(x, y, dst)
		if want == nil {
			want = slices.Clone(dst)
		}
		if !slices.EqualFunc(dst, want, same) {
			return l, slices.Clone(dst), want
		}
	}
	return generic, nil, nil
}

// TestTwins compares each tier with the generic twins, over slices that end
// where memory ends.
func TestTwins(t *testing.T) {
	guard := guarded(t)
	for _, s := range slices.Concat(samples, twins) {
		r := rng(1234)
		for i := range 400 {
			n := 1 + r.IntN(70)
			if i%4 == 0 {
				n = 1 + r.IntN(1000)
			}
			a, b := values(r, n), values(r, n)
			if i%3 == 1 {
				b = anything(r, n, i%2 == 0)
			}
			if i%3 == 2 {
				a = anything(r, n, i%2 == 0)
			}
			if l, got, want := differ(s, a, b, guard); l != generic {
				t.Errorf("%s of %d elements at tier %s", s.name, n, levels[l])
				equal(t, "bits", got, want)
			}
		}
	}
}

// TestNoAllocations runs every kernel, whose slices must not be made to escape: of
// AddRow and WidenPlanes those of the tiers that have one.
func TestNoAllocations(t *testing.T) {
	var a Attention
	a.Reset(1, 1, 1, 0) // which makes its buffers
	spans := [1]Span{{2, 50}}
	eachTier(t, func(t *testing.T) {
		if n := testing.AllocsPerRun(10, func() {
			var x, y, dst [64]float32
			var h [64]uint16
			DotsF32(dst[:], 8, x[:], y[:], 8)
			DotsF16(dst[:16], 4, h[:], y[:], 16)
			DotsBF16(dst[:16], 4, h[:], y[:], 16)
			dst[0] = dotF32(x[:], y[:])
			LoadF16(dst[:], h[:])
			LoadBF16(dst[:], h[:])
			StoreF16(h[:], dst[:])
			usePanels()
			RMSNorm(dst[:], x[:], y[:], 1, 1e-6)
			Rotate(x[:], y[:32], dst[:32])
			Add(dst[:], x[:], y[:])
			Mul(dst[:], x[:], y[:])
			Scale(dst[:], x[:], 2)
			AddScaled(dst[:], x[:], 2)
			Maximum(x[:])
			Softmax(dst[:], x[:])
			silu(dst[:], x[:])
			gelu(dst[:], x[:])
			SwiGLU(dst[:], x[:], y[:])
			GeGLU(dst[:], x[:], y[:])
			Softcap(dst[:], x[:], 30)
			a.Reset(1, 1, 1, 0)
			a.Add(x[:], y[:], spans[:], 1)
			a.Result(0, dst[:1])
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

// usePanels runs the kernels of panels: a unit and 16 rows.
func usePanels() {
	const rows, k = 16, ActGroup
	var codes, src [UnitSize]byte
	var table [16]byte
	var d [PanelRows]uint16
	var integers [PanelRows]int8
	var scale, min [PanelRows]float32
	var x, acc [rows * k]float32
	var q [rows * k]int16
	var dx, sums [rows]float32
	var init [rows]int32
	var parts [2 * rows * k]uint16
	var wide [UnitSize]uint16
	var fit Fit
	for _, c := range packed {
		Unpack(codes[:], src[:], c, &table)
	}
	Widen(wide[:], codes[:], 8)
	PanelScales(scale[:], d[:], integers[:])
	Quantize(q[:], dx[:], x[:])
	GroupSums(sums[:], q[:], dx[:], k)
	GroupInit(init[:], q[:], k, 8)
	Split(parts[:], q[:])
	Weave(codes[:], src[:], 16, 1, 16, 4*vector, 1)
	WeaveHalves(codes[:], src[:], 32, 1, 32, 4*vector, 4*vector)
	WeaveBits(codes[:], src[:], 32, vector, true)
	BlocksQ8_0(src[:], x[:BlockWeights])
	BlocksQ4_0(src[:], x[:BlockWeights])
	Largest(x[:])
	if HasTiles(64) {
		var numbers [64]uint16
		WidenPlanes(wide[:], src[:], Codes4, &numbers)
	}
	if s := (Stored{Group: 32, Scales: StoredColumns, Chunk: StoredColumns + 32*vector}); s.HasRow() {
		var data [StoredColumns + 32*vector]byte
		AddRow(acc[:PanelRows], data[:], 1, len(data), 0, &s, &Acts{Q: q[:StoredColumns], DX: dx[:]})
	}
	FitScale(&fit, x[:FitLanes*16], acc[:FitLanes*16], 16, dx[:], 8)
	FitMin(&fit, x[:FitLanes*16], acc[:FitLanes*16], 16, dx[:], 15, true)
	w := Panel{Codes: codes[:], Wide: wide[:], Scale: scale[:], Min: min[:], Group: k}
	a := Acts{Q: q[:], DX: dx[:], Init: init[:], Sums: sums[:]}
	AddPanel(acc[:rows*PanelRows], &w, &a)
	AddTiles(acc[:rows*PanelRows], []*Panel{&w}, &a, parts[:])
}
