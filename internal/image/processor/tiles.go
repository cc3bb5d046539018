package processor

import (
	"fmt"
	"math"

	"github.com/karat-run/karat/internal/image"
)

// largest is the longest side of any picture in pixels.
const largest = 4096

// toTiles resizes to the longest side, then to multiples of a tile, and cuts; the whole picture follows as a tile. Each
// picture is made from the picture before: Idefics 3's and SmolVLM's.
// (transformers, models/smolvlm/image_processing_smolvlm.py)
func toTiles(s *settings, m *image.Image) (*Input, error) {
	tile := s.MaxImageSize.Longest
	if err := need("size.longest_edge", s.Size.Longest, "max_image_size.longest_edge", tile); err != nil {
		return nil, err
	}
	w, h := scaled(m.Width, m.Height, s.Size.Longest)
	if max(w, h) > largest {
		w, h = scaled(w, h, largest)
	}
	m, err := s.resize(m, w, h)
	if err != nil {
		return nil, err
	}
	if !isOn(s.Splitting) {
		return s.whole(m, tile, tile)
	}
	w, h = tiled(m.Width, m.Height, tile)
	if n := w / tile * (h / tile); n > mostTiles {
		return nil, fmt.Errorf("preprocessor_config.json: a picture would have %d tiles, the limit is %d", n, mostTiles)
	}
	if m, err = s.resize(m, w, h); err != nil {
		return nil, err
	}
	in := &Input{}
	if m.Width > tile || m.Height > tile {
		in.Tiles, in.Rows, in.Cols = cut(m, tile, tile)
	}
	if m, err = s.resize(m, tile, tile); err != nil {
		return nil, err
	}
	in.Tiles = append(in.Tiles, m)
	return in, nil
}

// scaled returns sides in the ratio of w and h, the longer one long and the other even.
func scaled(w, h, long int) (width, height int) {
	ratio := float64(w) / float64(h)
	even := func(x float64) int { return max(int(x)+int(x)%2, 1) }
	if w >= h {
		return long, even(float64(long) / ratio)
	}
	return even(float64(long) * ratio), long
}

// tiled returns sides about in the ratio of w and h that are multiples of a tile's, none shorter than before.
func tiled(w, h, tile int) (width, height int) {
	ratio, t := float64(w)/float64(h), float64(tile)
	up := func(x int) int { return int(math.Ceil(float64(x)/t)) * tile }
	if w >= h {
		width = up(w)
		return width, up(int(float64(width) / ratio))
	}
	height = up(h)
	return up(int(float64(height) * ratio)), height
}

func tileEffects(s *settings, all map[string]any) {
	all["size.longest_edge"] = s.Size.Longest
	all["do_image_splitting"], all["max_image_size.longest_edge"] = isOn(s.Splitting), s.MaxImageSize.Longest
}
