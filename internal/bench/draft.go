package bench

import (
	"context"
	_ "embed" // the texts
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat/internal/draft"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/sample"
)

// The texts of the tests of drafts. The prompt of an edit is a license, and the answer is the license with "License"
// replaced and every fortieth word left out. The answer behind prose is prose, and repeats nothing.
var (
	//go:embed texts/license.txt
	license string
	//go:embed texts/prose.txt
	prose string
)

// Drafts compares the speed of an answer with drafts and without, in turns. The answer is given: its tokens are chosen
// as if the model said the text.
type Drafts struct {
	Accepted int       `json:"accepted"` // tokens of drafts, in a run of a sequence
	Rejected int       `json:"rejected"`
	Without  []float64 `json:"without_samples_ts"`
	Ratio    float64   `json:"ratio"` // median of the runs' speeds with drafts over without
}

// script is the tokens of a prompt and of an answer. Words are tokens, so the script needs no tokenizer. A nil answer
// is the model's own, of ownTokens tokens.
type script struct {
	name           string
	prompt, answer []int32
}

const ownTokens = 128

// length returns the number of tokens of the answer.
func (x *script) length() int {
	if x.answer == nil {
		return ownTokens
	}
	return len(x.answer)
}

// scripts returns the tests' texts for a vocabulary.
func scripts(vocab int) []script {
	ids := map[string]int32{}
	tokens := func(words []string) (list []int32) {
		for _, w := range words {
			if _, ok := ids[w]; !ok {
				ids[w] = int32((7 + 13*len(ids)) % vocab)
			}
			list = append(list, ids[w])
		}
		return list
	}
	words := strings.Fields(license)
	var edited []string
	for i, w := range words {
		if i%40 != 39 {
			edited = append(edited, strings.ReplaceAll(w, "License", "Agreement"))
		}
	}
	told := strings.Fields(prose)
	return []script{{"edit", tokens(words), tokens(edited)}, {"prose", tokens(told[:40]), tokens(told[40:])},
		{"own", tokens(told[:40]), nil}}
}

// drafts measures the tests of drafts.
func (m *runner) drafts(ctx context.Context, t *Result, x script) error {
	m.say(t.name())
	t.Draft = &Drafts{}
	all := make([]*engine.Sequence, t.Parallel)
	for i := range all {
		all[i] = m.engine.NewSequence()
		defer all[i].Close()
	}
	if _, err := m.tell(ctx, all, x, t.Draft, true); err != nil { // and the engine learns its pace
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	sample := func(with bool, to *[]float64) func() error {
		return func() error {
			seconds, err := m.tell(ctx, all, x, t.Draft, with)
			*to = append(*to, float64(t.Parallel*x.length())/seconds)
			return err
		}
	}
	if err := m.turns(sample(true, &t.Samples), sample(false, &t.Draft.Without)); err != nil {
		return err
	}
	t.Median, t.Stddev = spread(t.Samples)
	var ratios []float64
	for i, rate := range t.Samples {
		ratios = append(ratios, rate/t.Draft.Without[i])
	}
	t.Draft.Ratio, _ = spread(ratios)
	return nil
}

// tell has all sequences say a script at the same time, and returns the seconds from the first token to the last.
func (m *runner) tell(ctx context.Context, all []*engine.Sequence, x script, counts *Drafts,
	with bool) (seconds float64, err error) {
	errs := make([]error, len(all))
	first, last := make([]time.Time, len(all)), make([]time.Time, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			d := draft.New(x.prompt, nil)
			r := engine.Request{Prompt: x.prompt, Max: x.length(), Decoder: mute{}, Head: m.o.Head}
			if x.answer != nil {
				r.Grammar = &recital{x.answer}
			}
			if with {
				r.Draft = func() *draft.Drafter { return d }
			}
			for _, err := range s.Generate(ctx, r) {
				if errs[i] = err; first[i].IsZero() {
					first[i] = time.Now()
				}
			}
			last[i] = time.Now()
			if i == 0 && with {
				counts.Accepted, counts.Rejected = 0, 0
				for _, c := range d.Counts() {
					counts.Accepted, counts.Rejected = counts.Accepted+c.Accepted, counts.Rejected+c.Rejected
				}
			}
		})
	}
	wg.Wait()
	begin, end := first[0], last[0]
	for i, err := range errs {
		if err != nil {
			return 0, err
		}
		if first[i].Before(begin) {
			begin = first[i]
		}
		if last[i].After(end) {
			end = last[i]
		}
	}
	return end.Sub(begin).Seconds(), nil
}

// recital is a grammar of a single answer.
type recital struct{ left []int32 }

func (r *recital) Mask() (*sample.Mask, error) { return &sample.Mask{IDs: r.left[:1]}, nil }
func (r *recital) Steps() int                  { return 0 }
func (r *recital) Forced(int) ([]byte, error)  { return nil, nil }

func (r *recital) Accept(int) error {
	r.left = r.left[1:]
	return nil
}

// mute decodes tokens as nothing.
type mute struct{}

func (mute) Write(int) string { return "" }
func (mute) Flush() string    { return "" }

// text describes d as part of a test's name.
func (d *Drafts) text(name string) string {
	return fmt.Sprintf("%s: %.2f times the speed without drafts; of the drafts' tokens %d were right and %d wrong\n",
		name, d.Ratio, d.Accepted, d.Rejected)
}
