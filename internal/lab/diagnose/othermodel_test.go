package diagnose_test

import (
	"errors"
	"strings"
	"testing"

	. "github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/tensor"
)

// TestOtherModel wants the dump of another model refused, and not that of the model
// with probes that all give the first half of their values.
func TestOtherModel(t *testing.T) {
	const text = "The color of the sky is"
	m, other := tiny(t, "tiny-llama"), tiny(t, "tiny-qwen3")
	dump, _ := other.record(t, "", "", other.texts(t, text))
	_, err := Run(t.Context(), Options{Model: m.name, Graph: m.graph, Dump: dump, Asked: m.asked})
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "MODEL is not what the engine ran") {
		t.Errorf("dump of another model: %v", err)
	}
	deeper := tiny(t, "tiny-gemma4") // of the same width
	dump, _ = deeper.record(t, "", "", deeper.texts(t, text))
	_, err = Run(t.Context(), Options{Model: m.name, Graph: m.graph, Dump: dump, Asked: m.asked})
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "hidden states of 8 layers, MODEL has 4 layers") {
		t.Errorf("dump of a deeper model: %v", err)
	}
	for _, p := range dump.Prompts { // and one of logits alone, of another vocabulary
		p.Taps, p.Hidden, p.Logits = nil, nil, &tensor.Tensor{DType: tensor.F32, Shape: tensor.Shape{1, 2}, Data: make([]byte, 8)}
	}
	_, err = Run(t.Context(), Options{Model: m.name, Graph: m.graph, Dump: dump, Asked: m.asked})
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "has a place in MODEL, as logits: rows of 2 values") {
		t.Errorf("logits of another vocabulary: %v", err)
	}
	dump, _ = m.record(t, "", "", m.texts(t, text))
	for _, p := range dump.Prompts {
		for name, x := range p.Taps {
			if rows, w := x.Shape[0], x.Shape[1:].Size(); len(x.Data) == 4*rows*w {
				y := &tensor.Tensor{DType: x.DType, Shape: tensor.Shape{rows, w / 2}}
				for i := range rows {
					y.Data = append(y.Data, x.Data[4*i*w:4*(i*w+w/2)]...)
				}
				p.Taps[name] = y
			}
		}
	}
	if d := m.diagnose(t, dump, nil); d.Verdict != Instrument || !has(d, "probe_prefix") {
		t.Error(say(d))
	}
}
