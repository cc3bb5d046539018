package processor

import (
	"math"

	"github.com/karat-run/karat/internal/image"
)

// bySide shrinks to a longest side, and rounds sides up to multiples of a patch. A small picture stays small:
// Pixtral's.
// (transformers, models/pixtral/image_processing_pixtral.py)
func bySide(s *settings, m *image.Image) (*Input, error) {
	patch := max(int(s.Patch), s.block)
	if err := need("size.longest_edge", s.Size.Longest, "patch_size", patch); err != nil {
		return nil, err
	}
	w, h := m.Width, m.Height
	if by := float64(max(w, h)) / float64(s.Size.Longest); by > 1 {
		w, h = int(math.Floor(float64(w)/by)), int(math.Floor(float64(h)/by))
	}
	up := func(x int) int { return (max(x, 1) + patch - 1) / patch * patch }
	return s.whole(m, up(w), up(h))
}

func sideEffects(s *settings, all map[string]any) {
	all["size.longest_edge"] = s.Size.Longest // the patch is the tower's
}
