package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tensor"
)

// Options set how far a record may lie from the golden one. The zero value is
// the noise floor.
type Options struct {
	// MaxDiff is the largest |Δlogit| at any position. If it is nil, and MaxKL too,
	// each prompt's limit is 4 times its float32.max_abs_diff in the golden record;
	// without it has none, and is measured only.
	MaxDiff *float64

	// MaxKL is the largest KL divergence of a prompt, in nats, the mean over its
	// positions. If it is nil, KL is shown and not judged.
	MaxKL *float64

	// Partial allows a record that lacks prompts of the golden one.
	Partial bool
}

// floors is how many times the distance of PyTorch's float32 pass from its
// float64 pass a record may lie from the latter.
const floors = 4

// Comparison holds the distances of a record from a golden one.
type Comparison struct {
	Golden         string          `json:"golden"` // the records' paths
	Record         string          `json:"record"`
	GoldenNumerics json.RawMessage `json:"golden_numerics,omitempty"`
	RecordNumerics json.RawMessage `json:"record_numerics,omitempty"`
	VocabSize      int             `json:"vocab_size"`

	Prompts    []PromptComparison `json:"prompts"`               // with logits in both, by index
	All        Distance           `json:"all"`                   // over all positions of all prompts
	OnlyGolden []int              `json:"only_golden,omitempty"` // prompts whose logits only one has
	OnlyRecord []int              `json:"only_record,omitempty"`
	Partial    bool               `json:"partial,omitempty"` // OnlyGolden was allowed
}

// How the ids of a prompt compare.
const (
	IDsEqual     = "equal"
	IDsDifferent = "different"
	IDsAssumed   = "assumed" // equal: a side that has none takes the other's
)

// PromptComparison compares one prompt at the last positions that both records kept.
type PromptComparison struct {
	Index int    `json:"index"`
	Text  string `json:"text,omitempty"`
	IDs   string `json:"ids"` // IDsEqual, IDsDifferent or IDsAssumed

	Distance

	GoldenEntropy Number `json:"golden_entropy"` // at the last position, in nats
	RecordEntropy Number `json:"record_entropy"`

	Float32  *Floor `json:"float32,omitempty"` // the golden record's noise floor
	BFloat16 *Floor `json:"bfloat16,omitempty"`

	MaxDiffLimit *Number `json:"max_diff_limit,omitempty"` // what MaxAbsDiff and KLMean are judged by
	MaxKLLimit   *Number `json:"max_kl_limit,omitempty"`
	Inside       bool    `json:"inside"`

	Taps []TapComparison `json:"taps,omitempty"` // taps that both have, worst first
	// How many taps only one of the records has.
	TapsOnlyGolden int `json:"taps_only_golden,omitempty"`
	TapsOnlyRecord int `json:"taps_only_record,omitempty"`
}

// Inside reports whether every prompt that was compared is inside its limits, and
// every one of the golden record was compared, unless the record may be partial.
func (c *Comparison) Inside() bool {
	return !c.lacking() && len(c.Prompts) > 0 &&
		!slices.ContainsFunc(c.Prompts, func(p PromptComparison) bool { return !p.Inside })
}

// ErrNoLimit is wrapped by Limited's errors.
var ErrNoLimit = errors.New("no limit: the golden record has no noise floor (float32.max_abs_diff), and none was set")

// Limited returns an error that wraps ErrNoLimit if nothing says how far a prompt may lie from the golden record:
// the prompt is measured then, and not judged.
func (c *Comparison) Limited() error {
	for i := range c.Prompts {
		if p := &c.Prompts[i]; !p.limited() {
			return fmt.Errorf("compare: prompt %d: %w", p.Index, ErrNoLimit)
		}
	}
	return nil
}

func (p *PromptComparison) limited() bool { return p.MaxDiffLimit != nil || p.MaxKLLimit != nil }

// lacking reports whether the record lacks prompts it should have.
func (c *Comparison) lacking() bool { return len(c.OnlyGolden) > 0 && !c.Partial }

// Compare compares record with golden, prompt by prompt. A prompt is inside if
// it has limits, its ids are not different, its logits are within the limits and no tap is
// broken: a NaN anywhere is outside. An error means that there is nothing to
// compare: no common prompt, or another vocabulary.
func Compare(golden, record *Record, o Options) (*Comparison, error) {
	for _, limit := range []struct {
		name  string
		value *float64
	}{{"MaxDiff", o.MaxDiff}, {"MaxKL", o.MaxKL}} {
		if limit.value != nil && !(*limit.value >= 0) {
			return nil, fmt.Errorf("compare: %s: %v is not a distance", limit.name, *limit.value)
		}
	}
	c := &Comparison{Golden: golden.Path, Record: record.Path, Partial: o.Partial,
		GoldenNumerics: golden.Numerics, RecordNumerics: record.Numerics}
	err := mmap.Guard(func() error { return c.compare(golden, record, o) })
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return c, nil
}

func (c *Comparison) compare(golden, record *Record, o Options) error {
	for _, g := range golden.Prompts {
		r := record.Prompt(g.Index)
		switch {
		case g.Logits == nil:
			continue
		case r == nil || r.Logits == nil:
			c.OnlyGolden = append(c.OnlyGolden, g.Index)
			continue
		}
		p, err := comparePrompt(g, r, o)
		if err != nil {
			return fmt.Errorf("prompt %d: %w", g.Index, err)
		}
		c.Prompts = append(c.Prompts, *p)
		c.All.add(p.Distance)
		c.VocabSize = g.Logits.Shape.Last()
	}
	for _, r := range record.Prompts {
		if g := golden.Prompt(r.Index); r.Logits != nil && (g == nil || g.Logits == nil) {
			c.OnlyRecord = append(c.OnlyRecord, r.Index)
		}
	}
	if len(c.Prompts) == 0 {
		return errors.New("the records have no prompt with logits in common")
	}
	return nil
}

func comparePrompt(g, r *Prompt, o Options) (*PromptComparison, error) {
	if a, b := g.Logits.Shape.Last(), r.Logits.Shape.Last(); a != b {
		return nil, fmt.Errorf("logits of %d tokens against %d: another vocabulary", b, a)
	}
	p := &PromptComparison{Index: g.Index, Text: cmp.Or(g.Text, r.Text), IDs: compareIDs(g, r), Float32: g.Float32,
		BFloat16: g.BFloat16}
	p.setLimits(o)
	p.compareLogits(g.Logits, r.Logits)
	p.compareTaps(g, r)
	p.Inside = p.limited() && p.IDs != IDsDifferent &&
		(p.MaxDiffLimit == nil || p.MaxAbsDiff <= *p.MaxDiffLimit) && // false for NaN
		(p.MaxKLLimit == nil || p.KLMean <= *p.MaxKLLimit) &&
		!math.IsNaN(float64(p.MaxAbsDiff)) && !slices.ContainsFunc(p.Taps, TapComparison.Broken)
	return p, nil
}

// compareIDs returns IDsEqual, IDsDifferent or IDsAssumed.
func compareIDs(g, r *Prompt) string {
	switch {
	case g.IDs == nil || r.IDs == nil:
		return IDsAssumed
	case slices.Equal(g.IDs, r.IDs):
		return IDsEqual
	}
	return IDsDifferent
}

func (p *PromptComparison) setLimits(o Options) {
	floor, ok := p.Float32.limit()
	switch {
	case o.MaxDiff != nil:
		p.MaxDiffLimit = new(Number(*o.MaxDiff))
	case o.MaxKL != nil:
	case ok:
		p.MaxDiffLimit = &floor
	}
	if o.MaxKL != nil {
		p.MaxKLLimit = new(Number(*o.MaxKL))
	}
}

// compareLogits compares the last rows that both have.
func (p *PromptComparison) compareLogits(g, r *tensor.Tensor) {
	a, b := rowsOf(g), rowsOf(r)
	eachRow(a, b, func(at int, x, y []float64) {
		d := distance(x, y)
		if at == a.n-1 {
			d.LastMaxAbsDiff = d.MaxAbsDiff
			p.GoldenEntropy, p.RecordEntropy = Number(Entropy(x)), Number(Entropy(y))
		}
		p.Distance.add(d)
	})
}

// TapComparison compares one tap, or the hidden state after one layer under the
// name hidden.LAYER, at the last rows (positions) that both records have.
type TapComparison struct {
	Name string `json:"name"`
	Rows int    `json:"rows"` // compared

	Whole    Number `json:"whole"`     // relative L2 error of all rows
	Worst    Number `json:"worst"`     // and of the worst one,
	WorstRow int    `json:"worst_row"` // counted as in the golden record

	// Problem is why the tap could not be compared, if it could not.
	Problem string `json:"problem,omitempty"`

	// NeedNotMatch marks a tap that depends on how PyTorch calls a module.
	NeedNotMatch bool `json:"need_not_match,omitempty"`
}

// Broken reports whether the tap has a NaN, or another shape than it should have.
func (t TapComparison) Broken() bool {
	return t.Problem != "" && !t.NeedNotMatch || math.IsNaN(float64(t.Worst))
}

// compareTaps compares the taps and hidden states that both have.
func (p *PromptComparison) compareTaps(g, r *Prompt) {
	a, b := g.rows(), r.rows()
	for name, x := range a {
		if y, ok := b[name]; ok {
			p.Taps = append(p.Taps, compareTap(name, x, y))
		} else {
			p.TapsOnlyGolden++
		}
	}
	p.TapsOnlyRecord = len(b) - len(p.Taps)
	slices.SortFunc(p.Taps, worstFirst)
}

func compareTap(name string, g, r rows) TapComparison {
	t := TapComparison{Name: name, NeedNotMatch: needNotMatch(name)}
	if g.width != r.width {
		t.Problem = fmt.Sprintf("rows of %d values against %d", r.width, g.width)
		return t
	}
	t.Rows = min(g.n, r.n)
	var whole squares
	eachRow(g, r, func(at int, x, y []float64) {
		var row squares
		addSquares(&row, x, y)
		whole.diff += row.diff
		whole.golden += row.golden
		if e := Number(row.relative()); at == g.n-t.Rows || compareErrors(e, t.Worst) > 0 {
			t.Worst, t.WorstRow = e, at
		}
	})
	t.Whole = Number(whole.relative())
	return t
}

// compareErrors orders errors, NaN behind all numbers.
func compareErrors(a, b Number) int { return cmp.Compare(-b, -a) }

// worstFirst orders taps: broken ones, then by the error of the worst
// row, and taps that need not match last.
func worstFirst(a, b TapComparison) int {
	rank := func(t TapComparison) int {
		switch {
		case t.Broken():
			return 0
		case t.NeedNotMatch:
			return 2
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), compareErrors(b.Worst, a.Worst), strings.Compare(a.Name, b.Name))
}

// needNotMatch reports whether a tap holds the output of a module's first call, or has a form of PyTorch's own.
func needNotMatch(name string) bool {
	return strings.HasSuffix(name, "act_fn.out") || strings.HasSuffix(name, "rotary_emb.out") ||
		strings.HasSuffix(name, "pos_emb.out") || strings.HasSuffix(name, "router.out")
}
