package processor

import (
	"math"

	"github.com/karat-run/karat/internal/image"
)

// toSquare resizes to one size, whatever the shape; with pan and scan also parts of long pictures: Gemma 3's.
// (transformers, models/gemma3/image_processing_gemma3.py)
func toSquare(s *settings, m *image.Image) (*Input, error) {
	if err := need("size.height", s.Size.Height, "size.width", s.Size.Width); err != nil {
		return nil, err
	}
	in, err := s.whole(m, s.Size.Width, s.Size.Height)
	if err != nil || !s.PanAndScan {
		return in, err
	}
	w, h := m.Width, m.Height
	crops := s.crops(max(w, h), min(w, h))
	if crops == 0 {
		return in, nil
	}
	in.Rows, in.Cols = 1, crops
	width, height := (w+crops-1)/crops, h
	if w < h {
		in.Rows, in.Cols = crops, 1
		width, height = w, (h+crops-1)/crops
	}
	parts, _, _ := cut(m, width, height)
	for _, part := range parts {
		if part, err = s.resize(part, s.Size.Width, s.Size.Height); err != nil {
			return nil, err
		}
		in.Tiles = append(in.Tiles, part)
	}
	in.Tiles = append(in.Tiles[1:], in.Tiles[0])
	return in, nil
}

// crops returns the number of parts along the longer side; 0 for none.
func (s *settings) crops(long, short int) int {
	ratio := float64(long) / float64(short)
	if ratio < s.MinRatio || s.MinCrop < 1 {
		return 0
	}
	n := min(max(2, min(long/s.MinCrop, int(math.Floor(ratio+0.5)))), s.MaxCrops)
	if n < 1 || min((long+n-1)/n, short) < s.MinCrop {
		return 0
	}
	return n
}

func squareEffects(s *settings, all map[string]any) {
	all["size.height"], all["size.width"], all["do_pan_and_scan"] = s.Size.Height, s.Size.Width, s.PanAndScan
	if s.PanAndScan {
		all["pan_and_scan_*"] = s.cropSettings
	}
}
