package bert

import "github.com/karat-run/karat/internal/family"

// Family describes files of BERT. Tensors of training's heads are set aside.
//
// Source: transformers 5.17, models/bert/configuration_bert.py; llama.cpp, conversion/bert.py and src/models/bert.cpp.
var Family = family.Family{
	Name:  "bert",
	Title: "BERT",
	Model: family.Of(New),

	Types: []family.Type{{Name: "bert", Class: "BertModel", Defaults: map[string]any{
		"layer_norm_eps": 1e-12, "hidden_act": "gelu", "max_position_embeddings": 512., "type_vocab_size": 2.,
		"vocab_size": 30522., "hidden_size": 768., "num_hidden_layers": 12., "num_attention_heads": 12.,
		"intermediate_size": 3072.}},
		{Name: "xlm-roberta", Class: "XLMRobertaForSequenceClassification", Root: "roberta", Ranks: true, Padded: true,
			Defaults: map[string]any{
				"layer_norm_eps": 1e-12, "hidden_act": "gelu", "max_position_embeddings": 512., "type_vocab_size": 2.,
				"vocab_size": 30522., "hidden_size": 768., "num_hidden_layers": 12., "num_attention_heads": 12.,
				"intermediate_size": 3072., "pad_token_id": 1.}}},
	Fixed: map[string]any{"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": false},
	Idle: []string{"tie_word_embeddings", "pad_token_id", "type_vocab_size", "head_dim", "num_key_value_heads",
		"attention_probs_dropout_prob", "hidden_dropout_prob", "output_past", "sbert_ce_default_activation_function",
		"sentence_transformers", "gradient_checkpointing", "directionality", "pooler_fc_size",
		"pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"},
	Limits:  []family.Limit{{Key: "type_vocab_size", Min: 0, Max: 1 << 16, Rule: family.Whole}},
	Without: []string{"num_key_value_heads", "rms_norm_eps", "rope_parameters"},

	Keys: []family.Key{{GGUF: "attention.causal", Kind: family.Never}},
	Habits: []family.Habit{{Ends: []string{"position_embd"}, Padded: true},
		{Ends: []string{"cls.output"}, Form: family.Row}},
	Rename:   rename,
	FromGGUF: func(s family.Settings, f *family.File) { s.Fill("type_vocab_size", f.Rows("token_types")) },

	Tokenizer: family.Tokenizer{Model: "bert", Pre: "jina-v2-en", BOS: true, End: true},
	Expect:    family.Expect{Eps: []float64{1e-12}},
}

// scores are other names of a reranker's head.
var scores = map[string]string{
	"classifier.weight": "classifier.out_proj.weight", "bert.pooler.dense.weight": "classifier.dense.weight",
	"classifier.bias": "classifier.out_proj.bias", "bert.pooler.dense.bias": "classifier.dense.bias",
}

// rename names a reranker's head, where the folder has the whole head.
func rename(name string, has func(string) bool) string {
	for other := range scores {
		if !has(other) {
			return discard(name, has)
		}
	}
	if head, ok := scores[name]; ok {
		return head
	}
	return discard(name, has)
}

// discard sets aside tensors of training alone.
var discard = family.Discard(
	"pooler.dense.weight", "pooler.dense.bias", ".position_ids", "cls.predictions.bias",
	"cls.predictions.decoder.bias", "cls.predictions.decoder.weight", "cls.predictions.transform.dense.weight",
	"cls.predictions.transform.dense.bias", "cls.predictions.transform.LayerNorm.weight",
	"cls.predictions.transform.LayerNorm.bias", "cls.seq_relationship.weight", "cls.seq_relationship.bias",
)
