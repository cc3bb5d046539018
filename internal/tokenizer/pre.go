package tokenizer

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// preTokenizersJSON lists the known patterns of pre-tokenizers, in tokenizer.json's spelling, and the known values of
// tokenizer.ggml.pre (llama_vocab::impl::load in llama.cpp/src/llama-vocab.cpp). Where llama.cpp's engine of regular
// expressions lacks a feature of the model's own pattern, the list follows the model. For example, Qwen normalizes to
// NFC, for which GGUF has no key.
//
//go:embed pretokenizers.json
var preTokenizersJSON []byte

// knownPatterns has the rows of preTokenizersJSON.
type knownPatterns struct {
	Patterns map[string]struct {
		Regex string
		Also  []string // other spellings: possessive quantifiers, which never give back here, and cut classes
		All   bool     // some branch matches, whatever the text
	}
	PreTokenizers []preTokenizer
	Usual         []string          // names for a folder's steps: the usual name of several with the same steps
	Foreign       map[string]string // models by names whose rules are not built
	Tiktoken      map[string]string // names for lists of tiktoken, by tokenizer_class

	spelled map[string]string // names of patterns by their unescaped spelling
	named   map[string]preTokenizer
}

// A preTokenizer holds the rules named by a value of tokenizer.ggml.pre.
type preTokenizer struct {
	Names        []string // values of tokenizer.ggml.pre
	Patterns     []string // names of patterns, each applied to the pieces of the previous
	NFC          bool
	IgnoreMerges bool
	AddBOS       bool // where add_bos_token is absent
	Merged       bool // the vocabulary is of characters, with ▁ for spaces: the model Merged
}

var known = sync.OnceValue(func() (k knownPatterns) {
	if err := json.Unmarshal(preTokenizersJSON, &k); err != nil {
		panic(err) // a mistake in pretokenizers.json
	}
	k.spelled, k.named = map[string]string{}, map[string]preTokenizer{}
	for name, p := range k.Patterns {
		for _, spelling := range append(p.Also, p.Regex) {
			k.spelled[unescaped.Replace(spelling)] = name
		}
	}
	for _, p := range k.PreTokenizers {
		for _, name := range p.Names {
			k.named[name] = p
		}
	}
	return k
})

// unescaped removes needless escapes from a regular expression.
var unescaped = strings.NewReplacer(`\r`, "\r", `\n`, "\n", `\"`, `"`)

// regex returns the regular expression of a pattern's name; other names stay.
func regex(pattern string) string {
	if p, ok := known().Patterns[pattern]; ok {
		return p.Regex
	}
	return pattern
}

// preTokenizerOf finds a pre-tokenizer by its name.
func preTokenizerOf(name string) (preTokenizer, error) {
	pre, ok := known().named[name]
	switch model := known().Foreign[name]; {
	case ok:
		return pre, nil
	case name == "":
		return pre, errors.New("tokenizer.ggml.pre is missing: files from before May 2024 do not say how their " +
			"text is cut into words; convert the model anew, or name the rule: " +
			"karat edit FILE --set tokenizer.ggml.pre=string:NAME")
	case model != "":
		return pre, fmt.Errorf("tokenizer.ggml.pre: the pre-tokenizer %q, that of %s, is not supported", name, model)
	}
	return pre, fmt.Errorf("tokenizer.ggml.pre: unknown pre-tokenizer %q", name)
}

// splitters returns the splitters of named patterns.
func splitters(patterns []string) (stages []splitter) {
	for _, p := range patterns {
		stages = append(stages, stagesOf(p)...)
	}
	return stages
}
