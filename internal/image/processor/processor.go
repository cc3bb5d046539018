// Package processor prepares pictures for models that see, as the processors of Hugging Face's transformers do:
// resizing, tiles, values and patches.
//
// Files in reading order: processor.go (Read), a file for each processor: qwen.go, gemma3.go, gemma4.go, smolvlm.go,
// pixtral.go, lfm2.go; then settings.go and values.go.
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

// Input is a picture as a model's tower takes it.
type Input struct {
	Tiles      []*image.Image // by rows; then the whole picture, if the tiles are parts of the picture
	Rows, Cols int            // of tiles; 0 if the picture is whole
}

// kinds are the processors by their names in preprocessor_config.json, without "Fast" and "Pil" at the end.
var kinds = map[string]struct {
	tiles   func(s *settings, m *image.Image) (*Input, error)
	order   Order
	library image.Resizer // nothing but torchvision's exists for some
}{
	"Qwen2VLImageProcessor":  {qwen, BlocksTwice, image.Pillow},
	"Gemma3ImageProcessor":   {gemma3, ChannelFirst, image.Pillow},
	"Gemma4ImageProcessor":   {gemma4, ChannelLast, image.Pillow},
	"SmolVLMImageProcessor":  {smolVLM, ChannelFirst, image.Pillow},
	"Idefics3ImageProcessor": {smolVLM, ChannelFirst, image.Pillow},
	"PixtralImageProcessor":  {pixtral, ChannelFirst, image.Pillow},
	"Lfm2VlImageProcessor":   {lfm2, ChannelLast, image.Torchvision},
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
		return nil, fmt.Errorf("preprocessor_config.json: image_processor_type is %q, which Karat does not know", s.Type)
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
