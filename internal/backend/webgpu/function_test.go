package webgpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
)

// calls evaluates a WGSL expression of x and i, the element and its index, for words.
func calls(t *testing.T, d *Device, is string, words []uint32) []uint32 {
	t.Helper()
	prelude, err := sources.ReadFile("shaders/prelude.wgsl")
	if err != nil {
		t.Fatal(err)
	}
	wgsl := string(prelude) + fmt.Sprintf(`
@group(0) @binding(0) var<storage, read_write> data: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wg: vec3u, @builtin(local_invocation_index) lane: u32) {
	let i = (wg.y * GX + wg.x) * 64u + lane;
	if (i < %du) {
		let x = data[i];
		data[i] = %s;
	}
}
`, len(words), is)
	p, err := d.gpu.NewPipeline("function", wgsl, []gpu.Access{gpu.ReadWrite})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	b, err := d.gpu.NewBuffer("data", 4*len(words))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	g, err := d.gpu.NewGroup(p, gpu.Range{Buffer: b})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	var data []byte
	for _, w := range words {
		data = binary.LittleEndian.AppendUint32(data, w)
	}
	var l gpu.List
	l.Write(b, 0, data)
	x, y, z := flat((len(words) + 63) / 64)
	l.Dispatch(p, g, x, y, z)
	got := make([]byte, len(data))
	l.Read(got, b, 0)
	if err := d.gpu.Run(&l); err != nil {
		t.Fatal(err)
	}
	out := make([]uint32, len(words))
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(got[4*i:])
	}
	return out
}

// TestHalves: binary16 and back are package float16's to the bit, but for which NaN.
func TestHalves(t *testing.T) {
	d := device(t)
	all := make([]uint32, 1<<16)
	for i := range all {
		all[i] = uint32(i)
	}
	for i, v := range calls(t, d, "bitcast<u32>(from_half(x))", all) {
		if got, want := math.Float32frombits(v), float16.F16(uint16(i)); got != want && got == got || got != got && want == want {
			t.Fatalf("from_half(%#x) = %v, want %v", i, got, want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	words := []uint32{0, 1, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x38800000, 0x387fffff, 0x387fe000}
	for range 1 << 16 {
		exponent := uint32(100 + r.IntN(45))
		words = append(words, r.Uint32()&0x807fffff|exponent<<23)
		if r.IntN(2) == 0 { // half way between two
			words[len(words)-1] = words[len(words)-1]&^0x1fff | 0x1000
		}
	}
	for i, v := range calls(t, d, "to_half(bitcast<f32>(x))", words) {
		x := math.Float32frombits(words[i])
		if want := float16.ToF16(x); v != uint32(want) && x == x || x != x && v&0x7fff <= 0x7c00 {
			t.Fatalf("to_half(%v) = %#x, want %#x", x, v, want)
		}
	}
}

// TestFunctions compares exp and its like with package math at random numbers, and
// where they turn.
func TestFunctions(t *testing.T) {
	d := device(t)
	r := rand.New(rand.NewPCG(3, 4))
	var words []uint32
	for range 1 << 16 {
		words = append(words, math.Float32bits(float32((r.Float64()-0.5)*200)), math.Float32bits(float32(r.NormFloat64())))
	}
	for _, x := range []float32{0, 0.625, -0.625, 88.72, 88.73, 88.8, 89, 1e30, -87.3, -88, -1e30} {
		words = append(words, math.Float32bits(x))
	}
	for _, f := range []struct {
		is    string
		want  func(x float64) float64
		bound float64
	}{
		{"exp_f", math.Exp, 3e-7},
		{"tanh_f", math.Tanh, 3e-7},
		{"silu", func(x float64) float64 { return x / (1 + math.Exp(-x)) }, 4e-7},
		{"gelu_erf", func(x float64) float64 { return x / 2 * math.Erfc(-x/math.Sqrt2) }, 1e-5},
		{"sigmoid", func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, 4e-7},
		{"relu_squared", func(x float64) float64 { return max(x, 0) * max(x, 0) }, 1e-7},
		{"gelu_tanh", func(x float64) float64 {
			return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		}, 2e-5}, // u is rounded before its exponential is taken
	} {
		var worst float64
		for i, v := range calls(t, d, "bitcast<u32>("+f.is+"(bitcast<f32>(x)))", words) {
			x := float64(math.Float32frombits(words[i]))
			got, want := float64(math.Float32frombits(v)), f.want(x)
			if math.Abs(want) > math.MaxFloat32 {
				want = math.Inf(1)
			}
			if math.Abs(got-want) < 88*0x1p-126 || got == want { // WGSL divides by what is below 2^126: silu of less than -87.3 may be 0
				continue
			}
			worst = max(worst, math.Abs(got-want)/math.Abs(want))
			if !(worst <= f.bound) {
				t.Fatalf("%s(%v) = %v, want %v", f.is, x, got, want)
			}
		}
		t.Logf("%s: relative error at most %.2g", f.is, worst)
	}
}

// TestKernelErrors: what a compiler would let pass silently is an error that names the
// kernel: a binding that nothing uses, and Params that the host has otherwise.
func TestKernelErrors(t *testing.T) {
	good, err := newKernel("pick", variant{"Gather": true})
	if err != nil {
		t.Fatal(err)
	}
	for want, edit := range map[string][2]string{
		"binding 4 (rows) is declared and not used": {"rows[i / p.size]", "i / p.size"},
		"binding 5 is number 4":                     {"@binding(4)", "@binding(5)"},
		"variable v has no value":                   {"	out[i]", "	var v: f32;\n	out[i]"},
		"from is a word that WGSL keeps":            {"	out[i]", "	let from = 1u;\n	out[i]"},
	} {
		bad := &kernel{name: "pick", wgsl: strings.Replace(good.wgsl, edit[0], edit[1], 1)}
		if err := bad.declarations(); err == nil || !strings.Contains(err.Error(), "kernel pick: "+want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	k, err := newKernel("norm", chainVariant{order: orderOf(3), Weight: true})
	if err != nil {
		t.Fatal(err)
	}
	numbers := params{"vectors": 5, "zero": 0, "eps": float32(1), "offset": float32(2), "next_eps": float32(0), "next_offset": float32(0)}
	for want, v := range map[string]params{
		"has no vectors": {"size": 1},
		"eps is 1":       numbers.with(params{"eps": 1}),
		"has 7 fields":   numbers.with(params{"more": 1}),
		"vectors is -1":  numbers.with(params{"vectors": -1}),
	} {
		if _, err := k.pack(v); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "kernel norm{order:{Of:f32 Quads:3 Threads:64} Weight:true Add:false Scale:false Next:false}: ") {
			t.Errorf("%s: %v", want, err)
		}
	}
	data, err := k.pack(numbers)
	if err != nil || len(data) != 32 || binary.LittleEndian.Uint32(data) != 5 || math.Float32frombits(binary.LittleEndian.Uint32(data[12:])) != 2 {
		t.Errorf("%v, %v", data, err)
	}
}

// variants are the kernels in all forms that plans have: attention for some sizes of
// heads.
func variants(t *testing.T) (all []*kernel) {
	t.Helper()
	add := func(shader string, v any) {
		k, err := newKernel(shader, v)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, k)
	}
	for _, is := range []string{"a * p.value", "p.value * tanh_f(a / p.value)", "silu(a)", "gelu_tanh(a)", "gelu_erf(a)", "relu_squared(a)", "sigmoid(a)", "tanh_f(a)"} {
		add("map", variant{"Is": is})
	}
	add("map", variant{"Is": gated(graph.ActAttr{Limit: 7, Alpha: 1.702, Plus: 1}), "Interleaved": true})
	for _, is := range []string{"a + b", "a * b", "silu(a) * b", "gelu_tanh(a) * b"} {
		add("map", variant{"Is": is, "Binary": true})
		add("map", variant{"Is": is, "Split": true})
	}
	add("low", nil)
	add("adapt", nil)
	add("rotate", variant{"Interleaved": false})
	add("rotate", variant{"Interleaved": true})
	for _, yes := range []bool{false, true} {
		for _, size := range []int{30, 1536} {
			add("norm", chainVariant{order: orderOf(size), Weight: yes})
			add("norm", chainVariant{order: orderOf(size), Weight: yes, Add: true})
			add("norm", chainVariant{order: orderOf(size), Weight: yes, Add: true, Scale: true})
			add("norm", chainVariant{order: orderOf(size), Weight: yes, Add: true, Scale: true, Next: true})
		}
		for _, dim := range []int{30, 256} {
			add("head", headVariant{order: orderOf(dim), Dim: dim, Weight: yes})
			for _, f16 := range []bool{false, true} {
				add("head", headVariant{order: orderOf(dim), Dim: dim, Weight: yes, Store: true, F16: f16})
				add("head", headVariant{order: orderOf(dim), Dim: dim, Weight: yes, Store: true, Values: true, F16: f16})
			}
		}
		add("pick", variant{"Gather": yes})
		add("order", variant{"Experts": yes})
		add("top", topVariant{yes})
		for _, latent := range []bool{false, true} {
			add("store", variant{"F16": yes, "Latent": latent, "What": ""})
		}
		add("turn", variant{"F16": yes})
		for _, dim := range []int{2, 30, 64, 80, 128, 256, 512} {
			seen := seenOf(&graph.KV{Heads: 1, Dim: dim}, yes)
			v := attentionVariant{seenVariant: seen, Groups: 4}
			special := v
			special.Capped, special.Sinks, special.Chunked = true, true, true
			other := attentionVariant{seenVariant: seenOf(&graph.KV{Heads: 1, Dim: dim, ValueDim: dim / 2, Latent: yes}, yes), Groups: 4}
			other.Ahead = true
			within := attentionVariant{seenVariant: seen, Groups: 4}
			within.Grouped, within.Ahead = true, yes
			for _, v := range []attentionVariant{special, other, within} {
				add("attention", v)
				if v.Dim%16 == 0 && v.ValueDim%16 == 0 {
					add("attend", attendVariant{v.seenVariant})
				}
			}
			add("attention", v)
			v.Part = true
			add("attention", v)
			add("attention", attentionVariant{seenVariant: seen, Groups: 1})
			if v.Head = orderOf(dim); dim%4 == 0 {
				add("attention", v)
			}
			if dim%16 == 0 {
				add("attend", attendVariant{seen})
			}
		}
	}
	add("join", joinVariant{ValueDim: 80})
	add("join", joinVariant{ValueDim: 80, Sinks: true, Chunked: true})
	for _, shader := range []string{"rope", "route"} {
		add(shader, nil)
	}
	for _, yes := range []bool{false, true} {
		add("combine", variant{"Weighed": yes})
		for w := graph.SoftmaxChosen; w <= graph.SparseMixer; w++ {
			for _, groups := range []int{0, 8} {
				add("choose", variant{"Weigh": w.String(), "Eps": map[bool]string{true: " + 1.000000e-06"}[groups > 0], "Normalize": yes, "Bias": yes, "Scale": !yes, "Groups": groups, "Weighed": yes})
			}
		}
	}
	types := []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.F8_32, tensor.Grouped(2, 32, true),
		tensor.Grouped(3, 64, false), tensor.Grouped(4, 128, true), tensor.Grouped(6, 32, false), tensor.Grouped(8, 64, false)}
	for d := range bits {
		types = append(types, d)
	}
	slices.Sort(types)
	for _, d := range types {
		l, err := layoutOf(d, 256)
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []ending{{Outs: 1}, {Outs: 1, Add: true}, {Outs: 1, Gate: "silu(a) * b"}, {Outs: 2}, {Outs: 3}, {Outs: 1, GLU: "silu(a) * b"}} {
			per := 1
			if end.GLU != "" {
				per = 2
			}
			add("linear", linearOf(l, end, 256, per, 1))
			if end.Add && d == tensor.Q6_K { // long, so that TestBrowser makes no pipeline of it
				v := linearOf(l, end, large, per, 1)
				v.Lanes *= 2
				add("linear", v)
			}
			add("alone", aloneVariant{l, end, 4})
			if d == tensor.F32 || d == tensor.Q4_0 {
				for _, c := range []chainVariant{{Weight: true}, {Weight: true, Add: true}, {Weight: true, Add: true, Scale: true, Next: true}} {
					folded := end
					folded.Chain = c
					folded.Chain.order = orderOf(2048)
					add("linear", linearOf(l, folded, 256, per, 1))
				}
				add("linear", linearOf(l, end, 256, per, few))
				add("product", productVariant{l, end, tiles})
			}
		}
		for _, yes := range []bool{false, true} {
			add("linear", linearOf(l, ending{Outs: 1, Experts: true, Biased: yes, Scaled: yes}, 256, 1, 1))
		}
		add("product", productVariant{l, ending{Outs: 1}, tiles})
		add("embed", l)
		if l.Plain != "" {
			l.Odd = true
			add("linear", linearOf(l, ending{Outs: 1}, 256, 1, few))
			add("product", productVariant{l, ending{Outs: 1}, tiles})
			add("alone", aloneVariant{l, ending{Outs: 1}, 4})
		}
	}
	return all
}
