package processor

import (
	"math"

	"github.com/karat-run/karat/internal/image"
)

// toBudget fills the budget of tokens as far as multiples of a pooled patch allow, so that small pictures become large:
// Gemma 4's.
// (transformers, models/gemma4/image_processing_gemma4.py)
func toBudget(s *settings, m *image.Image) (*Input, error) {
	err := need("patch_size", int(s.Patch), "pooling_kernel_size", s.Pooling, "max_soft_tokens", s.SoftTokens)
	if err != nil {
		return nil, err
	}
	pooled := int(s.Patch) * s.Pooling
	by := math.Sqrt(float64(s.SoftTokens*pooled*pooled) / float64(m.Width*m.Height))
	down := func(x int) int { return int(math.Floor(by*float64(x)/float64(pooled))) * pooled }
	width, height := down(m.Width), down(m.Height)
	longest := s.SoftTokens * pooled
	switch {
	case height == 0:
		width, height = min(m.Width/m.Height*pooled, longest), pooled
	case width == 0:
		width, height = pooled, min(m.Height/m.Width*pooled, longest)
	}
	return s.whole(m, width, height)
}

func budgetEffects(s *settings, all map[string]any) {
	all["pooling_kernel_size"], all["max_soft_tokens"] = s.Pooling, s.SoftTokens
}
