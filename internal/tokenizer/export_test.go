package tokenizer

// What the tests outside of the package look at.
var (
	Patterns = map[string][]splitter{} // by regular expressions
	Aliases  = map[string]string{}     // other spellings of patterns
	StageREs = map[string][]string{}   // of DeepSeek's pre-tokenizers
	names    = map[string]string{}     // of patterns
)

func init() {
	for name, p := range known().Patterns {
		Patterns[p.Regex], names[p.Regex] = stagesOf(name), name
		for _, other := range p.Also {
			Aliases[other] = p.Regex
		}
	}
	for _, name := range []string{"deepseek-llm", "deepseek-coder", "deepseek-v3"} {
		for _, p := range known().named[name].Patterns {
			StageREs[name] = append(StageREs[name], regex(p))
		}
	}
}

// Split cuts texts as regular expressions do, each applied to the pieces of the one before.
func Split(patterns ...string) func(text string) []string {
	var known []string
	for _, p := range patterns {
		known = append(known, names[p])
	}
	stages := splitters(known)
	return func(text string) []string { return Pieces(stages, text) }
}

var (
	Llama3Pattern     = known().Patterns["digits3"].Regex
	Qwen2Pattern      = regex("digit1")
	PlainWordsPattern = regex("plainWords")
)

// StagesOf returns the splitters of a name of GGUF.
func StagesOf(name string) ([]splitter, error) {
	pre, err := preTokenizerOf(name)
	return splitters(pre.Patterns), err
}

// NFC returns nfc, which TestNFC tests.
func NFC(s string) string { return nfc(s, &watch{}) }

// Pieces returns the words that a text is cut into.
func Pieces(stages []splitter, text string) []string {
	if len(stages) == 0 {
		return []string{text}
	}
	var pieces []string
	for len(text) > 0 {
		n := stages[0](text)
		pieces = append(pieces, Pieces(stages[1:], text[:n])...)
		text = text[n:]
	}
	return pieces
}

// Steps encodes text and returns the number of the merge queue's operations.
func (t *Tokenizer) Steps(text string) int {
	e := encoder{t: t, yield: func([]int) bool { return true }}
	e.run(text)
	return e.merger.steps
}
