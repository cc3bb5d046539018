package autoquant

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/eval"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/tensor"
)

// Plan holds the measurements and the choice.
type Plan struct {
	Model       string     `json:"model"`
	Imatrix     string     `json:"imatrix,omitempty"`
	Text        Text       `json:"text"`        // that the choices' effects were measured on
	Predictions int        `json:"predictions"` // that KL was measured on
	Bytes       int64      `json:"bytes"`       // of the weights chosen
	Expected    lab.Number `json:"expected_kl"` // if effects add up, in nats
	KL          lab.Number `json:"kl"`          // measured, mean over the predictions
	Weights     []Weight   `json:"weights"`
}

// Text tells texts apart.
type Text struct {
	Windows int    `json:"windows"`
	Context int    `json:"context"` // tokens of a window
	SHA256  string `json:"sha256"`  // of the windows' token ids, int32 little-endian
}

func textOf(w *eval.Windows) Text {
	h := sha256.New()
	binary.Write(h, binary.LittleEndian, w.IDs) // a hash takes all
	return Text{w.Count(), w.Context, hex.EncodeToString(h.Sum(nil))}
}

// Weight is one weight's choice.
type Weight struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Choices []Choice `json:"choices"`
}

// Choice is what a type would cost.
type Choice struct {
	Type  string  `json:"type"`
	Bytes int64   `json:"bytes"`
	KL    float64 `json:"kl"` // that it alone adds
}

// Type returns a weight's type in the plan.
func (p *Plan) Type(i int) tensor.DType {
	d, _ := tensor.ParseDType(p.Weights[i].Type)
	return d
}

// Read takes a plan's measurements for these of the model. Other is what they were measured on, if that is not the text
// of s.
func (s *Search) Read(data []byte) (other *Text, err error) {
	var p Plan
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	if len(p.Weights) != len(s.weights) {
		return nil, fmt.Errorf("plan: %d weights, the model has %d", len(p.Weights), len(s.weights))
	}
	for i, x := range s.weights {
		w := p.Weights[i]
		if w.Name != x.name || len(w.Choices) != len(x.choices) {
			return nil, fmt.Errorf("plan: weight %d is %q with %d choices, the model's is %q with %d", i, w.Name,
				len(w.Choices), x.name, len(x.choices))
		}
		for j, c := range w.Choices {
			if d := x.choices[j].dtype.String(); c.Type != d || !(c.KL >= 0 && c.KL <= math.MaxFloat32) {
				return nil, fmt.Errorf("plan: weight %q, choice %d: %s of KL %v, want %s and a finite number from 0", w.Name, j,
					c.Type, c.KL, d)
			}
		}
	}
	for i, x := range s.weights {
		for j := range x.choices {
			x.choices[j].kl = p.Weights[i].Choices[j].KL
		}
	}
	if p.Text != s.on {
		s.on, other = p.Text, &p.Text
	}
	return other, nil
}

// Within returns the plan of the least KL divergence whose weights take at most size bytes.
func (s *Search) Within(ctx context.Context, size int64) (*Plan, error) {
	p := s.within(size)
	if n := s.bytes(p); n > size {
		return nil, fmt.Errorf("the weights take at least %d bytes, and %d are left for them", n, size)
	}
	return s.plan(ctx, p)
}

// Below returns a plan of few bytes whose KL divergence on the text is at most kl. Where effects do not add up it looks
// for one that is expected to have less, or may have more. With the error that there is none comes the last one that
// was tried, which has the measurements.
func (s *Search) Below(ctx context.Context, kl float64) (best *Plan, err error) {
	aim := kl
	var p *Plan
	for range 5 {
		if p, err = s.plan(ctx, s.below(aim)); err != nil {
			return nil, err
		}
		got, expected := float64(p.KL), float64(p.Expected)
		if got <= kl && (best == nil || p.Bytes < best.Bytes) {
			best = p
		}
		if got <= kl && got > 0.97*kl || expected == 0 || got == 0 {
			break
		}
		aim = kl * expected / got
	}
	if best == nil {
		return p, fmt.Errorf("no choice of types has a KL divergence of %g or less on the text; the last one tried has %.3g",
			kl, float64(p.KL))
	}
	return best, nil
}

// plan measures a plan.
func (s *Search) plan(ctx context.Context, p plan) (*Plan, error) {
	s.o.Report("the chosen types", 0, 1)
	defer s.restore()
	for i, x := range s.weights {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := x.set(x.choices[p[i]].dtype); err != nil {
			return nil, err
		}
	}
	kl, err := s.text.kl(ctx)
	if err != nil {
		return nil, err
	}
	r := &Plan{Model: s.o.Model.Checkpoint.Path, Text: s.on, Predictions: len(s.text.base), Bytes: s.bytes(p),
		Expected: lab.Number(s.expected(p)), KL: lab.Number(kl)}
	for i, x := range s.weights {
		w := Weight{Name: x.name, Type: x.choices[p[i]].dtype.String()}
		for _, c := range x.choices {
			w.Choices = append(w.Choices, Choice{c.dtype.String(), c.bytes, c.kl})
		}
		r.Weights = append(r.Weights, w)
	}
	return r, nil
}

// Most returns the type that most of the weights' bytes have.
func (p *Plan) Most() tensor.DType {
	bytes := map[string]int64{}
	for _, w := range p.Weights {
		i := slices.IndexFunc(w.Choices, func(c Choice) bool { return c.Type == w.Type })
		bytes[w.Type] += w.Choices[i].Bytes
	}
	best := p.Weights[0].Type
	for _, w := range p.Weights {
		if bytes[w.Type] > bytes[best] {
			best = w.Type
		}
	}
	d, _ := tensor.ParseDType(best)
	return d
}
