package tokenizer

// What the tests outside of the package look at.
var (
	Patterns = patterns
	StageREs = map[string][]string{"deepseek-llm": chainedHangul, "deepseek-coder": chainedPlain, "deepseek-v3": chainedKana}
)

// Split cuts texts as regular expressions do, each applied to the pieces of the one before.
func Split(patterns ...string) func(text string) []string {
	stages := splitters(patterns)
	return func(text string) []string { return Pieces(stages, text) }
}

const (
	Llama3Pattern     = digits3Pattern
	Qwen2Pattern      = digit1Pattern
	PlainWordsPattern = plainWordsPattern
)

// Aliases are other spellings of patterns.
var Aliases = aliases

// StagesOf returns the splitters of a name of GGUF.
func StagesOf(name string) ([]splitter, error) {
	pre, err := preTokenizerOf(name)
	return splitters(pre.patterns), err
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
