// Package family describes a family of models to the rest of the program:
// its keys in both file formats, the converters' changes to its tensors, a
// checker's expectations. A Family is a value; internal/arch/NAME/family.go holds
// one for each, and internal/registry lists them. The packages that read and
// write files interpret such values and know no family by name.
//
// A setting is named by its canonical name, which is transformers' key of
// config.json, and has the types of encoding/json: float64, string, bool, []any
// and map[string]any.
package family

import "slices"

// Family is one architecture and its habits. The zero value of a field is the
// usual case.
type Family struct {
	Name  string // GGUF's general.architecture, and the folder's name
	Title string // as messages write it
	Model Model  // what runs: Of(New)

	Types  []Type         // of config.json; the first that suits a model is written
	Fixed  map[string]any // settings that GGUF has no key for, as all models have them
	Absent map[string]any // settings that readers of GGUF assume where the key is absent
	Idle   []string       // settings that config.json may have and that change nothing

	// FromConfig brings a config.json into the form that Config reads and GGUF can hold, and reports its faults. ToConfig
	// is the inverse. FromGGUF adds settings that follow from GGUF's keys and tensors; ToGGUF changes settings before keys
	// are made of them. nil is nothing.
	FromConfig func(s Settings, f *File)
	ToConfig   func(s Settings)
	FromGGUF   func(s Settings, f *File)
	ToGGUF     func(s Settings)

	Layers   Layers  // with Listed
	Limits   []Limit // of settings that no other family has
	Rope     Rope
	Spelling map[string][]string // config.json's own names of settings, where they are others; the first is written
	Without  []string            // settings that other families must have and this one has not

	Keys   []Key             // of GGUF besides those of every family, as converters order them
	Held   map[string]string // settings that are true where the file holds the tensor, or one in any layer whose name ends so
	Habits []Habit           // what converters to GGUF do to tensors
	Bare   []string          // ends of names of tensors, in either format, that take no .weight

	// Rename returns the model's name of a folder's tensor, or "" for one that holds no weights; has reports whether the
	// folder has a tensor.
	Rename func(name string, has func(string) bool) string

	Tokenizer Tokenizer
	Expect    Expect
	Seventy   func(layers, group int) bool // whether llama-quantize takes a model for one of 70 B
}

// Type is a model_type of config.json.
type Type struct {
	Name     string
	Root     string         // the name in its files of the module that the embedding is in, where it is another than the tag says
	Class    string         // transformers' class of the text model; "" for a type that is only read
	Ranks    bool           // GGUF files with a reranker's whole head are written as this type, and no others
	Padded   bool           // positions count from the row behind the padding token's, pad_token_id
	Defaults map[string]any // what transformers assumes of keys that the file leaves out
	Only     map[string]any // settings that a model of another type has otherwise
	Window   Window
	Period   int      // of full layers, where the file does not say (Periodic)
	LastFull bool     // the last layer is full whatever the file says (Periodic)
	If       string   // the setting that is true in models of this family alone, where others have the type, too
	Lacks    []string // settings of the family that this type does not have
	Needs    []string // settings that all its models have: it is not written without
}

// Window says which layers see only a window.
type Window uint8

// The ways of windows.
const (
	NoWindow      Window = iota // no layer slides, and sliding_window is not read
	Everywhere                  // all layers slide
	FromLayer                   // where use_sliding_window is true: from layer max_window_layers on
	Periodic                    // all but every n-th: layer_types, or sliding_window_pattern
	PeriodicFirst               // likewise, and the period begins with the full layer
	Listed                      // no layer slides; layer_types says what each does (Kinds), all LinearAttention where it is absent
)

// The kinds of layers, as layer_types and rope_parameters have them; all but the second with Listed. In GGUF attention.head_count_kv is 0
// for layers without attention, and feed_forward_length for layers that are no MLP, where the
// family has such kinds.
const (
	FullAttention    = "full_attention"
	SlidingAttention = "sliding_attention"
	LinearAttention  = "linear_attention" // a convolution and a scan
	MLPAlone         = "mlp"
	ExpertsAlone     = "moe"
)

// Layers say what layers may do, with Listed.
type Layers struct {
	Kinds map[string]string // config.json's names of kinds of layers, the canonical ones among them

	// Older returns the kind of each layer as an older setting says it, and the setting; nil where the file has none.
	Older func(s Settings, f *File) (types []any, key string)
}

// Rope is what a family assumes of rotation.
type Rope struct {
	Full    map[string]any // of full layers, where the file does not say
	Sliding map[string]any // likewise of sliding ones; nil where all layers turn alike
	Local   string         // config.json's older key of the sliding layers' base
	ByKind  bool           // config.json has settings by kind of layer, or none
	Yarn    bool           // full layers may be of type yarn, which GGUF then has keys for; sliding ones turn at the same base
	Fixed   map[string]any // settings of a yarn that GGUF has no key for, as all models have them
	Long    bool           // they may be of type longrope: two lists of divisors, which GGUF has as tensors
	With    []string       // settings of the family that config.json has among the rotary ones
	Silent  bool           // GGUF says the base only where it is not 10000
	Switch  string         // GGUF's key that is false in models whose queries and keys do not turn
}

// Kind is what GGUF's key holds.
type Kind uint8

// The kinds of keys.
const (
	Count      Kind = iota // a setting, as uint32
	Number                 // a setting, as float32; left out where it is 0
	FullDim                // the head size of full layers
	SlidingDim             // that of sliding layers
	Turning                // the leading features of a head that turn: partial_rotary_factor of its size
	Period                 // the period of full layers, or a flag for each layer; assumed where it is absent
	Flags                  // a flag for each layer: whether it slides
	Word                   // Text
	Truth                  // a setting that is true or false; left out where it is false
	Choice                 // a setting that is one of Words, as its index
	Product                // a setting times the setting Of, as uint32
	Switch                 // whether a setting is Text: true where the key is absent
	Interval               // every so many layers of those Listed one is full; the first type's Period where the key is absent
	Never                  // false, whatever the model
	Sections               // a list of three numbers, with a 0 behind it
	Multiplier             // mscale_all_dim of yarn, where mscale is 1
	NextLayers             // how many layers behind the last predict further tokens: these are set aside, and never written
	Experts                // a setting without a key in GGUF: true where there are experts

	// Rank is a Count: the size of the one latent that keys and values are products of. The other sizes are
	// qk_nope_head_dim, qk_rope_head_dim and v_head_dim.
	Rank
)

// Key is a key of GGUF metadata.
type Key struct {
	GGUF    string // behind the architecture's prefix; "" for a setting whose key all families share
	Setting string // Count and Number
	Kind    Kind
	Text    string // of a Word or a Switch
	Of      string // of a Product
	Words   []string
	Scale   *Scale // of attention: GGUF has 1/√x of the setting x
	Nil     bool   // 0 in a file is as if the key were absent
	Unusual bool   // written only where readers would assume something else: Absent or Derived says what
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
	OrZero // allowed too, below Min
)

// Limit says what the number of a setting may be.
type Limit struct {
	Key      string
	Min, Max float64
	Rule     Rule
}

// Habit is what a converter does to tensors on the way from config.json's format to GGUF.
// The same value undoes it on the way back. Tensors that both formats hold fused, as one
// of queries, keys and values, need none: they are one weight of the model.
type Habit struct {
	Ends   []string                            // of GGUF's names, without .weight
	Heads  string                              // the setting that counts the heads whose rows are permuted for interleaved rotation
	Plus   float32                             // added to every value
	Padded bool                                // GGUF leaves out the rows up to the padding token's, where the type has them
	Turned bool                                // matrices are transposed: config.json's format has them as [in, out], but where they have blocks
	Joined string                              // the module that lists the parts which GGUF holds as one: mlp.experts, of mlp.experts.3.up_proj
	Times  func(s Settings, row int) []float64 // multipliers of a row, which GGUF has in its values, one after the other; nil for none
	NegExp bool                                // GGUF has -e^x of the logarithm x
	Form   Form                                // how the formats differ in the shape
	Groups string                              // the setting that counts the rows of a Grouped tensor
	Tiled  *Tiled                              // rows of heads, the last of a tensor, or its columns, are in another order

	// Woven names, in config.json's format, a tensor whose rows are by turns those of Ends' tensors,
	// and these as the model has them: gate_up_proj, gate_proj, up_proj.
	Woven []string
	Runs  bool // and not by turns, but one after another
}

// Tiled is heads that share groups: in config.json's format those of a group lie together, in
// GGUF the first of each group, then the second ones. Its fields are settings.
type Tiled struct {
	Groups, Heads string
	Size          string // rows or columns of a head; "" for one
	Columns       bool   // the model has GGUF's order, since blocks of columns cannot be exchanged
}

// Form is how the two formats have the same values in another shape.
type Form uint8

// The forms.
const (
	Same      Form = iota
	Column         // a vector is [n, 1] in GGUF
	Grouped        // a vector is [groups, n/groups] in GGUF
	Depthwise      // a convolution of each channel alone is [channels, 1, kernel] in config.json's format, [channels, kernel] in GGUF
	Row            // a matrix of one row, which is no part of the graph, may be a vector in GGUF
)

// Tokenizer is how a family writes its tokenizer in GGUF.
type Tokenizer struct {
	Model, Pre string
	Merged     bool // a vocabulary with spaces as "▁" comes with merges, not with scores
	BOS        bool // texts begin with one
	End        bool // a token ends each text
	Strips     bool // special tokens take the white space after them, in a vocabulary of SentencePiece
}

// Shares reports whether models of f and g have a type in common, and so may have each
// other's classes.
func (f *Family) Shares(g *Family) bool {
	return slices.ContainsFunc(f.Types, func(t Type) bool {
		return slices.ContainsFunc(g.Types, func(u Type) bool { return t.Name == u.Name })
	})
}

// Lacks reports whether f's models do without a setting that others must have.
func (f *Family) Lacks(setting string) bool { return slices.Contains(f.Without, setting) }

// Encodes reports whether f's models make vectors, and generate nothing.
func (f *Family) Encodes() bool {
	return f.KeyOf(Never) == "attention.causal" || f.Fixed["use_bidirectional_attention"] == true
}

// Uses reports whether one of f's keys holds the setting.
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

// KeyOf returns f's key of a kind, "" where it has none.
func (f *Family) KeyOf(kind Kind) string {
	for _, k := range f.Keys {
		if k.Kind == kind {
			return k.GGUF
		}
	}
	return ""
}

// Periodic reports whether every so many layers one is full.
func (f *Family) Periodic() bool { return f.Windows() == Periodic || f.Windows() == PeriodicFirst }

// Partial reports whether only a part of a head's features may turn.
func (f *Family) Partial() bool {
	return f.KeyOf(Turning) != ""
}

// Latent reports whether keys and values are products of one latent.
func (f *Family) Latent() bool { return f.KeyOf(Rank) != "" }

// Next returns the setting that counts the layers behind the last, "" where the family has none.
func (f *Family) Next() string { return f.settingOf(NextLayers) }

// settingOf returns the setting of f's key of a kind, "" where it has none.
func (f *Family) settingOf(kind Kind) string {
	for _, k := range f.Keys {
		if k.Kind == kind {
			return k.Setting
		}
	}
	return ""
}

// Mixes reports whether a model with these settings has experts, in a family of which some models have none.
func (f *Family) Mixes(s Settings) bool {
	if flag := f.settingOf(Experts); flag != "" {
		return s[flag] == true
	}
	return f.Model.Reads("num_experts") && s.Number("num_experts") > 0 && !f.Uses("num_experts")
}

// Windows returns the rule of f's layers: its last type's, which reads the most.
func (f *Family) Windows() Window {
	if len(f.Types) == 0 {
		return NoWindow
	}
	return f.Types[len(f.Types)-1].Window
}
