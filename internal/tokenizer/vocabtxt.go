package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/jsonerr"
)

// FromVocab makes the tokenizer.json that stands for a vocab.txt of BERT, a token on each line, and the
// tokenizer_config.json beside it, which may be nil. (BertConverter of transformers)
func FromVocab(vocab, config []byte) ([]byte, error) {
	c := struct {
		Lower   *bool  `json:"do_lower_case"`
		Chinese *bool  `json:"tokenize_chinese_chars"`
		Strip   *bool  `json:"strip_accents"`
		UNK     nameOf `json:"unk_token"`
		SEP     nameOf `json:"sep_token"`
		CLS     nameOf `json:"cls_token"`
		PAD     nameOf `json:"pad_token"`
		Mask    nameOf `json:"mask_token"`
	}{}
	if len(config) > 0 {
		if err := json.Unmarshal(config, &c); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: %w", jsonerr.Plain(err, ""))
		}
	}
	ids := map[string]int{}
	for i, line := range strings.Split(strings.TrimSuffix(string(vocab), "\n"), "\n") {
		text := strings.TrimRight(line, " \t\r\n")
		if other, ok := ids[text]; ok || text == "" {
			return nil, fmt.Errorf("vocab.txt: line %d: %q is empty, or the token of line %d", i+1, text, other+1)
		}
		ids[text] = i
	}
	added := []object{}
	name := func(given nameOf, usual string) string {
		text := cmp.Or(string(given), usual)
		if id, ok := ids[text]; ok {
			added = append(added, object{"id": id, "content": text, "special": true})
		}
		return text
	}
	unk, cls, sep := name(c.UNK, "[UNK]"), name(c.CLS, "[CLS]"), name(c.SEP, "[SEP]")
	name(c.PAD, "[PAD]")
	name(c.Mask, "[MASK]")
	for _, text := range []string{unk, cls, sep} {
		if _, ok := ids[text]; !ok {
			return nil, errors.New("vocab.txt: it has no " + text)
		}
	}
	return json.Marshal(object{
		"added_tokens": added,
		"normalizer": object{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": is(c.Chinese, true),
			"strip_accents": c.Strip,
			"lowercase":     is(c.Lower, true)},
		"pre_tokenizer":  object{"type": "BertPreTokenizer"},
		"post_processor": object{"type": "BertProcessing", "cls": []any{cls, ids[cls]}, "sep": []any{sep, ids[sep]}},
		"decoder":        object{"type": "WordPiece", "prefix": inner},
		"model": object{"type": "WordPiece", "unk_token": unk, "continuing_subword_prefix": inner,
			"max_input_chars_per_word": maxWord, "vocab": ids},
	})
}
