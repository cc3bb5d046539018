// Package cause is the catalogue of causes of wrong logits: for each cause a stable
// ID, its meaning, where it was met, and how it is fixed.
package mistake

// Kind is the class of a cause.
type Kind string

// The kinds.
const (
	Input      Kind = "input"      // the engine was given other tokens
	Weights    Kind = "weights"    // a weight was read wrongly
	Structural Kind = "structural" // an operation computes something else
	Numeric    Kind = "numeric"    // only rounding differs
	Instrument Kind = "instrument" // the probe is broken, not the engine
)

// Cause is one entry of the catalogue.
type Cause struct {
	ID       string `json:"id"`
	Kind     Kind   `json:"kind"`
	Op       string `json:"op"`                // the graph's operation that it sits in; "" where it may be any
	Sentence string `json:"sentence"`          // what the engine does
	Numbers  []int  `json:"numbers,omitempty"` // in the list of 56 known faults that the catalogue was made from
	Story    string `json:"story,omitempty"`   // where it was met, with the source
	Fix      string `json:"fix"`               // what to change in the engine
}

// All is the catalogue, in the order of accusation. The caller must not change it.
func All() []Cause { return catalogue }

// catalogue is all causes.
var catalogue = concat(input, weights, operations, blocks, vectors, numeric, instrument)

func concat(lists ...[]Cause) (all []Cause) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// Find is the cause of an ID.
func Find(id string) (Cause, bool) {
	for _, c := range catalogue {
		if c.ID == id {
			return c, true
		}
	}
	return Cause{}, false
}

var input = []Cause{
	{"input_ids", Input, "Embed", "The engine was given other token ids than the tokenizer makes of the text.", []int{4, 6},
		"merges in a format that was silently not read gave 39 tokens for 15 (DOPPLER 2026-01-19); special tokens split into pieces (sglang #3427)",
		"Compare the ids with the tokenizer's and mend merges, pre-tokenizer or special tokens before looking at any number."},
	{"input_bos", Input, "Embed", "The beginning-of-sequence token is missing, or there twice.", []int{1, 2, 3},
		"missing: TransformerLens #1418, unsloth PR #10312; twice: llama-cpp-python #1501, vLLM PR #16976, InfiniLM #388; the flag lost in conversion: llama.cpp #3966 #6947",
		"Write BOS once: leave it out if the template writes it, and add it wherever add_bos_token is set."},
	{"input_template", Input, "Embed", "A chat template was applied to raw text, left out of a chat, or another one was used.", []int{5},
		"one side of a comparison had the template applied to a raw prompt (DOPPLER 2025-12-18)",
		"Render chats with the model's own template, and raw text with none."},
}

var weights = []Cause{
	{"weight_transposed", Weights, "Linear", "The bytes of a matrix are read as those of its transpose.", []int{44},
		"Gemma 4's per-layer projection, stored in BF16, was read transposed (Ember's post, Ember cbd88cb)",
		"Read the matrix as [out, in], row after row, and multiply by its transpose once."},
	{"weight_permuted", Weights, "Linear", "The rows of a projection are in another order: as for the other style of rope, or with heads exchanged.", []int{22},
		"the query and key permutation was skipped on one load path: perplexity 44 became 4419 (llama.cpp PR #22611)",
		"Permute the query and key rows exactly where the file's convention differs from the rope kernel's, on every load path."},
	{"weight_wrong_layer", Weights, "Linear", "A layer uses the weight of another layer.", nil,
		"an index that is off by one gives a tensor of the same shape, so that no check by shape sees it",
		"Bind the tensor of this layer's own number."},
	{"weight_layout", Weights, "Linear", "Rows are read at wrong offsets: blocks packed across rows taken for padded rows, or the reverse.", []int{45, 47},
		"packed instead of row-wise Q4_K where K is no multiple of 256 (DOPPLER 2025-12-18)",
		"Start each row at row · ceil(K/block) blocks, and let no block cross a row's end."},
	{"weight_scale", Weights, "Linear", "Block scales or minimums are decoded wrongly: a factor, a sign, or sub-blocks whose scales are unpacked from other bits.", []int{46},
		"the sign of Q4_K's minimum and the packing of its scales (DOPPLER 2025-12-16)",
		"Decode as d·scale·q minus dmin·min, with the scales of sub-blocks 4 to 7 from their split bits; compare one block with a scalar decoder."},
	{"weight_missing", Weights, "Linear", "A weight was never loaded and is all zeros.", []int{14, 10, 47},
		"a map of weight names dropped the base norms (kekzl/imp PR #65); only a part of a tensor was covered by a dispatch (Doppler 2025-12-20)",
		"Load the tensor; make a name that is missing or left over an error."},
}

var numeric = []Cause{
	{"numeric_activations", Numeric, "Linear", "Products round their activations: to 8-bit integers in blocks, to bfloat16, to half precision.", []int{18, 51},
		"(1+w) made in bfloat16 (vLLM PR #3653); 8-bit activations move tiny-gemma4's logits by a KL of 2e-2, and its wide norms are why",
		"Nothing is wrong; for closer logits keep activations in 16 bits or float32."},
	{"numeric_kv", Numeric, "StoreKV", "Keys and values are kept in half precision or bfloat16.", nil,
		"the usual choice of every engine",
		"Nothing is wrong; for closer logits keep keys and values in float32."},
	{"numeric_gelu", Numeric, "GLU", "GELU is read from a table in half precision, or approximated otherwise.", nil,
		"llama.cpp's table moves Gemma's logits by up to 7e-3",
		"Nothing is wrong; for closer logits compute tanh in float32."},
	{"numeric_accumulation", Numeric, "Linear", "Sums run in another order or in less precision, or constants are rounded to another type.", []int{8},
		"the root of the hidden size rounded in another type (ScaleLLM PR #126, HF PR #29402)",
		"Nothing is wrong; for closer logits add up in float32, and round constants as the reference does."},
}

var instrument = []Cause{
	{"probe_dtype", Instrument, "", "The dump names another element type than its bytes have.", []int{53},
		"a buffer of float16 was read as float32 (DOPPLER 2026-01-19)",
		"Write the buffer's own element type into the dump."},
	{"probe_prefix", Instrument, "", "Only the first values of a vector were read; the rest is zero or padding.", []int{54},
		"hidden states looked too small for days through a probe of 64 of 1152 values (DOPPLER 2025-12-18); pool padding (Doppler 2025-12-17, 2025-12-30)",
		"Read as many values as the tensor's shape says."},
	{"probe_stale", Instrument, "", "The dump shows another prompt's or an earlier step's values.", []int{9, 52},
		"a buffer read before its kernel ran (DOPPLER 2025-12-21), or released while in flight (Doppler 2025-12-31, 2026-01-03)",
		"Copy the values when the operation has run and before the buffer is used again."},
	{"probe_duplicate", Instrument, "", "Several taps show one tap's values.", []int{55},
		"a captured graph dumped one buffer for all layers (imp PR #1275); a silent fall-back to the final state (Ember's CHANGELOG)",
		"Take each layer's own buffer, and check that no two dumps are equal."},
	{"probe_rows", Instrument, "", "The dump's rows are shifted, reversed, or labelled with wrong positions.", nil,
		"the last layer's rows are pruned to the outputs in llama.cpp, so that row 0 is not position 0",
		"Write each row's own position, and record all positions."},
	{"unknown", Structural, "", "An operation computes something that no cause here explains.", nil, "",
		"Run this operation alone on the dump's inputs: its output differs from the model's."},
}
