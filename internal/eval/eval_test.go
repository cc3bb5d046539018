package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/logprob"
)

// made is a Source of given logits [windows·rows][vocab].
type made struct {
	rows [][]float32
	at   int
	err  error // of the last window
}

func (m *made) Vocab() int { return len(m.rows[0]) }

func (m *made) Window(_ context.Context, i int, ids []int32, rows int) error {
	if m.at = i * logprob.Rows(len(ids)); rows != len(ids)/2 {
		return fmt.Errorf("%d rows are passed over", rows)
	}
	return nil
}

func (m *made) Rows(_ context.Context, n int) (rows []Row, err error) {
	for range n {
		rows = append(rows, Row{Logits: m.rows[m.at]})
		m.at++
	}
	if m.at == len(m.rows) {
		err = m.err
	}
	return rows, err
}

// random returns two models of n predictions, the second near the first, and a text.
func random(windows, context, vocab int) (w *Windows, base, model *made) {
	r := rand.New(rand.NewPCG(1, 2))
	base, model = &made{}, &made{}
	for range windows * logprob.Rows(context) {
		x, y := make([]float32, vocab), make([]float32, vocab)
		for i := range x {
			x[i] = float32(2 * r.NormFloat64())
			y[i] = x[i] + float32(0.3*r.NormFloat64())
		}
		base.rows, model.rows = append(base.rows, x), append(model.rows, y)
	}
	ids := make([]int32, windows*context+1)
	for i := range ids {
		ids[i] = r.Int32N(int32(vocab))
	}
	w, err := Cut(ids, context, 0)
	if err != nil {
		panic(err)
	}
	return w, base, model
}

func near(t *testing.T, what string, got lab.Number, want, within float64) {
	t.Helper()
	if !(math.Abs(float64(got)-want) <= within) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestRun computes every figure a second time, from its definition.
func TestRun(t *testing.T) {
	const context, vocab = 300, 31
	w, base, model := random(3, context, vocab)
	r, err := Run(t.Context(), w, Options{Model: model, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	var nll, nllBase, kl, dp, same []float64
	probabilities := func(x []float32) (p []float64) {
		sum := 0.
		for _, v := range x {
			p = append(p, math.Exp(float64(v)))
			sum += p[len(p)-1]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	for i := range model.rows {
		window, row := i/149, i%149
		id := w.IDs[window*context+150+row+1]
		q, p := probabilities(model.rows[i]), probabilities(base.rows[i])
		d := 0.
		for j := range p {
			d += p[j] * math.Log(p[j]/q[j])
		}
		nll, nllBase = append(nll, -math.Log(q[id])), append(nllBase, -math.Log(p[id]))
		kl, dp, same = append(kl, d), append(dp, q[id]-p[id]), append(same, 0)
		if slices.Index(q, slices.Max(q)) == slices.Index(p, slices.Max(p)) {
			same[i] = 1
		}
	}
	n := float64(len(nll))
	mean := func(x []float64) (sum float64) {
		for _, v := range x {
			sum += v / n
		}
		return sum
	}
	product := func(x, y []float64) (z []float64) {
		for i := range x {
			z = append(z, x[i]*y[i])
		}
		return z
	}
	cov := func(x, y []float64) float64 { return (mean(product(x, y)) - mean(x)*mean(y)) / (n - 1) }
	deviation := func(x []float64) float64 { return math.Sqrt(cov(x, x)) }
	b, p, pb := r.Base, math.Exp(mean(nll)), math.Exp(mean(nllBase))
	ratio := math.Sqrt(cov(nll, nll) + cov(nllBase, nllBase) - 2*cov(nll, nllBase))
	square := product(dp, dp)
	rms := math.Sqrt(mean(square))
	for _, x := range []struct {
		what         string
		got          Estimate
		value, error float64
	}{
		{"perplexity", r.Perplexity, p, p * deviation(nll)},
		{"base", b.Perplexity, pb, pb * deviation(nllBase)},
		{"ln ratio", b.LogRatio, mean(nll) - mean(nllBase), ratio},
		{"ratio", b.Ratio, p / pb, p / pb * ratio},
		{"difference", b.Difference, p - pb, math.Sqrt(p*p*cov(nll, nll) + pb*pb*cov(nllBase, nllBase) - 2*p*pb*cov(nll, nllBase))},
		{"KL", b.KL.Mean, mean(kl), deviation(kl)},
		{"Δp", b.DeltaP.Mean, mean(dp), deviation(dp)},
		{"RMS Δp", b.RMSDeltaP, rms, deviation(square) / 2 / rms},
		{"same top", b.SameTop, mean(same), deviation(same)},
	} {
		near(t, x.what, x.got.Value, x.value, 1e-6*(1+x.value))
		near(t, x.what+"'s error", x.got.Error, x.error, 1e-5*x.error)
		if !(x.got.Low < x.got.Value && x.got.Value < x.got.High) {
			t.Errorf("%s: %+v", x.what, x.got)
		}
	}
	near(t, "correlation", b.Correlation, cov(nll, nllBase)/deviation(nll)/deviation(nllBase), 1e-6)
	slices.Sort(kl)
	near(t, "least KL", b.KL.Min, kl[0], 1e-7)
	near(t, "median KL", b.KL.Median, kl[len(kl)/2], 1e-6) // 447 values
	near(t, "99 % of KL", b.KL.Percent99, kl[441]+(kl[442]-kl[441])*.54, 1e-6)
	near(t, "largest KL", b.KL.Max, kl[446], 1e-6)
	if r.Windows != 3 || r.All != 3 || r.Tokens != 447 || r.Context != context {
		t.Errorf("%+v", r)
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "3 windows of 300 tokens, 447 predictions") {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestOne: one prediction says nothing of how far others lie.
func TestOne(t *testing.T) {
	w, base, model := random(1, 4, 5)
	r, err := Run(t.Context(), w, Options{Model: model, Base: base})
	if err != nil || r.Tokens != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	for what, e := range map[string]Estimate{"perplexity": r.Perplexity, "ratio": r.Base.Ratio, "KL": r.Base.KL.Mean, "RMS Δp": r.Base.RMSDeltaP} {
		if e.Value != e.Value || e.Error == e.Error || e.Low == e.Low || e.High == e.High {
			t.Errorf("%s: %+v", what, e)
		}
	}
	var text bytes.Buffer
	if err := r.WriteText(&text); err != nil || strings.Count(text.String(), "unknown") != 9 {
		t.Errorf("%v: %s", err, text.String())
	}
}

// TestFile: predictions that went through a file are the same but for its 16 bits, also those of tokens that it does
// not know.
func TestFile(t *testing.T) {
	w, base, model := random(2, 50, 40)
	for _, row := range slices.Concat(base.rows, model.rows) {
		row[7] -= 30
	}
	for i, id := range w.IDs {
		w.IDs[i] = id % 7 // the text has none of those
	}
	path := filepath.Join(t.TempDir(), "base.kld")
	var b bytes.Buffer
	l, err := logprob.NewWriter(&b, w.Context, base.Vocab(), w.IDs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), w, Options{Model: base, Save: l.Row}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil || l.Close() != nil {
		t.Fatal(err, l.Close())
	}
	f, err := OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	again, err := f.Windows(0)
	if err != nil || again.Context != w.Context || !slices.Equal(again.IDs, w.IDs) {
		t.Fatalf("%+v, %v", again, err)
	}
	if one, err := f.Windows(1); err != nil || one.Count() != 1 {
		t.Errorf("%+v, %v", one, err)
	}
	itself, err := Run(t.Context(), again, Options{Model: base, Base: f})
	if err != nil {
		t.Fatal(err)
	}
	if kl := itself.Base.KL; kl.Min < 0 || kl.Max > 1e-8 || itself.Base.SameTop.Value != 1 {
		t.Errorf("a model against itself: %+v", itself.Base)
	}
	direct, err := Run(t.Context(), w, Options{Model: model, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	through, err := Run(t.Context(), w, Options{Model: model, Base: f})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mean KL", through.Base.KL.Mean.Value, float64(direct.Base.KL.Mean.Value), 1e-5)
	near(t, "RMS Δp", through.Base.RMSDeltaP.Value, float64(direct.Base.RMSDeltaP.Value), 1e-5)
	near(t, "base's perplexity", through.Base.Perplexity.Value, float64(direct.Base.Perplexity.Value), 1e-3)
}

// TestEnds: an error leaves the windows before it.
func TestEnds(t *testing.T) {
	w, base, model := random(2, 8, 5)
	model.err = context.Canceled
	reports := 0
	r, err := Run(t.Context(), w, Options{Model: model, Base: base, Report: func(r *Result) {
		if r.Update(); r.Windows != 1 || r.Tokens != 3 || r.Base == nil {
			t.Errorf("%+v", r)
		}
		reports++
	}})
	if !errors.Is(err, context.Canceled) || r == nil || r.Windows != 1 || r.All != 2 || r.Base == nil || reports != 1 {
		t.Errorf("%+v, %v after %d reports", r, err, reports)
	}
	w, _ = Cut(w.Window(1), 8, 0)
	model.rows = model.rows[3:]
	if r, err := Run(t.Context(), w, Options{Model: model}); err == nil || r != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestBad(t *testing.T) {
	for _, x := range []struct{ ids, context int }{{0, 8}, {7, 8}, {7, 2}, {7, -1}} {
		if _, err := Cut(make([]int32, x.ids), x.context, 0); err == nil {
			t.Errorf("%+v is no error", x)
		}
	}
	w, base, model := random(2, 8, 5)
	nan := float32(math.NaN())
	for name, change := range map[string]func(){
		"vocabulary": func() { base.rows[0] = base.rows[0][:4] },
		"id":         func() { w.IDs[3] = 5 },
		"negative":   func() { w.IDs[3] = -1 },
		"nan":        func() { model.rows[0] = []float32{0, nan, 0, 0, 0} },
	} {
		w, base, model = random(2, 8, 5)
		change()
		if _, err := Run(t.Context(), w, Options{Model: model, Base: base}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	path := filepath.Join(t.TempDir(), "x.kld")
	file := func(id int32, least float32) *File {
		var b bytes.Buffer
		l, err := logprob.NewWriter(&b, 3, 2, []int32{0, 0, id})
		if err != nil || l.Row([]float32{0, 1}, float64(1-least)) != nil || os.WriteFile(path, b.Bytes(), 0o666) != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	if _, err := file(2, -1).Windows(0); err == nil {
		t.Error("an id beyond the vocabulary is no error")
	}
	for _, least := range []float32{2, nan} {
		f := file(1, least)
		w, err := f.Windows(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), w, Options{Model: &made{rows: [][]float32{{1, 2}}}, Base: f}); err == nil {
			t.Errorf("a probability of e^%v is no error", least)
		}
	}
}

// TestTexts: both are there, and share no long line.
func TestTexts(t *testing.T) {
	lines := map[string]bool{}
	for line := range strings.Lines(Text) {
		lines[line] = true
	}
	if len(Text) < 90_000 || len(Calibration) < 90_000 {
		t.Errorf("%d and %d bytes", len(Text), len(Calibration))
	}
	for line := range strings.Lines(Calibration) {
		if len(line) > 160 && lines[line] {
			t.Errorf("in both: %s", line)
		}
	}
}
