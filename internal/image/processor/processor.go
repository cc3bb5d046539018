// Package processor prepares pictures for models that see, as the processors of Hugging Face's transformers do:
// resizing, tiles, values and patches.
//
// Files in reading order: processor.go (Read), a file for each rule: area.go, square.go, budget.go, tiles.go,
// side.go, grid.go; then settings.go and values.go.
package processor

import (
	"fmt"

	"github.com/karat-run/karat/internal/image"
)

// Processor prepares pictures for one model.
type Processor struct {
	settings
	tiles func(s *settings, m *image.Image) (*Input, error)
	Values
}

// kinds are the processors by their names in preprocessor_config.json, without "Fast" and "Pil" at the end.
var kinds = map[string]struct {
	tiles   func(s *settings, m *image.Image) (*Input, error)
	order   Order
	library image.Resizer // nothing but torchvision's exists for some
}{
	"Qwen2VLImageProcessor":  {byArea, BlocksTwice, image.Pillow},
	"Gemma3ImageProcessor":   {toSquare, ChannelFirst, image.Pillow},
	"Gemma4ImageProcessor":   {toBudget, ChannelLast, image.Pillow},
	"SmolVLMImageProcessor":  {toTiles, ChannelFirst, image.Pillow},
	"Idefics3ImageProcessor": {toTiles, ChannelFirst, image.Pillow},
	"PixtralImageProcessor":  {bySide, ChannelFirst, image.Pillow},
	"Lfm2VlImageProcessor":   {toGrid, ChannelLast, image.Torchvision},
}

// Read returns the processor of a preprocessor_config.json. Another library than the processor's own may be asked for:
// publishers' files name the fast processors, which resize by torchvision, or the others, which resize by Pillow.
func Read(config []byte, library image.Resizer) (*Processor, error) {
	s, err := readSettings(config)
	if err != nil {
		return nil, fmt.Errorf("preprocessor_config.json: %w", err)
	}
	kind, ok := kinds[s.kind()]
	if !ok {
		return nil, fmt.Errorf("preprocessor_config.json: image_processor_type is %q, which Karat does not know",
			s.Type)
	}
	if s.library = library; library == "" {
		s.library = kind.library
	}
	p := &Processor{settings: *s, tiles: kind.tiles}
	p.Values = p.settings.values(kind.order)
	return p, nil
}

// Prepare resizes a picture and cuts it into tiles.
func (p *Processor) Prepare(m *image.Image) (*Input, error) { return p.tiles(&p.settings, m) }
