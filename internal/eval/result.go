package eval

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

	"github.com/karat-run/karat/internal/lab"
)

// Result is the result of an evaluation. All estimates are over predictions, as if independent of each other.
type Result struct {
	Context    int         `json:"context"`     // tokens of a window
	Windows    int         `json:"windows"`     // windows evaluated
	All        int         `json:"all_windows"` // windows of the text
	Tokens     int         `json:"tokens"`      // tokens with scored predictions
	Perplexity Estimate    `json:"perplexity"`
	Base       *Comparison `json:"base,omitempty"`

	scores   []score
	compared bool
}

// Estimate is a mean, or a function of means. The true value lies between Low and High in 95 of 100 texts. Of a single
// prediction the error is NaN.
type Estimate struct {
	Value lab.Number `json:"value"`
	Error lab.Number `json:"standard_error"`
	Low   lab.Number `json:"low"`
	High  lab.Number `json:"high"`
}

// Comparison is the model against the base, from which distances are measured.
type Comparison struct {
	Perplexity  Estimate   `json:"perplexity"`            // the base's
	Correlation lab.Number `json:"correlation"`           // of the logarithms of both models' probabilities
	LogRatio    Estimate   `json:"log_perplexity_ratio"`  // ln(model's perplexity / base's)
	Ratio       Estimate   `json:"perplexity_ratio"`      //
	Difference  Estimate   `json:"perplexity_difference"` //
	KL          Spread     `json:"kl"`                    // of the model's distributions from the base's, in nats
	DeltaP      Spread     `json:"delta_p"`               // of the text's tokens: model's probability less the base's
	RMSDeltaP   Estimate   `json:"rms_delta_p"`
	SameTop     Estimate   `json:"same_top"` // share of predictions with the same likeliest token
}

// Spread is how values are distributed.
type Spread struct {
	Mean       Estimate   `json:"mean"`
	Min        lab.Number `json:"min"`
	Percent01  lab.Number `json:"p0.1"`
	Percent1   lab.Number `json:"p1"`
	Percent5   lab.Number `json:"p5"`
	Percent10  lab.Number `json:"p10"`
	Percent25  lab.Number `json:"p25"`
	Median     lab.Number `json:"median"`
	Percent75  lab.Number `json:"p75"`
	Percent90  lab.Number `json:"p90"`
	Percent95  lab.Number `json:"p95"`
	Percent99  lab.Number `json:"p99"`
	Percent999 lab.Number `json:"p99.9"`
	Max        lab.Number `json:"max"`
}

// quantiles are the values of a Spread by the share of values below.
var quantiles = []struct {
	name  string
	share float64
	of    func(*Spread) *lab.Number
}{
	{"minimum", 0, func(s *Spread) *lab.Number { return &s.Min }},
	{"0.1 %", .001, func(s *Spread) *lab.Number { return &s.Percent01 }},
	{"1 %", .01, func(s *Spread) *lab.Number { return &s.Percent1 }},
	{"5 %", .05, func(s *Spread) *lab.Number { return &s.Percent5 }},
	{"10 %", .1, func(s *Spread) *lab.Number { return &s.Percent10 }},
	{"25 %", .25, func(s *Spread) *lab.Number { return &s.Percent25 }},
	{"median", .5, func(s *Spread) *lab.Number { return &s.Median }},
	{"75 %", .75, func(s *Spread) *lab.Number { return &s.Percent75 }},
	{"90 %", .9, func(s *Spread) *lab.Number { return &s.Percent90 }},
	{"95 %", .95, func(s *Spread) *lab.Number { return &s.Percent95 }},
	{"99 %", .99, func(s *Spread) *lab.Number { return &s.Percent99 }},
	{"99.9 %", .999, func(s *Spread) *lab.Number { return &s.Percent999 }},
	{"maximum", 1, func(s *Spread) *lab.Number { return &s.Max }},
}

// confidence is how many standard errors to either side hold 95 %.
const confidence = 1.959964

func estimate(value, err float64) Estimate {
	return Estimate{lab.Number(value), lab.Number(err), lab.Number(value - confidence*err),
		lab.Number(value + confidence*err)}
}

// exponential returns e^x of an estimate x.
func exponential(value, err float64) Estimate {
	e := estimate(math.Exp(value), math.Exp(value)*err)
	e.Low, e.High = lab.Number(math.Exp(value-confidence*err)), lab.Number(math.Exp(value+confidence*err))
	return e
}

// sums are of pairs.
type sums struct{ n, x, y, xx, yy, xy float64 }

func (s *sums) add(x, y float64) {
	s.n++
	s.x += x
	s.y += y
	s.xx += x * x
	s.yy += y * y
	s.xy += x * y
}

// mean returns the mean of x, and its variance as an estimate: NaN of a single value.
func (s *sums) mean() (mean, variance float64) {
	mean = s.x / s.n
	return mean, max(0, s.xx/s.n-mean*mean) / s.rest()
}

// rest returns the number of values beside the first; NaN without any, since a single value has no spread.
func (s *sums) rest() float64 {
	if s.n < 2 {
		return math.NaN()
	}
	return s.n - 1
}

// swapped returns sums with y as x.
func (s *sums) swapped() *sums { return &sums{s.n, s.y, s.x, s.yy, s.xx, s.xy} }

// Update computes the estimates from the positions scored so far.
func (r *Result) Update() {
	r.Tokens = len(r.scores)
	var nll, squares, same sums
	kl, dp := make([]float64, 0, r.Tokens), make([]float64, 0, r.Tokens)
	for _, s := range r.scores {
		nll.add(s.nll, s.nllBase)
		squares.add(s.dp*s.dp, 0)
		hit := 0.
		if s.same {
			hit = 1
		}
		same.add(hit, 0)
		kl, dp = append(kl, s.kl), append(dp, s.dp)
	}
	mean, variance := nll.mean()
	r.Perplexity = exponential(mean, math.Sqrt(variance))
	if !r.compared {
		return
	}
	baseMean, baseVariance := nll.swapped().mean()
	cov := (nll.xy/nll.n - nll.x/nll.n*nll.y/nll.n) / nll.rest()
	ratio := math.Sqrt(max(0, variance+baseVariance-2*cov)) // the error of the ratio's logarithm
	p, b := math.Exp(mean), math.Exp(baseMean)
	c := &Comparison{
		Perplexity:  exponential(baseMean, math.Sqrt(baseVariance)),
		Correlation: lab.Number(cov / math.Sqrt(variance*baseVariance)),
		LogRatio:    estimate(mean-baseMean, ratio),
		Ratio:       exponential(mean-baseMean, ratio),
		Difference:  estimate(p-b, math.Sqrt(max(0, p*p*variance+b*b*baseVariance-2*p*b*cov))),
		KL:          spread(kl),
		DeltaP:      spread(dp),
		SameTop:     share(&same),
	}
	square, squareVariance := squares.mean()
	rms := math.Sqrt(square)
	c.RMSDeltaP = estimate(rms, 0)
	if rms > 0 {
		c.RMSDeltaP = estimate(rms, math.Sqrt(squareVariance)/2/rms)
	}
	r.Base = c
}

// share returns Wilson's interval of a share, within 0 and 1. (Wilson 1927)
func share(s *sums) Estimate {
	p, variance := s.mean()
	e := estimate(p, math.Sqrt(variance))
	z := confidence * confidence / s.n
	middle, half := (p+z/2)/(1+z), math.Sqrt(z*(p*(1-p)+z/4))/(1+z)
	e.Low, e.High = lab.Number(max(0, middle-half)), lab.Number(min(1, middle+half))
	return e
}

func spread(x []float64) Spread {
	var s sums
	for _, v := range x {
		s.add(v, 0)
	}
	mean, variance := s.mean()
	slices.Sort(x)
	at := func(share float64) lab.Number {
		i, part := math.Modf(share * float64(len(x)-1))
		low := x[int(i)]
		return lab.Number(low + part*(x[min(int(i)+1, len(x)-1)]-low))
	}
	out := Spread{Mean: estimate(mean, math.Sqrt(variance))}
	for _, q := range quantiles {
		*q.of(&out) = at(q.share)
	}
	return out
}

// WriteText writes the result as tables.
func (r *Result) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s of %d tokens, %s\n\n", count(r.Windows, "window"), r.Context, count(r.Tokens, "prediction"))
	fmt.Fprintln(t, "\tvalue\t± standard error\t95 %")
	line := func(name string, e Estimate, times float64, unit string) {
		x := lab.Number(times)
		if e.Error != e.Error { // of one prediction
			fmt.Fprintf(t, "%s\t%.6g%s\tunknown\n", name, e.Value*x, unit)
			return
		}
		fmt.Fprintf(t, "%s\t%.6g%s\t± %.2g\t%.6g … %.6g\n", name, e.Value*x, unit, e.Error*x, e.Low*x, e.High*x)
	}
	line("perplexity", r.Perplexity, 1, "")
	c := r.Base
	if c == nil {
		return t.Flush()
	}
	line("perplexity of the base", c.Perplexity, 1, "")
	line("ln of their ratio", c.LogRatio, 1, "")
	line("ratio", c.Ratio, 1, "")
	line("difference", c.Difference, 1, "")
	line("mean KL, nats", c.KL.Mean, 1, "")
	line("mean Δp", c.DeltaP.Mean, 100, " %")
	line("RMS Δp", c.RMSDeltaP, 100, " %")
	line("same top token", c.SameTop, 100, " %")
	fmt.Fprintf(t, "correlation of ln p\t%.4f %%\n", 100*c.Correlation)
	fmt.Fprintln(t, "\nquantile\tKL\tΔp")
	for _, q := range quantiles {
		fmt.Fprintf(t, "%s\t%.6f\t%.3f %%\n", q.name, *q.of(&c.KL), 100**q.of(&c.DeltaP))
	}
	return t.Flush()
}

// Text is the default text of evaluations, and Calibration the default text that effects are measured on: excerpts of
// Karat's own sources and documents, made-up sentences in the manner of the demo's training, and pieces written for it
// in nine languages, in turns. They share no piece, and none is from the text that the models in this repository were
// trained on, though simple sentences recur.
//
//go:embed text.txt
var Text string

// Calibration is like Text.
//
//go:embed calibration.txt
var Calibration string

// count returns a number of things, without an s for 1.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// score is the result of a prediction: of token t, in nats.
type score struct {
	nll, nllBase float64 // minus the logarithm of t's probability
	kl           float64 // of the model's distribution from the base's
	dp           float64 // t's probability less the base's
	same         bool    // the likeliest token is
}
