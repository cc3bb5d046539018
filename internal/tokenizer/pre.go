package tokenizer

import (
	"errors"
	"fmt"
)

// A preTokenizer is what the name tokenizer.ggml.pre stands for.
type preTokenizer struct {
	patterns     []string // each applied to the pieces of the one before
	nfc          bool
	ignoreMerges bool
	addBOS       bool // where add_bos_token is absent
	merged       bool // the vocabulary is of characters, with ▁ for spaces: Merged
}

var (
	digits3     = []string{digits3Pattern}
	digit1      = []string{digit1Pattern}
	plainWords  = []string{plainWordsPattern}
	digitsPlain = []string{digitPattern, plainWordsPattern}
	o200k       = []string{caseWordsPattern}
	bloom       = []string{bloomPattern}

	preDigits3 = preTokenizer{patterns: digits3, ignoreMerges: true, addBOS: true}
	// Qwen's own tokenizer normalizes to NFC, which GGUF has no key for.
	preDigit1 = preTokenizer{patterns: digit1, nfc: true}
)

// preTokenizers are the known values of tokenizer.ggml.pre (llama_vocab::impl::load in llama.cpp/src/llama-vocab.cpp).
// Where llama.cpp's engine of regular expressions lacks something that the model's own pattern has, they follow the
// model's.
var preTokenizers = map[string]preTokenizer{
	"llama-bpe": preDigits3, "llama3": preDigits3, "llama-v3": preDigits3, "falcon3": preDigits3, "falcon-h1": preDigits3,
	"pixtral": preDigits3, "midm-2.0": preDigits3, "lfm2": preDigits3, "jina-v5-nano": preDigits3,
	"smaug-bpe": {patterns: digits3}, "dbrx": {patterns: digits3}, "glm4": {patterns: digits3},
	"chatglm-bpe": {patterns: digits3},

	"gpt-2": {patterns: plainWords}, "phi-2": {patterns: plainWords}, "mpt": {patterns: plainWords},
	"olmo": {patterns: plainWords}, "jais": {patterns: plainWords},
	"trillion": {patterns: plainWords}, "granite-docling": {patterns: plainWords}, "exaone4": {patterns: plainWords},
	"gigachat": {patterns: plainWords},
	"a.x-4.0":  {patterns: plainWords}, "mellum": {patterns: plainWords}, "jina-es": {patterns: plainWords},
	"jina-de":    {patterns: plainWords},
	"jina-v1-en": {patterns: plainWords}, "jina-v2-es": {patterns: plainWords}, "jina-v2-de": {patterns: plainWords},
	"jina-v2-code": {patterns: plainWords},
	"roberta-bpe":  {patterns: plainWords}, "modern-bert": {patterns: plainWords, nfc: true, addBOS: true},

	"starcoder": {patterns: digitsPlain}, "refact": {patterns: digitsPlain}, "command-r": {patterns: digitsPlain},
	"smollm":    {patterns: digitsPlain},
	"codeshell": {patterns: digitsPlain}, "exaone": {patterns: digitsPlain}, "minerva-7b": {patterns: digitsPlain},
	"mellum2": {patterns: digitsPlain},

	"qwen2": preDigit1, "deepseek-r1-qwen": preDigit1,
	"kormo": {patterns: digit1}, "f2llmv2": {patterns: digit1}, "stablelm2": {patterns: digit1},
	"megrez":  {patterns: digit1},
	"hunyuan": {patterns: digit1}, "solar-open": {patterns: digit1}, "grok-2": {patterns: digit1},
	"bailingmoe": {patterns: digit1}, "bailingmoe2": {patterns: digit1}, "llada-moe": {patterns: digit1},
	"laguna": {patterns: []string{linesPattern, digit1Pattern}}, "qwen35": {patterns: []string{marksPattern}, nfc: true},
	"seed-coder": {patterns: []string{seedPattern}}, "exaone-moe": {patterns: []string{phrasesPattern}},

	"gpt-4o": {patterns: o200k}, "llama4": {patterns: o200k}, "kanana2": {patterns: o200k}, "talkie": {patterns: o200k},
	"minimax-m2": {patterns: o200k}, "granite-embed-multi-97m": {patterns: o200k, ignoreMerges: true},
	"tekken":  {patterns: []string{tekkenPattern}, ignoreMerges: true, addBOS: true},
	"youtu":   {patterns: []string{eastPattern, youtuPattern}, ignoreMerges: true},
	"kimi-k2": {patterns: []string{kimiPattern}},

	"deepseek-llm": {patterns: chainedHangul}, "deepseek-coder": {patterns: chainedPlain},
	"deepseek-v3":   {patterns: chainedKana},
	"hunyuan-dense": {patterns: chainedKana}, "joyai-llm": {patterns: chainedKana},

	"default":  {patterns: []string{plainPunctPattern, plainWordsPattern, numbersPattern, threeASCIIPattern}},
	"falcon":   {patterns: []string{quotedPunctPattern, plainWordsPattern, threeASCIIPattern}},
	"minicpm5": {patterns: []string{threeDigitsPattern, allDigitsPattern}, ignoreMerges: true},
	"bloom":    {patterns: bloom}, "poro-chat": {patterns: bloom}, "gpt3-finnish": {patterns: bloom},
	"viking": {patterns: []string{bloomPattern, digitPattern}},

	"gemma4": {merged: true}, "granite-embed-multi-311m": {merged: true}, "sarvam-moe": {merged: true},
}

// foreign are the models of names whose rules are not built.
var foreign = map[string]string{
	"afmoe":      "Trinity (AFMoE)",
	"chameleon":  "Chameleon",
	"cohere2moe": "Command A's mixtures of experts",
	"jais-2":     "Jais 2",
	"superbpe":   "SuperBPE",
	"tiny_aya":   "Tiny Aya",
	"whitespace": "Jina Embeddings v2 for Chinese",
}

// preTokenizerOf finds a pre-tokenizer by its name.
func preTokenizerOf(name string) (preTokenizer, error) {
	pre, ok := preTokenizers[name]
	switch model := foreign[name]; {
	case ok:
		return pre, nil
	case name == "":
		return pre, errors.New("tokenizer.ggml.pre is missing: files from before May 2024 do not say how their " +
			"text is cut into words; convert the model anew, or name the rule: karat edit FILE --set tokenizer.ggml.pre=string:NAME")
	case model != "":
		return pre, fmt.Errorf("tokenizer.ggml.pre: the pre-tokenizer %q, that of %s, is not supported", name, model)
	}
	return pre, fmt.Errorf("tokenizer.ggml.pre: unknown pre-tokenizer %q", name)
}

// names are the candidates for a folder's steps, the first that suits them: of several with the same steps the usual
// one.
var names = []string{"llama-bpe", "dbrx", "qwen2", "gpt-2", "deepseek-llm", "deepseek-coder", "deepseek-v3", "smollm",
	"gpt-4o", "tekken",
	"qwen35", "stablelm2", "youtu", "kimi-k2", "seed-coder", "exaone-moe", "laguna", "minicpm5", "falcon", "default",
	"bloom", "viking"}

// splitters returns the splitters of patterns, which are known.
func splitters(regexps []string) []splitter {
	stages := make([]splitter, len(regexps))
	for i, p := range regexps {
		stages[i] = patterns[p]
	}
	return stages
}
