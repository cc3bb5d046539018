package family

// Expect describes all models of a family, for judging files that run.
type Expect struct {
	Parts, Lacks []Part      // tensors that identify the family in a file with the wrong key
	Tied         bool        // the head is always the embedding
	Theta        bool        // some models have the rotary base that readers assume, 10000
	Eps          []float64   // of the norms; empty for 1e-6
	Softcap      float64     // softcap of the logits, where the family has a key for it
	CapsVary     bool        // only models of published shapes have the softcap
	Unwindowed   bool        // with Periodic: in some models no layer slides
	Published    []Published // known shapes
	Scaled       *Scaled
	Turns        []Turns
	TurnsAsText  bool // the converter marks the tokens that end turns as text
	Assumed      []Assumed
}

// Part is a tensor of a layer: the ends of its names in both formats.
type Part struct{ GGUF, HF string }

// Parts that identify several families.
var (
	QKNorm   = Part{"attn_q_norm", "q_norm"}
	PostNorm = Part{"post_ffw_norm", "post_feedforward_layernorm"}
	QKVBias  = Part{"attn_q.bias", "q_proj.bias"}
	OBias    = Part{"attn_output.bias", "o_proj.bias"}
	Router   = Part{"ffn_gate_inp", "mlp.gate"}
	Scalar   = Part{"layer_output_scale", "layer_scalar"}
)

// Published is the shape of a published model: layers, width, and number of layers sharing keys and values.
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
	Only  bool // no other family's models have these tokens
}

// Assumed is a reader's guess for an absent key of GGUF: an entry of the checker's catalogue.
type Assumed struct{ Key, ID, What, Means, Fix string }
