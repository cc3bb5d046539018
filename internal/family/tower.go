package family

import (
	"math"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// Tower describes the part of a model that sees: a graph from the patches of a picture to rows for the text's part.
type Tower struct {
	Name     string         // clip.projector_type of llama.cpp's files
	Types    []string       // model_type of config.json
	Model    Model          // its New returns an Eye
	Defaults map[string]any // transformers' defaults

	Image  string    // text of a picture in a prompt made by a chat template, before it becomes Marks
	Around [2]string // text before and behind Image, if the template writes them
	Marks  func(v View) []Mark
	Padded bool // rows have token 0, the padding, in tables by layer

	Projector Projector
	Folder    Folder
}

// Projector is how llama.cpp's files of a tower, of the type mmproj, differ from config.json's format.
// (conversion/*.py and tools/mtmd/clip.cpp)
type Projector struct {
	Keys map[string]string // settings by keys behind clip.vision., beside all towers' settings

	// Read adds the settings that follow from the keys' and from the shapes of tensors; nil for none.
	Read func(s Settings, shape func(tensor string) []int)

	Times    bool   // patches have a tensor for each of two times
	Apart    bool   // queries, keys and values are three tensors
	Permuted bool   // rows of queries and keys are permuted for neighbouring pairs
	Plus     string // tensor with 1 added to its values
	Last     bool   // config.json's format has a patch's numbers by row, column and channel

	// Processor returns a preprocessor_config.json of the publisher's, apart from mean and deviation.
	Processor func(s Settings) map[string]any

	Order []string // keys behind all towers' keys, as the converter writes them
	Half  string   // tensor in F16 whatever the file's type

	// Write is the inverse of Read, for settings of keys in Order and for image_size. processor is
	// preprocessor_config.json.
	Write func(s, processor Settings)
}

// ActKey stands in Projector.Order for the key of the activation.
const ActKey = "hidden_act"

// Folder is how config.json's format has models with a tower.
type Folder struct {
	Forms    []Composite       // by the text's part
	Vision   string            // model_type of vision_config; "" for none
	Inner    map[string]string // names in vision_config of settings, by canonical names; the same name without an entry
	Settings []string          // canonical names of the settings in vision_config
	Outer    map[string]string // names outside of vision_config of settings, by canonical names
	Tokens   map[string]string // tokens, by the keys of their ids
	Prefixes [][2]string       // beginnings of tensors' names: in the newest layout, and in files; the first that fits
	Bare     []string          // endings of tensors' names without .weight, in both formats
}

// Composite is a type of model with a tower, by the architecture of its text's part.
type Composite struct {
	Arch, Type, Class string
	Text              string         // model_type of text_config; "" for the text's own
	Rope              map[string]any // settings of rotary positions beside their sections; nil without sections
}

// Eye is a model of a tower, whose rows are patches.
type Eye interface {
	Forwarder
	Sight() Sight
}

// Sight is how a tower takes pictures. The patches of a block lie together, by rows, and become one row. A row of the
// output is as wide as the text's rows, or a multiple: the further parts are for the text's first layers.
type Sight struct {
	Patch    int     // pixels along a patch
	Side     int     // patches along a block
	Window   int     // blocks along a window of patches seeing each other in some layers; 0 for none
	By, Less float32 // a pixel's number x becomes By·x - Less; By 0 is x
}

// View is a picture as a tower's output has it.
type View struct {
	Tiles      []graph.Grid // rows of the output, by tile
	Rows, Cols int          // of the tiles that are parts of the picture; 0 for a single tile
}

// Mark is a part of a picture in a prompt: text, or rows of the output.
type Mark struct {
	Text     string
	From, To int
}

// Enclose returns the marks of a picture whose rows lie between two texts, perhaps empty.
func Enclose(before, after string) func(View) []Mark {
	return func(v View) []Mark {
		var m Marks
		m.Write(before)
		for _, g := range v.Tiles {
			m.Show(g.Height * g.Width)
		}
		m.Write(after)
		return m.List
	}
}

// Marks builds a list of marks.
type Marks struct {
	List []Mark
	rows int
}

// Write adds texts.
func (m *Marks) Write(texts ...string) {
	if text := strings.Join(texts, ""); text != "" {
		m.List = append(m.List, Mark{Text: text})
	}
}

// Show adds the next n rows.
func (m *Marks) Show(n int) {
	m.List, m.rows = append(m.List, Mark{From: m.rows, To: m.rows + n}), m.rows+n
}

// Root returns the side of a square of n, 0 if n is no square.
func Root(n int) int {
	side := int(math.Round(math.Sqrt(float64(n))))
	if n < 0 || side*side != n {
		return 0
	}
	return side
}
