package family

// Expect is what all models of a family have. It judges files that run.
type Expect struct {
	Parts, Lacks []Part      // tensors that only this family has together, or is without: a file with the wrong key is known by them
	Tied         bool        // the head is always the embedding
	Theta        bool        // some models have the rotary base that readers assume, 10000
	Eps          []float64   // of the norms; empty for 1e-6
	Softcap      float64     // of the logits, where the family has a key for it
	CapsVary     bool        // only models of published shapes have that cap
	Unwindowed   bool        // with Periodic: in some models no layer slides
	Published    []Published // shapes that are known
	Scaled       *Scaled
	Turns        []Turns
	TurnsAsText  bool // the converter calls the tokens that end turns text
	Assumed      []Assumed
}

// Part is a tensor of a layer: the ends of its names in both formats.
type Part struct{ GGUF, HF string }

// Parts by which several families are known.
var (
	QKNorm   = Part{"attn_q_norm", "q_norm"}
	PostNorm = Part{"post_ffw_norm", "post_feedforward_layernorm"}
	QKVBias  = Part{"attn_q.bias", "q_proj.bias"}
	OBias    = Part{"attn_output.bias", "o_proj.bias"}
	Router   = Part{"ffn_gate_inp", "mlp.gate"}
	Scalar   = Part{"layer_output_scale", "layer_scalar"}
)

// Published is a published model: how many layers, how wide, and how many of its
// layers share the keys and values of others.
type Published struct{ Layers, Hidden, Shared float64 }

// Scaled is a rotary base whose models, beyond a context, scale the frequencies.
type Scaled struct {
	Theta   float64
	Context int
	Whose   string
}

// Turns are the marks of a chat template.
type Turns struct {
	Name  string
	Marks []string
	Only  bool // no other family's models have them
}

// Assumed is what a reader has to guess where a key of GGUF is absent: an entry of
// the checker's catalogue.
type Assumed struct{ Key, ID, What, Means, Fix string }

// Synth are the sizes in which models of random weights are made.
type Synth struct {
	RopeFreqs, QKNorm, LayerScale bool               // tensors that its files have
	Norms                         []string           // of a layer, of the model's width; nil for the usual ones
	Numbers                       map[string]float64 // settings of keys that the shapes do not say
	Keys                          map[string]any     // other keys, behind the architecture's prefix, in the types of GGUF
	Learned                       bool               // learned positions, LayerNorms, biases, one tensor of queries, keys and values, no gate
	Apart                         bool               // experts alone, whose gates and ups are two tensors
	Biased                        []string           // weights and norms that have biases
	Paired                        bool               // gate and up are one tensor, ffn_up
	Ungated                       bool               // the MLP has no gate
	WideNorms                     bool               // norms of queries and keys are those of all heads together
	Sinks                         bool               // a score for each head that attention leaves room for
	Alone                         bool               // each layer has one norm and one part
	Unnormed                      bool               // scans have no norm
	Short                         bool               // what patterns call scans are short convolutions
	Delta                         bool               // they are gated delta rules, and queries have gates
	Scored                        bool               // the MLP beside experts has a gate of its own
	Behind                        bool               // norms come behind what they follow; with Learned, and kinds of texts are learned, too
	EmbedNorm                     bool               // the embedding has a norm, in whose place the first layer has none
	Head                          bool               // the output is a tensor of its own, not the embedding
	Last                          string             // the last norm's name; "" for output_norm
	Fused                         bool               // one tensor of queries, keys and values
	Shapes                        []Shape
}

// Shape is the sizes of a model. Some differ between layers that see all and
// the layers with a window.
type Shape struct {
	Name                           string
	Hidden, Layers, Heads, KVHeads int
	HeadDim, FF, Vocab, Context    int
	Window, Every                  int // every so many layers, one sees all
	FullDim, FullKV                int // of those layers
	Shared, PerLayer               int // layers without keys of their own; inputs for each layer
	Experts, Used, ExpertFF        int
	Dense, CommonFF                int    // layers before the first with experts; the width of the MLP beside experts
	Turning                        int    // the features of a head that turn; 0 for all
	Rank, Plain, Value             int    // of latents: their size, and the sizes of a head's other parts
	Pattern                        string // by layer, over and over: M is a scan, * attention, B both, E experts alone; "" for attention everywhere
	ScanHeads, ScanDim             int
	Groups, State, Kernel          int // of scans
	RopeBase, Epsilon              float32
}
