package settings

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/rope"
)

// Config decodes the configuration into the struct at dst, whose json tags are canonical keys. The result has a note
// for every key that dst does not read although the name and the value suggest that logits depend on the key.
func (c *Model) Config(dst any) ([]string, error) {
	if err := c.Decode(reflect.ValueOf(dst).Elem(), map[string]any(c.Values), ""); err != nil {
		return nil, err
	}
	return append(slices.Clone(c.Ignored), c.unreadKeys(dst)...), nil
}

// Unread lists the settings with an effect that neither the files' reader nor this model's Config reads.
func (c *Model) Unread(dst any) []Entry {
	list := slices.Clone(c.Left)
	known := Tags(dst)
	for _, k := range slices.Sorted(maps.Keys(c.Values)) {
		if v := c.Values[k]; !known[k] && k != "rope_parameters" && !Neutral(v) {
			list = append(list, Entry{c.Key(k), family.Show(v)})
		}
	}
	return list
}

// unreadKeys lists the keys of c.Values that are likely to matter and match no json tag of dst.
func (c *Model) unreadKeys(dst any) []string {
	var notes []string
	known := Tags(dst)
	for _, k := range slices.Sorted(maps.Keys(c.Values)) {
		if v := c.Values[k]; !known[k] && k != "rope_parameters" && Matters(k, v) && !c.Idle(k) {
			notes = append(notes, fmt.Sprintf("configuration key %s = %s is not read by architecture %s", c.Key(k),
				family.Show(v), c.Arch))
		}
	}
	known = tags(reflect.TypeFor[rope.Params]())
	for _, kind := range Kinds {
		params, _ := family.Object(c.RopeParameters()[kind])
		scaling, _ := params["rope_type"].(string)
		for _, k := range slices.Sorted(maps.Keys(params)) {
			if v := params[k]; !(known[k] && rope.Reads(scaling, k)) && !Neutral(v) {
				notes = append(notes, fmt.Sprintf("rope setting %s = %s of %s is not read", k, family.Show(v), kind))
			}
		}
	}
	return notes
}

// Tags returns the set of the json names of the fields of the struct at dst.
func Tags(dst any) map[string]bool { return tags(reflect.TypeOf(dst).Elem()) }

// tags returns the set of the json names of t's fields.
func tags(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		names[f.Tag.Get("json")] = true
	}
	return names
}

// telling lists parts of names of settings that change logits.
var telling = []string{"nextn", "rope", "rotary", "scal", "window", "softcap", "factor", "multiplier", "bias",
	"bidirectional", "norm", "clip", "temperature"}

func Matters(key string, v any) bool {
	if strings.HasPrefix(key, "_") || Neutral(v) {
		return false
	}
	key = strings.ToLower(key) // a misspelt key has the effect of none
	return slices.ContainsFunc(telling, func(s string) bool { return strings.Contains(key, s) })
}

// idle lists settings of a config.json without an effect on the forward pass: settings of training, of the library and
// of generation (PretrainedConfig in transformers 4 and 5), and repetitions of other files.
var idle = Words(`architectures model_type transformers_version torch_dtype dtype _name_or_path name_or_path
	auto_map use_cache return_dict output_attentions output_hidden_states torchscript use_bfloat16
	_attn_implementation attn_implementation _attn_implementation_autoset cache_implementation
	_sliding_window_pattern initializer_range attention_dropout attn_dropout hidden_dropout resid_pdrop embd_pdrop
	attn_pdrop classifier_dropout pretraining_tp is_decoder is_encoder_decoder add_cross_attention
	cross_attention_hidden_size tie_encoder_decoder chunk_size_feed_forward finetuning_task problem_type id2label
	label2id task_specific_params pruned_heads prefix tokenizer_class bos_token_id eos_token_id pad_token_id
	unk_token_id sep_token_id cls_token_id mask_token_id eod_token_id pad_id bos_token eos_token pad_token
	mask_token decoder_start_token_id forced_bos_token_id
	forced_eos_token_id bad_words_ids begin_suppress_tokens suppress_tokens do_sample temperature top_k top_p min_p
	typical_p repetition_penalty length_penalty diversity_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
	num_beams num_beam_groups num_return_sequences early_stopping max_length min_length output_scores
	return_dict_in_generate remove_invalid_values exponential_decay_length_penalty unsloth_fixed unsloth_version
	transformers.js_config quantization_config quantization compression_config vision_config image_token_id
	video_token_id vision_token_id vision_start_token_id vision_end_token_id`)

// Idle reports whether no forward pass reads a setting in the file's spelling, or the setting is converted all the
// same.
func (c *Model) Idle(key string) bool {
	own := func(k string) bool { return k == key || c.Key(k) == key }
	return idle[key] || slices.ContainsFunc(c.Family.Idle, own) || c.Family.Fixed[key] != nil ||
		key == c.Key("max_position_embeddings") || key == c.Key("layer_types") ||
		key == c.Key("original_max_position_embeddings") // the rotary settings have it
}
