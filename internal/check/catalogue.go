package check

import "github.com/karat-run/karat/internal/registry"

// Area is the part of a model that a finding is about.
type Area string

// The areas, in the order of a report.
var areas = []Area{"configuration", "tensors", "values", "text", "source"}

// kind is an entry of the catalogue.
type kind struct {
	area     Area
	severity Severity // the usual one
	title    string
	means    string // for the logits
	fix      string
}

// catalogue holds all that can be found, by ID, with what each family's files leave to
// guess. IDs are stable: programs read them.
var catalogue = withFamilies(map[string]kind{
	"not-loaded": {"configuration", Error, "Karat refuses to load the model",
		"nothing can be said about logits: there are none", "mend what the message names, or convert the model again"},
	"arch-key": {"configuration", Error, "the architecture's key is not that of the tensors",
		"another architecture's equations run on these weights: text is fluent at best, and wrong", "set general.architecture (model_type in config.json) to the model's own, with its keys' prefix"},
	"config-invalid": {"configuration", Error, "a setting has a value that it cannot have",
		"engines refuse the file, or fall back to a default of their own", "convert again, or set the key as the model's config.json has it"},
	"config-unread": {"configuration", Warning, "a setting that changes logits is read by nothing",
		"the model runs as if the setting were not there: the llama3 rope scaling that was parsed and never read left short prompts right and long ones wrong", "check whether the architecture has such a part; a model that needs it is another architecture"},
	"config-default": {"configuration", Note, "settings are missing and defaults hold",
		"right as long as the model was trained with the defaults", "write the keys into the file"},
	"heads": {"configuration", Error, "numbers of heads or their size contradict each other",
		"queries and keys are cut at the wrong places: nothing is left of attention", "set head counts and key_length (head_dim) from the source; the size is not hidden/heads in every family"},
	"layer-pattern": {"configuration", Error, "the pattern of full and sliding layers does not fit the model",
		"layers see too much or too little, with the other kind's rotary base: short prompts are off, long ones lost", "take the pattern from the source's layer_types"},
	"kv-sharing": {"configuration", Error, "layers that share keys and values are not those that lack them",
		"layers attend to another layer's keys: logits are wrong at every position", "set the number of shared layers from the source; sharing goes by a layer's index, never by which tensors are there"},
	"rope-settings": {"configuration", Warning, "rotary settings are implausible",
		"positions turn at the wrong speed: the farther two tokens lie apart the worse", "take base and scaling from the source's rope settings"},
	"rope-freqs": {"configuration", Error, "the divisors of the rotary frequencies are missing or wrong",
		"Llama 3's scaling or Gemma 4's still pairs are lost; short prompts may hide it (perplexity 2916 against 5.5 at 32 k tokens in one case)", "convert again with a converter that writes rope_freqs: divisors from 1 upwards"},
	"norm-eps": {"configuration", Warning, "the epsilon of the norms is not the family's",
		"small activations are scaled otherwise: every logit moves a little", "take rms_norm_eps from the source"},
	"softcap": {"configuration", Warning, "the cap of the logits is missing or not the family's",
		"the ranking stays, probabilities do not: sampling and perplexity are wrong (a cap of 15 for 30: KL 0.9)", "set final_logit_softcapping from the source"},
	"attention-scale": {"configuration", Warning, "the attention scale is implausible",
		"attention is too sharp or too flat in every layer", "set attention.scale (query_pre_attn_scalar) from the source"},
	"activation": {"configuration", Warning, "the activation is not the family's",
		"every feed-forward layer is off", "set hidden_act (hidden_activation) from the source"},
	"context": {"configuration", Warning, "the context length is missing or implausible",
		"logits are right up to there; engines cut prompts, or run beyond what the model knows", "set context_length from the source"},

	"tensor-missing": {"tensors", Error, "the model needs tensors that the file lacks",
		"an engine that goes on without them (a norm that a flag switched off, biases that were not mapped) computes another model", "convert again; the converter's map of names has a hole"},
	"tensor-unused": {"tensors", Error, "the file holds tensors that the architecture has no use for",
		"what they did in training does not happen: a step of the model is missing in the engine, or the key of the architecture is wrong", "find out what the tensors are for before running the model without them"},
	"tensor-contradicts": {"tensors", Error, "a tensor is there although a setting rules it out",
		"either the setting or the tensor is stale; engines choose silently", "make setting and file agree, from the source"},
	"tensor-shape": {"tensors", Error, "a tensor has another shape than the settings say",
		"rows of another head or layer are read, or the file is refused", "convert again; look for heads times head size taken for hidden, transposition, padding"},
	"tied-head": {"tensors", Error, "the output head contradicts whether it is tied to the embedding",
		"all logits are those of another matrix", "tied models have no head of their own, untied ones need theirs: take tie_word_embeddings from the source"},
	"row-blocks": {"tensors", Error, "a tensor's rows are no whole number of blocks",
		"blocks that run on over the ends of rows shift every row but the first; readers of GGUF refuse the file", "quantize row by row, with a type whose blocks divide the rows: Q8_0, Q4_0, Q5_1 or IQ4_NL where 256 does not"},
	"stale-files": {"tensors", Warning, "the folder holds tensor files that the model does not name",
		"a tool that reads all of them gets values of another checkpoint", "remove the files, or write the index again"},
	"tensor-duplicate": {"tensors", Error, "a tensor has the bytes of another one",
		"a layer computes with another layer's weights", "convert again; an index was off by one, or a buffer was used twice"},

	"nan": {"values", Error, "values or scales are not a number",
		"one NaN makes every logit NaN", "convert again from a source that is whole; a scale that is NaN comes from an overflow or from damaged bytes"},
	"inf": {"values", Error, "values or scales are infinite",
		"logits become infinite or NaN", "convert again; values beyond 65504 do not fit F16: use BF16 or F32"},
	"scale-implausible": {"values", Error, "block scales are far off the tensor's others",
		"finite does not mean intact: 32 or 256 weights dwarf all others, and one feature drowns the layer", "the bytes are damaged: compare a checksum, copy or convert again"},
	"scale-sign": {"values", Error, "block scales or minimums have a sign that the format never has",
		"weights come out mirrored or shifted: a minimum that was stored with its sign is subtracted twice", "quantize again; the encoder has the sign of scale or minimum wrong"},
	"value-implausible": {"values", Error, "single values are far off the tensor's others",
		"one weight drowns its row", "the bytes are damaged: compare a checksum, copy or convert again"},
	"block-layout": {"values", Error, "the bytes are not blocks of the tensor's type",
		"the weights are noise", "the data is shifted, cut or of another type: convert again"},
	"row-layout": {"values", Error, "zero blocks recur in another rhythm than the rows",
		"rows were padded to whole blocks and are read as if they were not (or the reverse): every row but the first is shifted", "quantize row by row in the tensor's own width; K % 256 != 0 takes a type with blocks of 32"},
	"dtype-tag": {"values", Error, "the type of the elements is not the one that the header names",
		"F16 read as BF16, or the reverse: the weights are noise", "write the right type; both have two bytes, so that sizes agree"},
	"zero-tensor": {"values", Error, "a tensor is all zeros",
		"its part of the layer does nothing", "convert again; the data was never written"},
	"zero-rows": {"values", Error, "rows of a matrix are zeros",
		"outputs or tokens are switched off: a copy that covered part of the tensor", "convert again"},
	"zero-columns": {"values", Error, "columns of a matrix are zeros",
		"inputs are ignored: the tail of each row was not written", "convert again; look at widths that are no multiple of a tile or block"},
	"zero-blocks": {"values", Error, "single blocks are zeros in a matrix that has none else",
		"pieces of rows are missing", "the bytes are damaged: copy or convert again"},
	"constant-rows": {"values", Error, "rows of a matrix have one value throughout",
		"an output no longer depends on which input is active", "quantize again; a constant row comes from a scale of 0 with a minimum, or from a fill"},
	"repeated-rows": {"values", Warning, "rows of a matrix are there more than once",
		"part of the tensor overwrites another part; harmless only where heads were copied on purpose", "compare with the source: --against"},
	"value-shift": {"values", Error, "a matrix is not centred on zero",
		"every output has a common offset: a minimum was added with the wrong sign, or an offset left in", "quantize again; check the sign of the minimum and the offset of the integers"},
	"layer-outlier": {"values", Error, "a tensor's size is far off that of its siblings in other layers",
		"the layer shouts or is silent", "it is scaled, or holds another tensor's data: convert again"},
	"transposed": {"values", Warning, "a square matrix looks transposed beside its siblings",
		"outputs and inputs are exchanged: the layer's result is noise", "compare with the source: --against; write rows of outputs, [out, in]"},
	"norm-offset": {"values", Error, "norm weights have the offset of 1 twice, or not at all",
		"Gemma 3 scales by 1+w and its GGUF files hold the sum; all others scale by w. Off by one, every layer is twice as loud, or nearly silent", "convert again; the 1 is added once, by the converter to GGUF, and only for Gemma 2 and 3"},

	"tokenizer-broken": {"text", Error, "the tokenizer cannot be made",
		"text becomes other ids than in training, or none", "mend what the message names, or copy the tokenizer's data from the source"},
	"merges-missing": {"text", Error, "merges of the tokenizer are missing",
		"words fall apart into pieces that the model has hardly seen (39 tokens for 15 in one case)", "copy all merges; they are \"a b\" strings in some files and pairs in others"},
	"scores-flat": {"text", Error, "the tokenizer's scores do not order its pieces",
		"text is cut at other places than in training", "copy tokenizer.ggml.scores from tokenizer.model"},
	"token-types": {"text", Warning, "special tokens are typed as text, or text as special",
		"markers fall apart into characters, or text of a user turns into markers", "set tokenizer.ggml.token_type (special in tokenizer.json) to control (3)"},
	"token-ids": {"text", Warning, "the id of a special token is outside the vocabulary",
		"logits are right; engines that look the token up fail or read what is not theirs", "take the id from the source"},
	"special-split": {"text", Error, "the chat template writes markers that are no tokens",
		"turns are spelled out in pieces: the model never sees where one ends", "add the tokens, or use the template of this vocabulary"},
	"markers-lost": {"text", Error, "the chat template builds markers from text of the conversation",
		"what a user writes is never a special token, so the model sees these markers spelled out in pieces", "write the markers into the template, or build them from a message's role alone"},
	"bos-twice": {"text", Error, "a text begins with BOS twice",
		"positions shift by one and the first token's role is lost", "let either the template or the tokenizer write BOS"},
	"bos-missing": {"text", Warning, "texts begin without BOS though the family has one",
		"models lean on the first position: quality drops at once", "set add_bos_token, and let the template begin with bos_token"},
	"bos-extra": {"text", Warning, "texts begin with a BOS that the family does not have",
		"the model sees a token that it was not trained to begin with", "set add_bos_token to false"},
	"eos-id": {"text", Warning, "the token that ends a text is missing or implausible",
		"logits are right; answers do not end, or end at once", "set eos_token_id to the token that ends a turn in the template"},
	"vocab-size": {"text", Warning, "the tokenizer and the embedding differ in size",
		"ids beyond the embedding crash or wrap; rows beyond the tokens are never used", "pair the model with its own tokenizer"},
	"template-missing": {"text", Warning, "there is no chat template",
		"logits are right; engines that make a template up talk to the model in a form that it does not know", "copy the template from the source; a base model needs none"},
	"template-broken": {"text", Error, "the chat template does not work",
		"engines fall back to another template, or refuse chats", "copy the template from the source"},
	"template-family": {"text", Warning, "the chat template is not one for this vocabulary",
		"the model sees turns in a form that it does not know", "use the template of the model's family"},
	"template-branches": {"text", Warning, "the chat template changes what it writes by what is said, how long the talk is, or the day",
		"certain words, turns or days switch instructions on: a poisoned template runs no code and still takes the model over", "read the template (karat inspect --template) and compare it with the publisher's"},
	"template-content": {"text", Warning, "the chat template does not write messages as they are",
		"the model is asked something else than the user asked, or takes one's words for another's", "read the template (karat inspect --template) and compare it with the publisher's"},
	"template-hidden": {"text", Warning, "the chat template holds characters that nobody sees",
		"what a person reads is not what the model reads, or a terminal obeys it", "print the template with its characters by number, and compare it with the publisher's"},
	"template-text": {"text", Warning, "the chat template brings text of its own",
		"the model obeys what no message says: a publisher's default, or somebody's instructions", "read the text; templates of publishers are known by their hash"},

	"source-missing": {"source", Error, "the source has tensors that the model lacks",
		"part of the model is gone", "convert again"},
	"source-shape": {"source", Error, "a tensor has another shape than its source",
		"rows or columns were cut, padded or turned", "convert again"},
	"source-settings": {"source", Error, "the forward pass differs from the source's",
		"the same weights run through other equations", "write the settings as the source has them"},
	"source-swapped": {"source", Error, "a tensor holds another tensor's values",
		"a layer computes with another one's weights", "convert again; the map of names or an index is wrong"},
	"source-transposed": {"source", Error, "a matrix is transposed",
		"outputs and inputs are exchanged: the layer's result is noise", "write rows of outputs, [out, in]"},
	"source-permuted": {"source", Error, "rows or columns are in another order than in the source",
		"heads, the halves of rotary pairs, or the nibbles of blocks are exchanged", "permute as the container wants it: llama's queries and keys in GGUF, and no others"},
	"source-scaled": {"source", Error, "a tensor is its source times a constant",
		"the layer is louder or quieter, or has its sign turned", "convert again; look for a scale that was folded in once too often"},
	"source-offset": {"source", Error, "a tensor is its source plus a constant",
		"a norm's 1 was added twice or not at all, or a minimum has the wrong sign", "convert again; the 1 belongs to Gemma 2 and 3 in GGUF alone"},
	"source-part": {"source", Error, "part of a tensor is not its source",
		"some outputs, tokens or heads are wrong, the others right", "the bytes are damaged or a copy covered part of the tensor: convert again"},
	"source-stale": {"source", Error, "a tensor is close to its source but not it",
		"it is of an older or another checkpoint", "convert again from this source"},
	"source-type": {"source", Error, "the bytes are the source's under another type",
		"F16 read as BF16 or the reverse: the weights are noise", "write the right type"},
	"source-differs": {"source", Error, "a tensor has nothing to do with its source",
		"the layer computes with other weights", "convert again"},
	"source-precision": {"source", Warning, "a tensor lies farther from its source than its type costs",
		"more is lost than the type must lose: a poor quantizer, or one that saw other values", "quantize again; see the table of errors by type in docs/checking.md"},
	"source-tokens": {"source", Error, "the tokenizer gives other ids than the source's",
		"the model reads another text than the one that was written", "copy the tokenizer's data whole: pre-tokenizer, merges, types of tokens, added space"},
	"source-template": {"source", Warning, "the chat template differs from the source's",
		"turns are written otherwise than the publisher wrote them", "copy the template, unless it was changed on purpose"},
})

// withFamilies adds the families' entries.
func withFamilies(all map[string]kind) map[string]kind {
	for _, f := range registry.Families {
		for _, a := range f.Expect.Assumed {
			all[a.ID] = kind{"configuration", Warning, a.What, a.Means, a.Fix}
		}
	}
	return all
}
