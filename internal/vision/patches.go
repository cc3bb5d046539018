package vision

import (
	"fmt"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/kv"
)

// MostRows bounds the patches of a tile: attention takes time with their square.
const MostRows = 1 << 16

// tile is a picture or a part of it, cut into patches.
type tile struct {
	grid   graph.Grid  // of the patches
	folded graph.Grid  // of the blocks of patches that become rows
	rows   [][]float32 // by the patch's place, by rows of the grid
}

func (t *tile) count() int { return t.grid.Height * t.grid.Width }

// cut returns the patches of an image in whole blocks. Pixels behind the last whole patch are left out.
func cut(x *image.Image, values *processor.Values, sight family.Sight) (t tile, err error) {
	patch, side := sight.Patch, sight.Side
	t.grid = graph.Grid{Height: x.Height / patch, Width: x.Width / patch}
	if t.grid.Height%side != 0 || t.grid.Width%side != 0 || t.count() < 1 || t.count() > MostRows {
		return t, fmt.Errorf("a resized picture has %dx%d pixels: want sides of whole blocks of %d pixels, and at "+
			"most %d patches", x.Width, x.Height, patch*side, MostRows)
	}
	t.folded = graph.Grid{Height: t.grid.Height / side, Width: t.grid.Width / side}
	for i := 0; x.Pix != nil && i < t.count(); i++ {
		row := values.Patch(make([]float32, 0, 6*patch*patch), x, i%t.grid.Width*patch, i/t.grid.Width*patch, patch)
		for j, v := range row {
			if sight.By != 0 {
				row[j] = float32(sight.By*v) - sight.Less
			}
		}
		t.rows = append(t.rows, row)
	}
	return t, nil
}

// add appends t's patches to a step: blocks by rows, windows of blocks one after another, and within a window its
// blocks by rows. It returns the blocks' places in order of the rows' own, from first on.
func (t *tile) add(s *backend.Step, seq *kv.Sequence, first int, sight family.Sight) (places []int) {
	window := sight.Window
	if window == 0 {
		window = max(t.folded.Height, t.folded.Width)
	}
	pos := int32(0)
	for y := 0; y < t.folded.Height; y += window {
		for x := 0; x < t.folded.Width; x += window {
			height, width := min(window, t.folded.Height-y), min(window, t.folded.Width-x)
			group := backend.Group{First: pos, End: pos + int32(height*width*sight.Side*sight.Side)}
			for i := range height * width {
				row, col := y+i/width, x+i%width
				places = append(places, first+row*t.folded.Width+col)
				for j := range sight.Side * sight.Side {
					at, across := row*sight.Side+j/sight.Side, col*sight.Side+j%sight.Side
					s.Tokens, s.Pos, s.Seqs = append(s.Tokens, 0), append(s.Pos, pos), append(s.Seqs, seq)
					s.Parts = append(s.Parts, [3]int32{0, int32(at), int32(across)})
					s.Embeddings = append(s.Embeddings, t.rows[at*t.grid.Width+across])
					s.Groups = append(s.Groups, group)
					pos++
				}
				s.Outputs = append(s.Outputs, int32(len(s.Tokens)-1))
			}
		}
	}
	return places
}
