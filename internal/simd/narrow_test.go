package simd

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/float16"
)

// narrowed returns a block in 8 bits, and its numbers as rows of keys and values.
func narrowed(k, v []float32, d, values int) (n *Narrow, keys, vals []float32) {
	codes, scales := NarrowSize(d, values)
	n = &Narrow{Codes: make([]byte, codes), Scales: make([]uint16, scales)}
	block := make([]float32, BlockSlots*d)
	for j := range BlockSlots {
		for e := range d {
			block[(j/KeySlots*d+e)*KeySlots+j%KeySlots] = k[j*d+e]
		}
	}
	n.Pack(block, v, d, values)
	at := func(from, row, column, columns int) float32 {
		panel, row := from+row/PanelRows*columns*PanelRows, row%PanelRows
		code := n.Codes[panel+column/4*vector+4*row+column%4]
		return float32(int(code)-128) * float16.F16(n.Scales[panel/ActGroup+column/ActGroup*PanelRows+row])
	}
	keys, vals = make([]float32, len(k)), make([]float32, len(v))
	for i := range keys {
		keys[i] = at(0, i/d, i%d, upTo(d, ActGroup))
	}
	for i := range vals {
		vals[i] = at(BlockSlots*upTo(d, ActGroup), i%values, i/values, BlockSlots)
	}
	return n, keys, vals
}

// TestPackNarrow: numbers are near, a group of small ones keeps its own scale, and a bad number spoils its group alone.
func TestPackNarrow(t *testing.T) {
	r := rng(8)
	for _, d := range []int{1, 20, 64, 80, 576} {
		const wide = 48
		k, v := values(r, BlockSlots*d), values(r, BlockSlots*wide)
		_, keys, vals := narrowed(k, v, d, wide)
		for i, x := range k {
			group := k[i/d*d+i%d/32*32 : min(i/d*d+i%d/32*32+32, i/d*d+d)]
			if top := largestGeneric(group); math.Abs(float64(keys[i]-x)) > float64(top)/250 {
				t.Fatalf("key %d of %d: %v is %v, beside %v", i, d, x, keys[i], top)
			}
		}
		for i, x := range v {
			var top float32
			for j := range 32 {
				top = max(top, float32(math.Abs(float64(v[(i/wide/32*32+j)*wide+i%wide]))))
			}
			if math.Abs(float64(vals[i]-x)) > float64(top)/250 {
				t.Fatalf("value %d: %v is %v, beside %v", i, x, vals[i], top)
			}
		}
	}
	k := slices.Repeat([]float32{1e-7}, BlockSlots*64)
	k[3], k[70] = inf, nan
	_, keys, _ := narrowed(k, make([]float32, BlockSlots), 64, 1)
	for i, x := range keys {
		if bad := i < 32 || i >= 64 && i < 96; (x != x) != bad || !bad && !(math.Abs(float64(x)-1e-7) < 3e-8) {
			t.Fatalf("number %d: %v", i, x)
		}
	}
}

// TestNarrowTogether compares queries that attend together to blocks of both kinds, at every tier, with each attending
// alone on the generic tier, and with the same numbers in float32.
func TestNarrowTogether(t *testing.T) {
	r := rng(78)
	for _, d := range []int{20, 64, 96, 128, 256} {
		for _, wide := range []int{d, 16, 40} {
			for range 4 {
				n, limit := 1+r.IntN(11), []float32{0, 3}[r.IntN(2)]
				q := values(r, n*d)
				all := make([]Attention, bestLevel()+1)
				alone, exact := make([]Attention, n), make([]Attention, n)
				reset := func(a *Attention, q []float32) {
					a.Reset(len(q)/d, d, wide, limit)
					copy(a.q, q)
				}
				for l := range all {
					reset(&all[l], q)
				}
				for i := range n {
					reset(&alone[i], q[i*d:(i+1)*d])
					reset(&exact[i], q[i*d:(i+1)*d])
				}
				for at := range 5 {
					k, v, spans := values(r, BlockSlots*d), values(r, BlockSlots*wide), spansOf(r, n)
					for i := range spans {
						spans[i].From, spans[i].To = min(spans[i].From, BlockSlots), max(spans[i].To, 0)
					}
					stored, keys, vals := narrowed(k, v, d, wide)
					if at%4 == 2 {
						stored.Next = stored
					}
					keys, _ = block(d, keys, slices.Repeat(keys[:d], BlockSlots), 0, BlockSlots)
					add := func(a *Attention, spans []Span) {
						if at%2 == 1 {
							a.Add(keys, vals, spans, 0.2)
						} else {
							a.AddNarrow(stored, spans, 0.2)
						}
					}
					for i := range n {
						generically(func() { add(&alone[i], spans[i:i+1]) })
						exact[i].Add(keys, vals, spans[i:i+1], 0.2)
					}
					for l := range all {
						defer func(l level) { tier = l }(tier)
						tier = level(l)
						add(&all[l], spans)
						tier = bestLevel()
					}
				}
				for i := range n {
					want, got, near64 := make([]float32, PartSize(wide)), make([]float32, PartSize(wide)), make([]float64, wide)
					exact[i].Part(0, want)
					for e := range near64 {
						near64[e] = float64(want[e])
					}
					alone[i].Part(0, want)
					near(t, "beside float32", want[:wide], near64, 2e-3, 2e-3)
					for l := range all {
						all[l].Part(i, got)
						equal(t, levelNames[l], got, want)
					}
				}
			}
		}
	}
}

func TestTurn(t *testing.T) { eachTier(t, testTurn) }

func testTurn(t *testing.T) {
	r := rng(5)
	for _, n := range []int{1, 6, 16, 20, 64, 80, 128, 576} {
		a, b := values(r, n), values(r, n)
		want := slices.Clone(a)
		var dot, turned float64
		for i := range a {
			dot += float64(a[i]) * float64(b[i])
		}
		Turn(a, TurnSize(n))
		Turn(b, TurnSize(n))
		for i := range a {
			turned += float64(a[i]) * float64(b[i])
		}
		if math.Abs(dot-turned) > 1e-4 {
			t.Errorf("%d elements: the product %v becomes %v", n, dot, turned)
		}
		Turn(a, TurnSize(n))
		for i, x := range want {
			if math.Abs(float64(x-a[i])) > 1e-5 {
				t.Fatalf("element %d of %d: %v turned twice is %v", i, n, x, a[i])
			}
		}
	}
	x := []float32{8, 0, 0, 0, 1, 0, 0, 0}
	Turn(x[:4], 4)
	equal(t, "an outlier", x[:4], []float32{4, 4, 4, 4})
}

// BenchmarkNarrow is queries over a block in 8 bits and in binary16.
func BenchmarkNarrow(b *testing.B) {
	for _, n := range []int{1, 4, 8} {
		const d = 128
		k, v := values(rng(2), d*BlockSlots), values(rng(3), d*BlockSlots)
		stored, _, _ := narrowed(k, v, d, d)
		spans, h := slices.Repeat([]Span{{0, BlockSlots}}, n), make([]uint16, len(k))
		StoreF16(h, k)
		var a Attention
		a.Reset(n, d, d, 0)
		copy(a.q, values(rng(1), n*d))
		b.Run(fmt.Sprintf("q8/queries%d", n), func(b *testing.B) {
			bench(b, len(stored.Codes)+2*len(stored.Scales), func() { a.AddNarrow(stored, spans, 0.1) })
		})
		b.Run(fmt.Sprintf("f16/queries%d", n), func(b *testing.B) {
			bench(b, 4*len(h), func() {
				LoadF16(k, h)
				LoadF16(v, h)
				a.Add(k, v, spans, 0.1)
			})
		})
		b.Run("pack", func(b *testing.B) {
			for b.Loop() {
				stored.Pack(k, v, d, d)
			}
		})
	}
}
