// Package family describes a family of models to the rest of the program: its keys in both file formats, the
// converters' changes to its tensors, a checker's expectations. A Family is a value; internal/arch/NAME/family.go holds
// each family's, and internal/registry lists them. The packages that read and write files interpret such values without
// knowing any family by name.
//
// A setting is named by its canonical name, transformers' key of config.json, and has the types of encoding/json:
// float64, string, bool, []any and map[string]any.
//
// Files in reading order: family.go, expect.go, wiring.go, next.go, part.go, model.go, scan.go, settings.go.
package family

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Family describes an architecture. The zero value of a field is the usual case.
type Family struct {
	Name  string // GGUF's general.architecture, and the folder's name
	Title string // name in messages
	Model Model  // maker of the runnable model: Of(New)

	Types  []Type         // types of config.json; the first that suits a model is written
	Fixed  map[string]any // settings without a key in GGUF, equal in all models
	Absent map[string]any // settings that readers of GGUF assume for absent keys
	Idle   []string       // settings of config.json without effect

	// FromConfig brings a config.json into the form that Config reads and GGUF can hold, and reports its faults.
	// ToConfig is the inverse. FromGGUF adds settings that follow from GGUF's keys and tensors; ToGGUF changes settings
	// before keys are made of them. A nil hook does nothing.
	FromConfig func(s Settings, f *File)
	ToConfig   func(s Settings)
	FromGGUF   func(s Settings, f *File)
	ToGGUF     func(s Settings)

	Layers   Layers  // with Listed
	Limits   []Limit // of settings that no other family has
	Rope     Rope
	Spelling map[string][]string // config.json's names of settings, where not canonical; the first is written
	Without  []string            // settings absent here that other families must have

	Keys    []Key               // additional keys of GGUF, in the order of converters
	Held    map[string]string   // settings that are true if the file holds the tensor, or .NAME in a layer
	Habits  []Habit             // converters' changes to tensors on the way to GGUF
	Numbers map[string]PerLayer // by GGUF's key: settings that list a number of each layer

	Bare []string // ends of names of tensors, in either format, without .weight

	// Ahead has the names, in a folder, of the modules of a layer behind the last, where no layer has them: mtp.fc for
	// eh_proj. The layer's other modules are in Ahead[""].
	Ahead map[string]string

	// Synonyms has the ends of names, without .weight, that MLX and programs for quantization write into folders, and
	// the model's ends.
	Synonyms map[string]string
	Shifted  []string // ends of names of norms to which MLX's converter adds 1
	// Rename returns the model's name of a folder's tensor, or "" for a tensor without weights; has reports whether the
	// folder has a tensor.
	Rename func(name string, has func(string) bool) string

	Tokenizer Tokenizer
	Expect    Expect
	Seventy   func(layers, group int) bool // whether llama-quantize counts a model as one of 70 B
	Frugal    bool                         // llama-quantize has the head in Q8_0, and spares bits elsewhere

	// Coarse returns the mean KL of a small model with keys and values in 8 bits, for models like s, if above
	// MostCoarse; else 0. Nil is 0.
	Coarse func(s Settings) float64
}

// MostCoarse is the maximum of a mean KL, by which keys and values in 8 bits may move a family's small models.
const MostCoarse = 1e-3

// Type is a model_type of config.json.
type Type struct {
	Name     string
	Root     string         // name in the files of the embedding's module, where it differs from the tag
	Class    string         // transformers' class of the text model; "" for a type that is never written
	Ranks    bool           // exactly the GGUF files with a reranker's whole head are written as this type
	Padded   bool           // positions count from the row behind the padding token's, pad_token_id
	Defaults map[string]any // transformers' defaults for keys that the file leaves out
	Only     map[string]any // settings with other values in models of other types
	Window   Window
	Period   int  // of full layers, where the file does not say (Periodic)
	LastFull bool // the last layer is full whatever the file says (Periodic)
	// FirstFull says that the first layer is full as well where the file does not say (Periodic).
	FirstFull bool
	If        string   // setting that models of this family alone have, not false, if other families have the type
	Lacks     []string // settings of the family absent from this type
	Needs     []string // settings of all models of the type: without these it is not written
}

// Window is the rule for the layers with a window.
type Window uint8

// The ways of windows.
const (
	NoWindow      Window = iota // no layer slides, and sliding_window is not read
	Everywhere                  // all layers slide
	FromLayer                   // where use_sliding_window is true: from layer max_window_layers on
	Periodic                    // all except every n-th: layer_types, or sliding_window_pattern
	PeriodicFirst               // likewise, and the period begins with the full layer
	Listed                      // no layer slides; layer_types lists Kinds, all LinearAttention by default
)

// Layers describes the layers of families with Listed.
type Layers struct {
	Kinds map[string]string // canonical kinds by config.json's names, including the canonical names

	// Older returns the kind of each layer from an older setting, and the setting's name; nil if absent.
	Older func(s Settings, f *File) (types []any, key string)
}

// Rope describes the rotation of a family.
type Rope struct {
	Full    map[string]any // of full layers, where the file does not say
	Sliding map[string]any // likewise of sliding layers; nil where all layers turn alike
	Local   string         // config.json's older key of the sliding layers' base
	ByKind  bool           // config.json has settings by kind of layer, or none
	OneBase bool           // sliding layers turn at the base of full ones
	Fixed   map[string]any // settings of a yarn without a key in GGUF, equal in all models
	With    []string       // settings of the family that config.json has among the rotary settings
	Silent  bool           // GGUF has the base only if it is not 10000
	Switch  string         // GGUF's key that is false in models whose queries and keys do not turn
}

// Kind is the content of a key of GGUF.
type Kind uint8

// The kinds of keys.
const (
	Count      Kind = iota // a setting, as uint32
	Number                 // setting, as float32; left out if 0
	FullDim                // the head size of full layers
	SlidingDim             // head size of sliding layers
	Turning                // number of leading features of a head that turn: partial_rotary_factor of its size
	Period                 // period of full layers, or a flag for each layer; assumed if absent
	Flags                  // flag for each layer: whether the layer slides
	Word                   // Text
	Truth                  // setting that is true or false; left out if false
	Choice                 // index of a setting among Words
	Product                // a setting times the setting Of, as uint32
	Switch                 // whether a setting is Text: true where the key is absent
	Interval               // interval of full layers among Listed; by default the first type's Period
	Never                  // false, whatever the model
	Sections               // list of three numbers, followed by 0
	EachLayer              // setting that lists a number for each layer, as float32, or one of two Words, as a flag
	Multiplier             // mscale_all_dim of yarn, where mscale is 1
	NextLayers             // number of layers in the file, behind the last, predicting further tokens
	Experts                // a setting without a key in GGUF: true where there are experts

	// Rank is a Count: the size of the latent behind keys and values. The other sizes are qk_nope_head_dim,
	// qk_rope_head_dim and v_head_dim.
	Rank
)

// Key is a key of GGUF metadata.
type Key struct {
	GGUF    string // key without the architecture's prefix; "" for a setting whose key all families share
	Setting string // Count and Number
	Kind    Kind
	Text    string // of a Word or a Switch
	Of      string // of a Product
	Words   []string
	Scale   *Scale // of attention: GGUF has 1/√x of the setting x
	Nil     bool   // 0 in a file is as if the key were absent
	Unusual bool   // written only if readers would assume another value, from Absent or Derived
}

// Named returns the word of a flag, the second of Words where true; nil without words.
func (k Key) Named(flag bool) any {
	switch {
	case k.Words == nil:
		return nil
	case flag:
		return k.Words[1]
	}
	return k.Words[0]
}

// Scale tells how GGUF's attention.scale follows from the setting.
type Scale struct {
	Min, Max float64                      // of GGUF's value
	Absent   func(s Settings) (x float64) // the setting where the key is absent
}

// Rule is how strict a Limit is.
type Rule uint8

// The rules.
const (
	Required Rule = 1 << iota
	Whole
	OrZero // 0 is allowed, although below Min
)

// Limit bounds the number of a setting.
type Limit struct {
	Key      string
	Min, Max float64
	Rule     Rule
}

// Habit describes a converter's change to tensors on the way from config.json's format to GGUF. The same value
// describes the way back. Tensors that both formats hold fused, as queries, keys and values, need no Habit: they are a
// single weight of the model.
type Habit struct {
	Ends   []string                            // of GGUF's names, without .weight
	Heads  string                              // number of heads with rows permuted for interleaved rotation
	Halves bool                                // of rows that turn, for rotation of halves, where there are sections
	Plus   float32                             // added to every value
	Padded bool                                // GGUF leaves out the rows up to the padding token's
	Filled string                              // setting with the number of GGUF's rows, of zeros behind the folder's
	Turned bool                                // config.json's format has matrices, except of blocks, as [in, out]
	Joined string                              // module of parts joined in GGUF: mlp.experts, of mlp.experts.3.up_proj
	Times  func(s Settings, row int) []float64 // multipliers of a row, in sequence, part of GGUF's values; nil for none
	NegExp bool                                // GGUF has -e^x of the logarithm x
	Form   Form                                // how the formats differ in the shape
	Groups string                              // setting with the number of rows of a Grouped tensor
	Tiled  *Tiled                              // order of heads' rows, a tensor's last, or of its columns
	Fused  *Fused                              // order of rows of queries, keys and values in one matrix

	// Woven names, in config.json's format, a tensor with the rows of Ends' tensors by turns, and these tensors as the
	// model has them: gate_up_proj, gate_proj, up_proj.
	Woven []string
	Runs  bool // rows are in sequence instead

	// Shares tells how the rows lie by groups instead: each group has so many rows of a part, then of another. In a
	// part the first rows of all groups come before the second rows. Older is GGUF's name of the whole in older
	// files, whose parts are Ends.
	Shares func(s Settings) (groups int, shares []Share)
	Older  string

	// Even names, in config.json's format, tensors whose rows Shares tells. Some folders divide all these rows evenly.
	Even []string
}

// Share is the rows of a group that belong to a part of Woven.
type Share struct{ Part, Rows int }

// Tiled describes heads that share groups: in config.json's format the heads of a group lie together, in GGUF the first
// heads of all groups, then the second heads. Its fields are settings.
type Tiled struct {
	Groups, Heads string
	Size          string // rows or columns of a head; "" for 1
	Columns       bool   // the model has GGUF's order, since blocks of columns cannot be exchanged
}

// PerLayer is a number of a layer, a tensor in config.json's format, by the end of its name in a layer. In GGUF a key
// without the architecture's prefix has the numbers of all layers.
type PerLayer struct {
	End   string
	Shape []int
}

// Fused describes a projection to queries, keys and values: in config.json's format each group has its heads of
// queries, a key and a value; in GGUF and in the model all queries come first, then the keys. Its fields are settings.
type Fused struct{ Heads, Groups string }

// Form is how the two formats have the same values in another shape.
type Form uint8

// The forms.
const (
	Same      Form = iota
	Column         // a vector is [n, 1] in GGUF
	Grouped        // a vector is [groups, n/groups] in GGUF
	Depthwise      // a convolution by channels: [channels, 1, kernel], in GGUF [channels, kernel]
	Lone           // a vector is a matrix of one row, in either format
	Row            // a matrix of one row, outside the graph, may be a vector in GGUF

	// Squeezed is a vector that is [1, 1, n, 1], or a convolution by channels that is [1, channels, 1, kernel] in GGUF;
	// other places of the ones are read.
	Squeezed
)

// Tokenizer describes a family's tokenizer in GGUF.
type Tokenizer struct {
	Model, Pre string
	Merged     bool // a vocabulary with spaces as "▁" comes with merges, not with scores
	BOS        bool // texts begin with BOS
	Mixed      bool // with BOS: in some models only
	End        bool // a token ends each text
	Strips     bool // special tokens take the white space after them, in a vocabulary of SentencePiece
}

// Shares reports whether models of f and g have a type in common, and so may have each other's classes.
func (f *Family) Shares(g *Family) bool {
	return slices.ContainsFunc(f.Types, func(t Type) bool {
		return slices.ContainsFunc(g.Types, func(u Type) bool { return t.Name == u.Name })
	})
}

// Lacks reports whether f's models lack a setting required of others.
func (f *Family) Lacks(setting string) bool { return slices.Contains(f.Without, setting) }

// Encodes reports whether f's models make vectors, and generate nothing.
func (f *Family) Encodes() bool {
	return f.KeyOf(Never).GGUF == "attention.causal" || f.Fixed["use_bidirectional_attention"] == true
}

// Turns reports whether folders have a tensor of matrices outside modules as [in, out].
func (f *Family) Turns(name string) bool {
	turned := slices.ContainsFunc(f.Habits, func(h Habit) bool { return h.Turned })
	return turned && slices.ContainsFunc(f.Bare, func(end string) bool { return strings.HasSuffix(name, end) })
}

// Uses reports whether a key of f holds the setting.
func (f *Family) Uses(setting string) bool {
	for _, k := range f.Keys {
		if k.Setting == setting {
			return true
		}
	}
	return false
}

// Slides reports whether layer i slides where every period-th is full.
func (f *Family) Slides(i, period int) bool {
	if f.Windows() == PeriodicFirst {
		return i%period != 0
	}
	return (i+1)%period != 0
}

// KeyOf returns f's first key of a kind, the zero Key if there is none.
func (f *Family) KeyOf(kind Kind) Key {
	for _, k := range f.Keys {
		if k.Kind == kind {
			return k
		}
	}
	return Key{}
}

// Periodic reports whether full layers are at an interval.
func (f *Family) Periodic() bool { return f.Windows() == Periodic || f.Windows() == PeriodicFirst }

// Partial reports whether only a part of a head's features may turn.
func (f *Family) Partial() bool {
	return f.KeyOf(Turning).GGUF != ""
}

// Latent reports whether keys and values are products of a latent.
func (f *Family) Latent() bool { return f.KeyOf(Rank).GGUF != "" }

// NextKey returns the setting with the number of layers behind the last, "" if there is none.
func (f *Family) NextKey() string { return f.KeyOf(NextLayers).Setting }

// Behind returns the name in the layer behind the last of a folder's tensor in a module apart: of mtp.fc.weight.
func (f *Family) Behind(name string, s Settings) string {
	layers := s.Int("num_hidden_layers")
	for own, module := range f.Ahead {
		rest, ok := strings.CutPrefix(name, module+".")
		switch {
		case !ok || s.Int(f.NextKey()) == 0:
		case own != "":
			return fmt.Sprintf("model.layers.%d.%s.%s", layers, own, rest)
		default:
			layer, rest, _ := strings.Cut(rest, ".")
			if i, err := strconv.Atoi(layer); err == nil && i >= 0 && i < MaxLayers {
				return fmt.Sprintf("model.layers.%d.%s", layers+i, rest)
			}
		}
	}
	return name
}

// Apart returns the name in a module apart, without .weight, of a tensor in the layer behind the last.
func (f *Family) Apart(name string, s Settings) string {
	rest, ok := strings.CutPrefix(name, fmt.Sprintf("model.layers.%d.", s.Int("num_hidden_layers")))
	switch {
	case !ok || f.Ahead == nil:
		return name
	case f.Ahead[rest] != "":
		return f.Ahead[rest]
	}
	return f.Ahead[""] + ".0." + rest
}

// Mixes reports whether a model with these settings has experts, in a family with experts in some models only.
func (f *Family) Mixes(s Settings) bool {
	if flag := f.KeyOf(Experts).Setting; flag != "" {
		return s[flag] == true
	}
	return f.Model.Reads("num_experts") && s.Number("num_experts") > 0 && !f.Uses("num_experts")
}

// Windows returns the rule of f's layers: the last type's, which reads the most.
func (f *Family) Windows() Window {
	if len(f.Types) == 0 {
		return NoWindow
	}
	return f.Types[len(f.Types)-1].Window
}

// TakeSections makes a setting of the sections of rotary positions.
func TakeSections(s Settings, _ *File) {
	for _, key := range []string{"rope_parameters", "rope_scaling"} {
		if p, _ := Object(s[key]); p["mrope_section"] != nil {
			s["mrope_section"] = p.Take("mrope_section")
		}
	}
}

// Seeing returns the family of models with eyes whose part for text is that of f. Their sections of rotary positions
// matter for pictures alone, and so do layers that take features of pictures: both are read, and written for others. A
// folder is written as one of text, f's type. The base of rotation is theta where a config.json has none.
func Seeing(f Family, name string, theta float64, sections []any, types ...Type) Family {
	f.Name, f.Types, f.Rope.Full = name, append(slices.Clip(f.Types), types...), map[string]any{"rope_theta": theta}
	f.Keys = append(slices.Clip(f.Keys), Key{GGUF: "rope.dimension_sections", Setting: "mrope_section", Kind: Sections},
		Key{GGUF: "n_deepstack_layers", Setting: "n_deepstack_layers", Nil: true})
	f.FromConfig = func(s Settings, file *File) {
		TakeSections(s, file)
		s.Say(map[string]any{"mrope_section": sections})
	}
	f.ToConfig = func(s Settings) { // a model of text
		delete(s, "mrope_section")
		delete(s, "n_deepstack_layers")
	}
	return f
}
