package lab

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/tensor"
)

// floats is a tensor of type d with values x.
func floats(d tensor.DType, shape tensor.Shape, x ...float64) *tensor.Tensor {
	var b []byte
	for _, v := range x {
		switch d {
		case tensor.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case tensor.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case tensor.F16:
			b = binary.LittleEndian.AppendUint16(b, float16.ToF16(float32(v)))
		case tensor.BF16:
			b = binary.LittleEndian.AppendUint16(b, float16.ToBF16(float32(v)))
		}
	}
	return &tensor.Tensor{DType: d, Shape: shape, Data: b}
}

// one is a record of one prompt, with index 3 and a floor of 1/64.
func one(change func(p *Prompt)) *Record {
	p := &Prompt{
		Index: 3, Text: "a prompt", IDs: []int32{5, 6, 7},
		Float32: &Floor{MaxAbsDiff: 1. / 64, KLMean: 1e-9},
		Logits:  floats(tensor.F32, tensor.Shape{2, 4}, 1, 2, 3, 4, 8, 7, 6, 5),
		Taps:    map[string]*tensor.Tensor{"a": floats(tensor.F32, tensor.Shape{3, 2}, 3, 4, 6, 8, 0, 5)},
	}
	change(p)
	return &Record{Prompts: []*Prompt{p}}
}

func same(*Prompt) {}

// floor sets the noise floor.
func floor(d float64) func(*Prompt) {
	return func(p *Prompt) { p.Float32 = &Floor{MaxAbsDiff: Number(d)} }
}

func compareOne(t *testing.T, golden, record *Record, o Options) *PromptComparison {
	t.Helper()
	c, err := Compare(golden, record, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Prompts) != 1 || c.Inside() != c.Prompts[0].Inside {
		t.Fatalf("%d prompts, inside %v", len(c.Prompts), c.Inside())
	}
	return &c.Prompts[0]
}

func TestCompareWithItself(t *testing.T) {
	p := compareOne(t, one(same), one(same), Options{})
	entropy := Number(Entropy([]float64{8, 7, 6, 5}))
	want := &PromptComparison{
		Index: 3, Text: "a prompt", IDs: IDsEqual, Distance: Distance{Positions: 2, CosineMin: p.CosineMin, Top1: 1, Top5: 1, Top10: 1},
		GoldenEntropy: entropy, RecordEntropy: entropy, Float32: &Floor{MaxAbsDiff: 1. / 64, KLMean: 1e-9},
		MaxDiffLimit: new(Number(1. / 16)), Inside: true, Taps: []TapComparison{{Name: "a", Rows: 3}},
	}
	if !reflect.DeepEqual(p, want) || math.Abs(float64(p.CosineMin)-1) > 1e-15 {
		t.Errorf("got %+v, want %+v", p, want)
	}
}

func TestCompareLogits(t *testing.T) {
	// The first row differs by 1/32 in one place, the last by 1/16 in two.
	r := one(func(p *Prompt) {
		p.Logits = floats(tensor.F64, tensor.Shape{2, 4}, 1, 2, 3+1./32, 4, 8, 7, 6-1./16, 5+1./16)
	})
	p := compareOne(t, one(same), r, Options{})
	if p.MaxAbsDiff != 1./16 || p.LastMaxAbsDiff != 1./16 || p.MeanAbsDiff != (1./128+1./32)/2 {
		t.Errorf("|Δ|: max %v, last %v, mean %v", p.MaxAbsDiff, p.LastMaxAbsDiff, p.MeanAbsDiff)
	}
	a := KL([]float64{1, 2, 3, 4}, []float64{1, 2, 3 + 1./32, 4})
	b := KL([]float64{8, 7, 6, 5}, []float64{8, 7, 6 - 1./16, 5 + 1./16})
	if p.KLMean != Number(a+b)/2 || p.KLMax != Number(max(a, b)) {
		t.Errorf("KL: mean %v, max %v; want those of %v and %v", p.KLMean, p.KLMax, a, b)
	}
	if c := Number(Cosine([]float64{8, 7, 6, 5}, []float64{8, 7, 6 - 1./16, 5 + 1./16})); p.CosineMin != c {
		t.Errorf("CosineMin = %v, want %v", p.CosineMin, c)
	}
	if !p.Inside { // 1/16 is 4 times the floor of 1/64
		t.Error("4 floors are outside")
	}
}

func TestCompareAlignsAtTheEnd(t *testing.T) {
	r := one(func(p *Prompt) {
		p.Logits = floats(tensor.F32, tensor.Shape{1, 4}, 8, 7, 6, 5.25)
		p.Taps["a"] = floats(tensor.F32, tensor.Shape{1, 2}, 0, 5.5)
	})
	p := compareOne(t, one(same), r, Options{})
	if p.Positions != 1 || p.MaxAbsDiff != 0.25 || p.Taps[0] != (TapComparison{Name: "a", Rows: 1, Whole: 0.1, Worst: 0.1, WorstRow: 2}) {
		t.Errorf("%+v", p)
	}
	p = compareOne(t, r, one(same), Options{})
	if p.Positions != 1 || p.MaxAbsDiff != 0.25 || p.Taps[0].WorstRow != 0 {
		t.Errorf("the other way: %+v", p)
	}
}

func TestInside(t *testing.T) {
	off := func(d float64) func(*Prompt) {
		return func(p *Prompt) { p.Logits = floats(tensor.F32, tensor.Shape{2, 4}, 1, 2, 3, 4+d, 8, 7, 6, 5) }
	}
	kl := KL([]float64{1, 2, 3, 4}, []float64{1, 2, 3, 4.5}) / 2
	tap := func(name string, x ...float64) func(*Prompt) {
		return func(p *Prompt) {
			p.Taps = map[string]*tensor.Tensor{name: floats(tensor.F32, tensor.Shape{3, len(x) / 3}, x...)}
		}
	}
	hidden := func(x ...float64) func(*Prompt) {
		return func(p *Prompt) { p.Hidden = floats(tensor.F32, tensor.Shape{1, 2, len(x) / 2}, x...) }
	}
	for _, c := range []struct {
		name           string
		golden, record func(*Prompt)
		o              Options
		want           bool
	}{
		{"at 4 floors", same, off(1. / 16), Options{}, true},
		{"beyond 4 floors", same, off(1. / 15), Options{}, false},
		{"MaxDiff above", same, off(0.5), Options{MaxDiff: new(0.5)}, true},
		{"MaxDiff below", same, off(1. / 64), Options{MaxDiff: new(1. / 65)}, false},
		{"MaxDiff 0, equal", same, same, Options{MaxDiff: new(0.)}, true},
		{"MaxDiff 0, not equal", same, off(1e-6), Options{MaxDiff: new(0.)}, false},
		{"MaxKL above", same, off(0.5), Options{MaxKL: new(kl * 1.01)}, true},
		{"MaxKL below", same, off(0.5), Options{MaxKL: new(kl * 0.99)}, false},
		{"MaxKL above, MaxDiff below", same, off(0.5), Options{MaxKL: new(1.), MaxDiff: new(0.4)}, false},
		{"MaxDiff above, MaxKL below", same, off(0.5), Options{MaxKL: new(1e-9), MaxDiff: new(1.)}, false},
		{"both above", same, off(0.5), Options{MaxKL: new(1.), MaxDiff: new(1.)}, true},
		{"no floor, but a limit", func(p *Prompt) { p.Float32 = nil }, same, Options{MaxDiff: new(0.)}, true},
		{"other ids", same, func(p *Prompt) { p.IDs = []int32{5, 6, 8} }, Options{}, false},
		{"fewer ids", same, func(p *Prompt) { p.IDs = []int32{6, 7} }, Options{}, false},
		{"record without ids", same, func(p *Prompt) { p.IDs = nil }, Options{}, true},
		{"golden without ids", func(p *Prompt) { p.IDs = nil }, same, Options{}, true},
		{"NaN in the record", same, off(nan), Options{MaxDiff: new(inf), MaxKL: new(inf)}, false},
		{"NaN in golden", off(nan), same, Options{MaxDiff: new(inf)}, false},
		{"NaN in both", off(nan), off(nan), Options{MaxKL: new(inf)}, false},
		{"an infinity", same, off(-inf), Options{}, false},
		{"an infinity in both", off(-inf), off(-inf), Options{}, true},
		{"a wrong tap", same, tap("a", 3, 4, 6, 8, 0, 50), Options{}, true},
		{"NaN in a tap", same, tap("a", 3, 4, 6, nan, 0, 5), Options{}, false},
		{"NaN in a tap of golden", tap("a", 3, 4, 6, nan, 0, 5), same, Options{}, false},
		{"an infinite tap", same, tap("a", inf, inf, inf, inf, inf, inf), Options{}, false},
		{"an infinite tap of golden", tap("a", inf, 4, 6, 8, 0, 5), same, Options{}, false},
		{"infinities of other signs in a tap", tap("a", inf, 4, 6, 8, 0, 5), tap("a", -inf, 4, 6, 8, 0, 5), Options{}, false},
		{"an infinity in both taps", tap("a", inf, 4, 6, 8, 0, 5), tap("a", inf, 4, 6, 8, 0, 5), Options{}, true},
		{"infinite hidden states", hidden(1, 2), hidden(inf, inf), Options{}, false},
		{"equal infinite hidden states", hidden(-inf, 2), hidden(-inf, 2), Options{}, true},
		{"a null floor, but a limit", floor(nan), same, Options{MaxKL: new(0.)}, true},
		{"a tap of another width", same, tap("a", 3, 4, 6), Options{}, false},
		{"a tap of another width that need not match", tap("x.rotary_emb.out", 1, 2, 3), tap("x.rotary_emb.out", 1, 2, 3, 4, 5, 6), Options{}, true},
		{"a tap that the record lacks", same, tap("b", 1, 2, 3), Options{}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if p := compareOne(t, one(c.golden), one(c.record), c.o); p.Inside != c.want {
				t.Errorf("inside %v: %+v", p.Inside, p)
			}
		})
	}
	var none Comparison
	if none.Inside() {
		t.Error("nothing compared is inside")
	}
}

// TestNaNIsReported checks that each measure of a row with a NaN is one, in JSON, too.
func TestNaNIsReported(t *testing.T) {
	r := one(func(p *Prompt) {
		p.Logits = floats(tensor.F32, tensor.Shape{2, 4}, 1, 2, nan, 4, 8, 7, 6, 5)
		p.Taps["a"] = floats(tensor.F32, tensor.Shape{3, 2}, 3, 4, nan, 8, 0, 5)
	})
	c, err := Compare(one(same), r, Options{MaxDiff: new(1.)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Prompts []map[string]any `json:"prompts"`
	}
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"max_abs_diff", "mean_abs_diff", "cosine_min", "kl_mean", "kl_max", "top1", "top5", "top10"} {
		if got := back.Prompts[0][key]; got != "NaN" {
			t.Errorf("%s = %v, want NaN", key, got)
		}
	}
	if tap := c.Prompts[0].Taps[0]; !math.IsNaN(float64(tap.Worst)) || tap.WorstRow != 1 || !math.IsNaN(float64(tap.Whole)) {
		t.Errorf("tap %+v", tap)
	}
	var text strings.Builder
	if err := c.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "OUTSIDE: 0 of 1 prompts") || strings.Count(text.String(), "NaN") < 8 {
		t.Errorf("text:\n%s", text.String())
	}
}

func TestCompareTaps(t *testing.T) {
	vector := func(x ...float64) *tensor.Tensor { return floats(tensor.F32, tensor.Shape{len(x) / 2, 2}, x...) }
	g := one(func(p *Prompt) {
		p.Taps = map[string]*tensor.Tensor{
			"close": vector(3, 4, 3, 4), "one row": vector(3, 4, 3, 4), "far": vector(3, 4, 3, 4), "broken": vector(3, 4),
			"model.rotary_emb.out": vector(3, 4), "mlp.act_fn.out": vector(3, 4), "mlp.router.out": vector(3, 4), "only golden": vector(3, 4),
			"narrow": vector(3, 4), "heads": floats(tensor.F32, tensor.Shape{2, 2, 1}, 3, 4, 3, 4),
		}
		p.Hidden = floats(tensor.F32, tensor.Shape{2, 1, 2}, 3, 4, 30, 40)
	})
	r := one(func(p *Prompt) {
		p.Taps = map[string]*tensor.Tensor{
			"close": floats(tensor.F16, tensor.Shape{2, 2}, 3, 4, 3, 4), "one row": vector(3, 4, 3, 9), "far": vector(3, 6, 3, 6), "broken": vector(3, nan),
			"model.rotary_emb.out": vector(0, 0), "mlp.act_fn.out": vector(30, 40), "mlp.router.out": vector(3, 4), "only record": vector(3, 4), "only record 2": vector(3, 4),
			"narrow": floats(tensor.F32, tensor.Shape{1, 1}, 3), "heads": vector(3, 4, 3, 4.5),
		}
		p.Hidden = floats(tensor.BF16, tensor.Shape{2, 2, 2}, 9, 9, 3, 4, 9, 9, 30, 45)
	})
	p := compareOne(t, g, r, Options{})
	want := []TapComparison{
		{Name: "broken", Rows: 1, Whole: Number(nan), Worst: Number(nan)},
		{Name: "narrow", Problem: "rows of 1 values against 2"},
		{Name: "one row", Rows: 2, Whole: Number(5 / math.Sqrt(50)), Worst: 1, WorstRow: 1},
		{Name: "far", Rows: 2, Whole: 0.4, Worst: 0.4},
		{Name: "heads", Rows: 2, Whole: Number(0.5 / math.Sqrt(50)), Worst: 0.1, WorstRow: 1},
		{Name: "hidden.1", Rows: 1, Whole: 0.1, Worst: 0.1},
		{Name: "close", Rows: 2},
		{Name: "hidden.0", Rows: 1},
		{Name: "mlp.act_fn.out", Rows: 1, Whole: 9, Worst: 9, NeedNotMatch: true},
		{Name: "model.rotary_emb.out", Rows: 1, Whole: 1, Worst: 1, NeedNotMatch: true},
		{Name: "mlp.router.out", Rows: 1, NeedNotMatch: true},
	}
	equal := func(a, b TapComparison) bool {
		wa, wb, ha, hb := a.Worst, b.Worst, a.Whole, b.Whole
		a.Worst, b.Worst, a.Whole, b.Whole = 0, 0, 0, 0
		return a == b && near(float64(wa), float64(wb)) && near(float64(ha), float64(hb))
	}
	if !slices.EqualFunc(p.Taps, want, equal) {
		t.Errorf("taps:\n%+v\nwant\n%+v", p.Taps, want)
	}
	if p.TapsOnlyGolden != 1 || p.TapsOnlyRecord != 2 {
		t.Errorf("%d only in golden, %d only in record", p.TapsOnlyGolden, p.TapsOnlyRecord)
	}
}

func TestCompareErrors(t *testing.T) {
	for _, c := range []struct {
		name           string
		golden, record *Record
		o              Options
		err            string
	}{
		{"nothing", &Record{}, &Record{}, Options{}, "no prompt with logits in common"},
		{"another prompt", one(same), one(func(p *Prompt) { p.Index = 4 }), Options{}, "no prompt with logits in common"},
		{"no logits", one(same), one(func(p *Prompt) { p.Logits = nil }), Options{}, "no prompt with logits in common"},
		{"another vocabulary", one(same), one(func(p *Prompt) { p.Logits = floats(tensor.F32, tensor.Shape{1, 2}, 1, 2) }), Options{}, "prompt 3: logits of 2 tokens against 4"},
		{"MaxDiff", one(same), one(same), Options{MaxDiff: new(-1.)}, "MaxDiff: -1"},
		{"MaxKL", one(same), one(same), Options{MaxKL: new(nan)}, "MaxKL: NaN"},
	} {
		if _, err := Compare(c.golden, c.record, c.o); err == nil || !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "compare: ") {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
}

// TestWithoutLimit checks that a golden record without a usable noise floor is compared, and not judged.
func TestWithoutLimit(t *testing.T) {
	off := one(func(p *Prompt) { p.Logits = floats(tensor.F32, tensor.Shape{2, 4}, 1, 2, 3, 4.5, 8, 7, 6, 5) })
	for name, floor := range map[string]func(*Prompt){
		"none": func(p *Prompt) { p.Float32 = nil }, "not a number": floor(nan), "infinite": floor(inf), "negative": floor(-1),
	} {
		c, err := Compare(one(floor), off, Options{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.Limited(); !errors.Is(err, ErrNoLimit) || !strings.HasPrefix(err.Error(), "compare: prompt 3: no limit") || c.Inside() || c.All.MaxAbsDiff != 0.5 {
			t.Errorf("%s: %v, inside %v, %+v", name, err, c.Inside(), c.All)
		}
		var text strings.Builder
		if err := c.WriteText(&text); err != nil || !strings.Contains(text.String(), "not judged: 1 of 1 prompts have no limit\n") || strings.Contains(text.String(), "OUTSIDE") {
			t.Errorf("%s: %v\n%s", name, err, text.String())
		}
	}
	if c, err := Compare(one(floor(nan)), off, Options{MaxKL: new(1.)}); err != nil || c.Limited() != nil || !c.Inside() {
		t.Errorf("with a limit: %+v, %v", c, err)
	}
}

func TestOnlyOne(t *testing.T) {
	three := func(indices ...int) *Record {
		r := &Record{}
		for _, i := range indices {
			p := one(same).Prompts[0]
			p.Index = i
			r.Prompts = append(r.Prompts, p)
		}
		return r
	}
	for _, partial := range []bool{false, true} {
		c, err := Compare(three(0, 1, 2, 5), three(1, 4, 5, 6), Options{Partial: partial})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Prompts) != 2 || !slices.Equal(c.OnlyGolden, []int{0, 2}) || !slices.Equal(c.OnlyRecord, []int{4, 6}) || c.Inside() != partial {
			t.Errorf("%+v", c)
		}
		var text strings.Builder
		if err := c.WriteText(&text); err != nil || strings.Contains(text.String(), "lacks 2 of the golden record's prompts") == partial {
			t.Errorf("partial %v: %v\n%s", partial, err, text.String())
		}
	}
	if c, err := Compare(three(1), three(1, 4), Options{}); err != nil || !c.Inside() {
		t.Errorf("more than golden: %+v, %v", c, err)
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		n    Number
		json string
	}{{0.25, "0.25"}, {Number(nan), `"NaN"`}, {Number(inf), `"Infinity"`}, {Number(-inf), `"-Infinity"`}} {
		b, err := json.Marshal(c.n)
		var back Number
		if err != nil || string(b) != c.json || json.Unmarshal(b, &back) != nil || !near(float64(back), float64(c.n)) {
			t.Errorf("%v: %s, %v, back %v", c.n, b, err, back)
		}
	}
	if err := new(Number).UnmarshalJSON([]byte(`"x"`)); err == nil {
		t.Error("a word is a number")
	}
}
