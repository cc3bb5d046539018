package processor

import (
	"cmp"
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/image"
)

// byArea resizes to multiples of a merged patch, within bounds of the area: Qwen's since Qwen2-VL.
// (transformers, models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize)
func byArea(s *settings, m *image.Image) (*Input, error) {
	least, most := s.area()
	factor := int(s.Patch) * s.Merge
	err := need("patch_size times merge_size", factor, "size.shortest_edge", least, "size.longest_edge", most)
	if err != nil {
		return nil, err
	}
	w, h := m.Width, m.Height
	if max(w, h) > 200*min(w, h) {
		return nil, fmt.Errorf("the picture has %dx%d pixels: a side may be 200 times as long as the other", w, h)
	}
	width, height := s.within(w, h, factor, 0, least, most)
	return s.whole(m, width, height)
}

// area returns the bounds of a picture's area.
func (s *settings) area() (least, most int) {
	return cmp.Or(s.MinPixels, s.Size.MinPixels, s.Size.Shortest),
		cmp.Or(s.MaxPixels, s.Size.MaxPixels, s.Size.Longest)
}

// within returns sides that are multiples of factor and at least shortest, about as long as w and h, and whose area is
// from least to most as far as multiples allow.
func (s *settings) within(w, h, factor, shortest, least, most int) (width, height int) {
	width, height = max(shortest, s.multiple(w, factor)), max(shortest, s.multiple(h, factor))
	area, f := float64(w*h), float64(factor)
	switch {
	case width*height > most:
		by := math.Sqrt(area / float64(most))
		down := func(x int) int { return max(factor, int(math.Floor(float64(x)/by/f))*factor) }
		return down(w), down(h)
	case width*height < least:
		by := math.Sqrt(float64(least) / area)
		up := func(x int) int { return int(math.Ceil(float64(x)*by/f)) * factor }
		return up(w), up(h)
	}
	return width, height
}

func areaEffects(s *settings, all map[string]any) {
	least, most := s.area()
	all["merge_size"], all["size.shortest_edge"], all["size.longest_edge"] = s.Merge, least, most
}
