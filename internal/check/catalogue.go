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
		"there are no logits to judge", "mend what the message names, or convert the model again"},
	"arch-key": {"configuration", Error, "the tensors belong to another architecture than the key names",
		"the weights run through another architecture's equations: the text may be fluent, and is wrong", "set general.architecture (model_type in config.json) to the model's own, with its keys' prefix"},
	"config-invalid": {"configuration", Error, "a setting has an impossible value",
		"an engine refuses the file, or uses its own default", "convert again, or set the key as the model's config.json has it"},
	"config-unread": {"configuration", Warning, "a setting that changes logits is not read",
		"the model runs without the setting. Example: an engine that ignored llama3 rope scaling was right on short prompts and wrong on long ones", "find out which architecture has this setting; the model may be of that one"},
	"config-default": {"configuration", Note, "settings are missing; defaults are used",
		"right if the model was trained with the defaults", "write the keys into the file"},
	"heads": {"configuration", Error, "head counts and head size contradict each other",
		"queries and keys are split at the wrong places: attention is noise", "set head counts and key_length (head_dim) from the source; in many families head_dim is not hidden/heads"},
	"layer-pattern": {"configuration", Error, "the pattern of full and sliding layers does not fit the model",
		"layers see too many or too few tokens and use the other kind's rotary base: short prompts are off, long prompts are lost", "take the pattern from the source's layer_types"},
	"kv-sharing": {"configuration", Error, "the layers marked as sharing keys and values are not the layers without key and value tensors",
		"layers attend to the wrong layer's keys: logits are wrong at every position", "set the number of shared layers from the source; the layer's index decides, not the tensors in the file"},
	"rope-settings": {"configuration", Warning, "rotary settings are implausible",
		"positions rotate at the wrong speed: the error grows with the distance between tokens", "take base and scaling from the source's rope settings"},
	"rope-freqs": {"configuration", Error, "the divisors of the rotary frequencies are missing or wrong",
		"Llama 3's scaling, or Gemma 4's pairs that do not rotate, are lost; short prompts may hide it (in one case the perplexity at 32 k tokens was 2916 instead of 5.5)", "convert again with a converter that writes rope_freqs; all divisors are 1 or more"},
	"norm-eps": {"configuration", Warning, "the epsilon of the norms is not the family's",
		"small activations get another scale: every logit moves a little", "take rms_norm_eps from the source"},
	"softcap": {"configuration", Warning, "the cap of the logits is missing or not the family's",
		"the ranking stays, but the probabilities change: sampling and perplexity are wrong (a cap of 15 instead of 30: KL 0.9)", "set final_logit_softcapping from the source"},
	"attention-scale": {"configuration", Warning, "the attention scale is implausible",
		"attention is too sharp or too flat in every layer", "set attention.scale (query_pre_attn_scalar) from the source"},
	"activation": {"configuration", Warning, "the activation is not the family's",
		"every feed-forward layer computes other values", "set hidden_act (hidden_activation) from the source"},
	"context": {"configuration", Warning, "the context length is missing or implausible",
		"logits are right within the trained length; an engine may cut prompts, or run past that length", "set context_length from the source"},

	"tensor-missing": {"tensors", Error, "the model needs tensors that the file lacks",
		"an engine that goes on without them computes another model. Examples: a norm switched off by a flag, biases that were not mapped", "convert again; the converter's map of names is incomplete"},
	"tensor-unused": {"tensors", Error, "the file has tensors that the architecture does not use",
		"a step of the model is missing in the engine, or the architecture's key is wrong", "find out what the tensors do before you run the model without them"},
	"tensor-contradicts": {"tensors", Error, "a tensor contradicts a setting",
		"either the setting or the tensor is stale; an engine picks one silently", "take both from the source"},
	"tensor-shape": {"tensors", Error, "a tensor's shape contradicts the settings",
		"rows of another head or layer are read, or the file is refused", "convert again; common reasons: heads × head size taken for the hidden size, transposition, padding"},
	"tied-head": {"tensors", Error, "the output head contradicts tie_word_embeddings",
		"all logits come from the wrong matrix", "take tie_word_embeddings from the source: a tied model has no head of its own, an untied one needs it"},
	"row-blocks": {"tensors", Error, "a tensor's row length is not a multiple of its block length",
		"blocks cross the ends of rows, which shifts every row but the first; GGUF readers refuse the file", "quantize row by row with a type whose block divides the row length: Q8_0, Q4_0, Q5_1 or IQ4_NL if 256 does not"},
	"stale-files": {"tensors", Warning, "the folder has tensor files that the index does not name",
		"a tool that reads every file gets another checkpoint's values", "remove the files, or write the index again"},
	"tensor-duplicate": {"tensors", Error, "two tensors have the same bytes",
		"a layer computes with another layer's weights", "convert again; common reasons: an index off by one, a buffer used twice"},

	"nan": {"values", Error, "values or scales are not a number",
		"one NaN makes every logit NaN", "convert again from an intact source; a NaN scale comes from an overflow or from damaged bytes"},
	"inf": {"values", Error, "values or scales are infinite",
		"logits become infinite or NaN", "convert again; values beyond 65504 do not fit F16: use BF16 or F32"},
	"scale-implausible": {"values", Error, "some block scales are far larger than the tensor's others",
		"32 or 256 weights dwarf all others, and one feature drowns the layer; the values are finite, so nothing crashes", "compare a checksum, copy or convert again: the bytes are damaged"},
	"scale-sign": {"values", Error, "block scales or minimums have a sign that the format never writes",
		"weights are mirrored or shifted: a minimum stored with its sign is subtracted twice", "quantize again; the encoder writes scale or minimum with the wrong sign"},
	"value-implausible": {"values", Error, "single values are far larger than the tensor's others",
		"one weight drowns its row", "compare a checksum, copy or convert again: the bytes are damaged"},
	"block-layout": {"values", Error, "the bytes are not valid blocks of the tensor's type",
		"the weights are noise", "convert again: the data is shifted, cut or of another type"},
	"row-layout": {"values", Error, "zero blocks repeat with another period than the rows",
		"rows were padded to whole blocks and are read without padding, or the reverse: every row but the first is shifted", "quantize row by row at the tensor's own width; a width that 256 does not divide needs a type with blocks of 32"},
	"dtype-tag": {"values", Error, "the elements are of another type than the header says",
		"F16 is read as BF16, or BF16 as F16: the weights are noise", "write the right type; both have two bytes, so sizes do not show the error"},
	"zero-tensor": {"values", Error, "a tensor is all zeros",
		"this part of the layer does nothing", "convert again; the data was never written"},
	"zero-rows": {"values", Error, "rows of a matrix are zeros",
		"these outputs or tokens are switched off: a copy covered part of the tensor only", "convert again"},
	"zero-columns": {"values", Error, "columns of a matrix are zeros",
		"these inputs are ignored: the tail of each row was not written", "convert again; common reason: a width that is no multiple of a tile or block"},
	"zero-blocks": {"values", Error, "a few blocks of a matrix are zeros",
		"pieces of rows are missing", "copy or convert again: the bytes are damaged"},
	"constant-rows": {"values", Error, "rows of a matrix are constant",
		"these outputs no longer depend on the direction of the input", "quantize again; a constant row comes from a scale of 0 with a minimum, or from filled memory"},
	"repeated-rows": {"values", Warning, "rows of a matrix are repeated",
		"part of the tensor was overwritten; harmless only if heads were copied on purpose", "compare with the source: --against"},
	"value-shift": {"values", Error, "a matrix's mean is far from zero",
		"every output has the same offset: a minimum was added with the wrong sign, or an offset was left in", "quantize again; check the sign of the minimum and the offset of the integers"},
	"layer-outlier": {"values", Error, "a tensor's values are far larger or smaller than in other layers",
		"the layer drowns the others, or does nothing", "convert again: the tensor is scaled, or holds another tensor's data"},
	"transposed": {"values", Warning, "a square matrix looks transposed compared with other layers",
		"inputs and outputs are exchanged: the layer's result is noise", "compare with the source (--against); the shape is [out, in]"},
	"norm-offset": {"values", Error, "norm weights have the offset of 1 twice, or lack it",
		"Gemma 2 and 3 scale by 1+w, and their GGUF files hold the sum; all others scale by w. With the wrong offset every layer's input doubles, or nearly vanishes", "convert again; the converter to GGUF adds the 1 once, for Gemma 2 and 3 only"},

	"tokenizer-broken": {"text", Error, "the tokenizer cannot be built",
		"text becomes other ids than in training, or no ids", "mend what the message names, or copy the tokenizer's data from the source"},
	"merges-missing": {"text", Error, "merges of the tokenizer are missing",
		"words fall apart into pieces that the model has hardly seen (in one case 39 tokens instead of 15)", "copy all merges; some files write them as \"a b\", others as pairs"},
	"scores-flat": {"text", Error, "the tokenizer's scores are all alike",
		"text is split at other places than in training", "copy tokenizer.ggml.scores from tokenizer.model"},
	"token-types": {"text", Warning, "special tokens are marked as text, or text as special",
		"markers fall apart into characters, or a user's text becomes a marker", "set tokenizer.ggml.token_type (special in tokenizer.json) to control (3)"},
	"token-ids": {"text", Warning, "the id of a special token is outside the vocabulary",
		"logits are right; an engine that looks the token up fails or reads foreign memory", "take the id from the source"},
	"special-split": {"text", Error, "the chat template writes markers that are no tokens",
		"markers are spelled out in pieces: the model never sees where a turn ends", "add the tokens, or use the template made for this vocabulary"},
	"markers-lost": {"text", Error, "the chat template builds markers from text of the conversation",
		"text of a message never becomes a special token, so the model sees these markers spelled out in pieces", "write the markers into the template, or build them from the message's role alone"},
	"bos-twice": {"text", Error, "a text begins with BOS twice",
		"positions shift by one and the first token's role is lost", "let the template or the tokenizer write BOS, not both"},
	"bos-missing": {"text", Warning, "texts begin without BOS, which the family uses",
		"much attention goes to the first position: quality drops at once", "set add_bos_token to true, and begin the template with bos_token"},
	"bos-extra": {"text", Warning, "texts begin with BOS, which the family does not use",
		"the model was never trained with this first token", "set add_bos_token to false"},
	"eos-id": {"text", Warning, "the EOS token is missing or implausible",
		"logits are right; answers never end, or end at once", "set eos_token_id to the token that ends a turn in the template"},
	"vocab-size": {"text", Warning, "the tokenizer and the embedding differ in size",
		"ids past the embedding crash or wrap; rows past the last token are never used", "pair the model with its own tokenizer"},
	"template-missing": {"text", Warning, "there is no chat template",
		"logits are right; an engine that invents a template shows the model turns in an unknown form", "copy the template from the source; a base model needs none"},
	"template-broken": {"text", Error, "the chat template does not work",
		"an engine uses another template, or refuses to chat", "copy the template from the source"},
	"template-family": {"text", Warning, "the chat template was made for another vocabulary",
		"the model sees turns in an unknown form", "use the template from the model's family"},
	"template-branches": {"text", Warning, "the chat template changes its own text by words, length or date",
		"certain words, turns or days switch instructions on: a poisoned template takes the model over without running code", "read the template (karat inspect --template) and compare it with the publisher's"},
	"template-content": {"text", Warning, "the chat template changes messages",
		"the model reads another question than the user asked, or takes one speaker for another", "read the template (karat inspect --template) and compare it with the publisher's"},
	"template-hidden": {"text", Warning, "the chat template has invisible characters",
		"people read another text than the model does, or the terminal obeys hidden commands", "print the template's characters as numbers, and compare it with the publisher's"},
	"template-text": {"text", Warning, "the chat template adds text of its own",
		"the model follows text that no message contains: a publisher's default, or somebody's instructions", "read the text; publishers' templates are known by their hash"},

	"source-missing": {"source", Error, "the source has tensors that the model lacks",
		"part of the model is gone", "convert again"},
	"source-shape": {"source", Error, "a tensor has another shape than its source",
		"rows or columns were cut, padded or transposed", "convert again"},
	"source-settings": {"source", Error, "the forward pass differs from the source's",
		"the same weights run through other equations", "write the settings as the source has them"},
	"source-swapped": {"source", Error, "a tensor holds another tensor's values",
		"a layer computes with another layer's weights", "convert again; the converter's map of names or an index is wrong"},
	"source-transposed": {"source", Error, "a matrix is transposed",
		"inputs and outputs are exchanged: the layer's result is noise", "write the shape [out, in]"},
	"source-permuted": {"source", Error, "rows or columns are in another order than in the source",
		"heads, the halves of rotary pairs, or the nibbles of blocks are exchanged", "permute as the container wants it: in GGUF the queries and keys of Llama, and no others"},
	"source-scaled": {"source", Error, "a tensor is its source times a constant",
		"the layer's result is scaled, or has the wrong sign", "convert again; common reason: a scale was applied twice"},
	"source-offset": {"source", Error, "a tensor is its source plus a constant",
		"the 1 of a norm was added twice or never, or a minimum has the wrong sign", "convert again; only Gemma 2 and 3 in GGUF have the 1"},
	"source-part": {"source", Error, "part of a tensor differs from its source",
		"some outputs, tokens or heads are wrong; the others are right", "convert again: the bytes are damaged, or a copy covered part of the tensor only"},
	"source-stale": {"source", Error, "a tensor is close to its source, but not equal",
		"it comes from another checkpoint", "convert again from this source"},
	"source-type": {"source", Error, "the bytes are the source's, but the type is another",
		"F16 is read as BF16, or BF16 as F16: the weights are noise", "write the right type"},
	"source-differs": {"source", Error, "a tensor does not resemble its source",
		"the layer computes with foreign weights", "convert again"},
	"source-precision": {"source", Warning, "a tensor is farther from its source than its type explains",
		"a poor quantizer lost more than necessary, or it read other values", "quantize again; see the table of errors by type in docs/checking.md"},
	"source-tokens": {"source", Error, "the tokenizer's ids differ from the source's",
		"the model reads another text than the user wrote", "copy all of the tokenizer's data: pre-tokenizer, merges, token types, added space"},
	"source-template": {"source", Warning, "the chat template differs from the source's",
		"turns are written in another form than the publisher's", "copy the template, unless you changed it on purpose"},
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
