package webgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// TestMatrices: on matrix units products are as near as binary16 lets them be, and within
// float32's rounding where it has all the bits; and a row's bits do not depend on the step,
// as long as it has many rows.
func TestMatrices(t *testing.T) {
	d := matrices(t)
	for dt := range scales {
		t.Run(dt.String(), func(t *testing.T) {
			whole := dt == tensor.Q4_0 || dt == tensor.Q8_0 || dt == tensor.IQ4_NL || dt == tensor.Q5_1
			for _, k := range []int{256, 96, 544} {
				if k%dt.BlockSize() != 0 {
					continue
				}
				g := made(t, k, func(b graph.Builder, r *rand.Rand, x *graph.Node) *graph.Node {
					few := x.W[0] // of at most 8 bits
					for i := 0; i < len(few.Data); i += 4 {
						v := math.Float32frombits(binary.LittleEndian.Uint32(few.Data[i:]))
						binary.LittleEndian.PutUint32(few.Data[i:], math.Float32bits(float32(math.Round(float64(v)*32))/32))
					}
					return b.Linear(weightOf(r, dt, 0x1400, scales[dt], 80, k), x, 80)
				})
				tokens := make([]int32, 37)
				for i := range tokens {
					tokens[i] = int32(i * 7 % 16)
				}
				near(t, start(t, New(d, Options{Matrices: true}), g, 40, nil).run(tokens...), start(t, reference.Backend{}, g, 40, nil).run(tokens...), map[bool]float64{true: 1e-6, false: 5e-4}[whole])
			}
			if golden.Slow() {
				sameManySteps(t, d, dt)
			}
		})
	}
}

// sameManySteps is sameSteps of many rows each.
func sameManySteps(t *testing.T, d *Device, dt tensor.DType) {
	g := block(t, dt, 64, 0)
	tokens := make([]int32, 16+41+17+32)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 16)
	}
	o := Options{F32KV: true, Matrices: true}
	once := start(t, New(d, o), g, len(tokens), nil).run(tokens...)
	near(t, once, start(t, reference.Backend{}, g, len(tokens), nil).run(tokens...), 2e-3)
	cut := start(t, New(d, o), g, len(tokens), nil)
	var pieces []float32
	for at, i := 0, 0; at < len(tokens); i++ {
		n := []int{16, 41, 17, 32}[i]
		pieces = append(pieces, cut.run(tokens[at:at+n]...)...)
		at += n
	}
	if !same(once, pieces) {
		t.Error("other bits in other steps")
	}
	if same(once, start(t, New(d, Options{F32KV: true}), g, len(tokens), nil).run(tokens...)) {
		t.Error("float32 has the bits of binary16")
	}
}

// TestMatrixTiles: all tiles that are used, with whatever is done with results.
func TestMatrixTiles(t *testing.T) {
	d := matrices(t)
	m := unitOf(d.Adapter().Matrices).M
	all := matrixTiles[m]
	t.Cleanup(func() { matrixTiles[m] = all })
	for _, tl := range all {
		matrixTiles[m] = []sizedTile{{0, tl.matrixTile}}
		t.Run(fmt.Sprint(tl.matrixTile), func(t *testing.T) {
			sameManySteps(t, d, tensor.Q4_0)
			sameManySteps(t, d, tensor.Q6_K)
		})
	}
}

// TestMatrixFusions: on matrix units, too, fusions and taps change no bit, but for products that
// lie as one, whose rows together decide about the tile.
func TestMatrixFusions(t *testing.T) {
	d := matrices(t)
	g := fusible(t)
	tokens := make([]int32, 37)
	for i := range tokens {
		tokens[i] = int32(i * 7 % 16)
	}
	want := start(t, New(d, Options{Matrices: true}), g, 40, nil).run(tokens...)
	near(t, want, start(t, reference.Backend{}, g, 40, nil).run(tokens...), 2e-3)
	for _, name := range Fusions {
		if name != "stack" && !same(want, start(t, New(d, Options{Matrices: true, NoFuse: []string{name}}), g, 40, nil).run(tokens...)) {
			t.Errorf("without %s: other bits", name)
		}
	}
	if !same(want, start(t, New(d, Options{Matrices: true}), g, 40, func(*graph.Node) bool { return true }).run(tokens...)) {
		t.Error("other bits with taps")
	}
}

// TestFactor: what weights are multiplied by takes their largest number below 2^15.
func TestFactor(t *testing.T) {
	for x, want := range map[float32]float32{0: 1 << 15, 1: 1 << 14, 0.75: 1 << 15, 40000: 0.5, 32768: 0.5, 32767: 1, 3e-38: 1 << 100, float32(math.Inf(1)): 1 << 15} {
		w := &weight{peak: &peak{}}
		w.peak.raise(x)
		w.peak.raise(x / 2)
		if f := w.factor(); f["up"].(float32) != want && x != 3e-38 || f["up"].(float32)*f["down"].(float32) != 1 {
			t.Errorf("%v: %v, want %v", x, f, want)
		}
	}
}

// TestTiles: matrix units are used if a tile fits, and its invocations have as many results
// each, whatever the size of a subgroup.
func TestTiles(t *testing.T) {
	for u, want := range map[matrixUnit]bool{
		{8, 8, 8, 8, true}: true, {8, 8, 8, 32, true}: true, {8, 8, 8, 256, true}: false,
		{16, 16, 16, 16, true}: true, {16, 16, 16, 32, true}: true, {16, 16, 16, 64, true}: true,
	} {
		has := &gpu.Matrices{Shapes: []gpu.Shape{{M: u.M, N: u.N, K: u.K}}, Subgroup: [2]int{u.Lanes, u.Lanes}, Invocations: 1024, WorkgroupBytes: 32 << 10}
		if got := unitOf(has); (got != nil) != want {
			t.Errorf("%+v: %v", u, got)
		}
		for _, n := range []int{64, 2048, 4096, 8192} {
			v := matrixVariant{matrixTile: u.tile(n), matrixUnit: u}
			if v.fits(has) != want || want && (v.BK%(v.K*v.Parts) != 0 || pad%v.BK != 0) {
				t.Errorf("%+v: %v", v, v.fits(has))
			}
		}
		has.WorkgroupBytes = 4 << 10
		if unitOf(has) != nil {
			t.Errorf("%+v: without room for a tile", u)
		}
	}
}

// matrices is a GPU with matrix units. A test is skipped where it has none.
func matrices(t *testing.T) *Device {
	t.Helper()
	d := device(t)
	if unitOf(d.Adapter().Matrices) == nil {
		t.Skip("the GPU has no matrix units, or none that are reached: see KARAT_WEBGPU_LIB")
	}
	return d
}

// TestMatrixSpeed prints how fast products are on matrix units, with tiles of several forms, and
// how far from product.wgsl's.
func TestMatrixSpeed(t *testing.T) {
	if os.Getenv("KARAT_SPEED") == "" {
		t.Skip("KARAT_SPEED is not set")
	}
	d := device(t)
	m := d.Adapter().Matrices
	unit := unitOf(m)
	if unit == nil {
		t.Skip("the GPU has no matrix units, or not through this library")
	}
	t.Logf("%+v %+v", m, d.Adapter().Limits)
	rows := 512
	if s := os.Getenv("KARAT_ROWS"); s != "" {
		rows, _ = strconv.Atoi(s)
	}
	b := New(d, Options{})
	defer b.Close()
	r := rand.New(rand.NewPCG(1, 2))
	sizes := [][2]int{{2048, 16384}, {2048, 3072}, {2048, 2048}, {8192, 2048}, {1536, 12288}, {1536, 256}}
	if s := os.Getenv("KARAT_SIZE"); s != "" {
		k, _ := strconv.Atoi(s)
		sizes = [][2]int{{k, k}}
	}
	limits := d.Adapter().Limits
	new := func(name string, size int) gpu.Buffer {
		x, err := b.memory.empty(name, size)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, y, out, want, counts := new("x", 4*rows*8192), new("y", 2*rows*(8192+64)), new("out", 4*rows*16384), new("want", 4*rows*16384), new("step", limits.Alignment)
	numbers := make([]float32, rows*8192)
	for i := range numbers {
		numbers[i] = float32(r.NormFloat64())
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(b.memory.write(counts, 0, []byte{byte(rows), byte(rows >> 8), 0, 0}))
	check(b.memory.write(x, 0, bytesIn(numbers)))
	a := &arena{memory: b.memory, align: limits.Alignment}
	prepare := func(shader string, v any, numbers params, x3, y3 int, ranges ...gpu.Buffer) (launch, error) {
		p, err := d.pipe(shader, v)
		if err != nil {
			return launch{}, err
		}
		data, err := p.pack(numbers)
		check(err)
		at, err := a.place(data)
		check(err)
		list := []gpu.Range{at, {Buffer: counts, Size: 16}}
		for _, x := range ranges {
			list = append(list, gpu.Range{Buffer: x})
		}
		g, err := d.gpu.NewGroup(p.Pipeline, list...)
		check(err)
		check(b.memory.flush())
		return launch{p.Pipeline, g, x3, y3, 1}, nil
	}
	for _, dt := range []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q6_K} {
		for _, size := range sizes {
			k, n := size[0], size[1]
			w, err := b.upload(weightOf(r, dt, half, scales[dt], n, k))
			check(err)
			first, err := prepare("narrow", narrowVariant{*unit, w.Spots()}, params{"k": k}, rows, 1, y, x)
			check(err)
			ref, err := prepare("product", productVariant{w.layout, ending{Outs: 1}, tiles}, params{"n": n, "k": k, "column": 0, "stride": n}, (n+tiles.BN-1)/tiles.BN, (rows+tiles.BM-1)/tiles.BM, want, x, w.shards[0].buffer)
			check(err)
			var l gpu.List
			l.Dispatch(ref.p, ref.g, ref.x, ref.y, 1)
			l.Dispatch(first.p, first.g, first.x, first.y, 1)
			wants, got := make([]float32, rows*n), make([]float32, rows*n)
			l.Read(bytesIn(wants), want, 0)
			check(d.gpu.Run(&l))
			if dt == tensor.Q4_0 {
				t.Logf("narrow %d x %d: %v", rows, k, timed(t, d, []launch{first}, 8))
				t.Logf("product %d x %d: %v", n, k, timed(t, d, []launch{ref}, 8))
			}
			for from := time.Now(); time.Since(from) < 150*time.Millisecond; { // the clock rises slowly
				timed(t, d, []launch{ref}, 4)
			}
			for _, tl := range matrixTiles[unit.M] {
				v := matrixVariant{w.layout, ending{Outs: 1}, tl.matrixTile, *unit}
				if !v.fits(m) {
					continue
				}
				x, err := prepare("matrix", v, params{"n": n, "k": k, "column": 0, "stride": n}.with(w.factor()), (n+v.BN-1)/v.BN, (rows+v.BM-1)/v.BM, out, y, w.shards[0].buffer)
				if err != nil {
					t.Errorf("%v: %v", tl, strings.ReplaceAll(err.Error(), "\n", " | "))
					continue
				}
				var l gpu.List
				l.Dispatch(x.p, x.g, x.x, x.y, 1)
				l.Read(bytesIn(got), out, 0)
				check(d.gpu.Run(&l))
				var diff, norm float64
				for i := range got {
					e := float64(got[i]) - float64(wants[i])
					diff, norm = diff+e*e, norm+float64(wants[i])*float64(wants[i])
				}
				s := timed(t, d, []launch{x}, 16)
				t.Logf("%v %d x %d, %d rows, %v: %v, %.1f TFLOP/s, %.2g off", dt, n, k, rows, tl.matrixTile, s, 2*float64(rows)*float64(n)*float64(k)/s.Seconds()/1e12, math.Sqrt(diff/norm))
			}
			b.memory.release(w.shards[0].buffer)
		}
	}
}
