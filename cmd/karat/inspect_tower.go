package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/vision"
)

// towerFacts are facts about a model's part for pictures.
type towerFacts struct {
	Kind   string         `json:"kind"` // llama.cpp's name of the projector
	File   string         `json:"file"`
	Layers int            `json:"layers"`
	Width  int            `json:"width"`
	Row    int            `json:"row"` // numbers of a row for the text
	Patch  int            `json:"patch"`
	Side   int            `json:"side"`                 // patches along a row's block
	Image  int            `json:"image_size,omitempty"` // pixels along the side, as the settings say
	Tokens map[string]int `json:"tokens"`               // of pictures by their sizes
}

// shownSizes are the sizes of pictures whose tokens are counted.
var shownSizes = [][2]int{{224, 224}, {640, 480}, {1920, 1080}}

// describeTower returns nil without a part for pictures.
func describeTower(t *checkpoint.Tower) (*towerFacts, error) {
	if t == nil {
		return nil, nil
	}
	m, err := vision.Open(t, nil, "") // nothing is computed
	if err != nil {
		return nil, err
	}
	sight := m.Sight()
	f := &towerFacts{Kind: t.Kind.Name, File: t.Path, Layers: t.Values.Int("num_hidden_layers"),
		Width: t.Values.Int("hidden_size"), Row: m.Width, Patch: sight.Patch, Side: sight.Side,
		Image: t.Values.Int("image_size"), Tokens: map[string]int{}}
	for _, s := range shownSizes {
		p, err := m.Prepare(&image.Image{Width: s[0], Height: s[1], Pix: make([]byte, 3*s[0]*s[1])})
		if err != nil {
			return nil, err
		}
		f.Tokens[sizeName(s)] = p.Rows
	}
	return f, nil
}

// sizeName writes a picture's size.
func sizeName(s [2]int) string { return fmt.Sprintf("%dx%d", s[0], s[1]) }

func (f *towerFacts) write(w io.Writer) {
	fmt.Fprintf(w, "pictures\t%s, %s of %d, in %s\n", f.Kind, count(f.Layers, "layer"), f.Width,
		oneLine(filepath.Base(f.File)))
	if f.Image > 0 {
		fmt.Fprintf(w, "image size\t%d\n", f.Image)
	}
	fmt.Fprintf(w, "patch\t%d pixels, %dx%d of them a token\n", f.Patch, f.Side, f.Side)
	fmt.Fprintf(w, "tokens\t")
	for i, s := range shownSizes {
		if i > 0 {
			fmt.Fprint(w, ", ")
		}
		fmt.Fprintf(w, "%d of a picture of %s", f.Tokens[sizeName(s)], sizeName(s))
	}
	fmt.Fprintln(w)
}
