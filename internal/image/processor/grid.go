package processor

import (
	"math"

	"github.com/karat-run/karat/internal/image"
)

// toGrid resizes within bounds of the area, and cuts a larger picture into tiles of the grid nearest to its shape; the
// whole picture follows: LFM2-VL's.
// (transformers, models/lfm2_vl/image_processing_lfm2_vl.py)
func toGrid(s *settings, m *image.Image) (*Input, error) {
	factor := s.EncoderPatch * s.Downsample
	err := need("encoder_patch_size", s.EncoderPatch, "downsample_factor", s.Downsample, "min_image_tokens",
		s.MinTokens, "max_image_tokens", s.MaxTokens, "tile_size", s.TileSize, "min_tiles", s.MinTiles, "max_tiles",
		s.MaxTiles)
	if err != nil {
		return nil, err
	}
	w, h, token := m.Width, m.Height, factor*factor
	side := func(x int) int { return max(s.EncoderPatch, s.multiple(x, factor)) }
	large := float64(side(w)*side(h)) > float64(s.MaxTokens*token)*s.Tolerance
	width, height := s.within(w, h, factor, factor, s.MinTokens*token, s.MaxTokens*token)
	if splits := isOn(s.Splitting) && s.MaxTiles > 1; !splits || !large {
		return s.whole(m, width, height)
	}
	cols, rows := s.grid(w, h)
	big, err := s.resize(m, cols*s.TileSize, rows*s.TileSize)
	if err != nil {
		return nil, err
	}
	in := &Input{}
	in.Tiles, in.Rows, in.Cols = cut(big, s.TileSize, s.TileSize)
	if s.Thumbnail && rows*cols > 1 {
		if m, err = s.resize(m, width, height); err != nil {
			return nil, err
		}
		in.Tiles = append(in.Tiles, m)
	}
	return in, nil
}

// grid returns the columns and rows whose ratio is nearest to a picture's, among grids of the allowed numbers of tiles;
// of ratios as near, the larger grid if the picture fills half of it.
func (s *settings) grid(w, h int) (cols, rows int) {
	ratio, best := float64(w)/float64(h), math.Inf(1)
	cols, rows = 1, 1
	for n := s.MinTiles; n <= s.MaxTiles; n++ {
		for c := 1; c <= n; c++ {
			if n%c != 0 {
				continue
			}
			r := n / c
			diff := math.Abs(ratio - float64(c)/float64(r))
			if diff < best || diff == best && 2*w*h > s.TileSize*s.TileSize*c*r {
				best, cols, rows = diff, c, r
			}
		}
	}
	return cols, rows
}

func gridEffects(s *settings, all map[string]any) {
	g := s.gridSettings
	all["downsample_factor"] = g.Downsample
	all["min_image_tokens"], all["max_image_tokens"] = g.MinTokens, g.MaxTokens
	all["max_pixels_tolerance"], all["do_image_splitting"] = g.Tolerance, isOn(s.Splitting) && g.MaxTiles > 1
	if all["do_image_splitting"] == true {
		all["min_tiles"], all["max_tiles"], all["tile_size"] = g.MinTiles, g.MaxTiles, g.TileSize
		all["use_thumbnail"] = g.Thumbnail
	}
}
