package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/tokenizer"
)

// textFiles are a model's files about text, or where GGUF has the same. The
// tokenizer is made only when it is asked for.
type textFiles struct {
	template   string // chat template; "" for none
	generation Generation
	tokenizer  func() (*tokenizer.Tokenizer, error)
}

// Generation is what a model's publisher recommends. Zero is no recommendation.
type Generation struct {
	Sample      bool    `json:"do_sample"`
	Temperature float64 `json:"temperature"`
	TopK        int     `json:"top_k"`
	TopP        float64 `json:"top_p"`
	MinP        float64 `json:"min_p"`
	Repeat      float64 `json:"repetition_penalty"`
	End         IDs     `json:"eos_token_id"`    // every id that ends a turn
	Suppress    IDs     `json:"suppress_tokens"` // ids never to be generated
}

// IDs is one id or a list of them.
type IDs []int

// UnmarshalJSON implements json.Unmarshaler.
func (d *IDs) UnmarshalJSON(b []byte) error {
	var one int
	if json.Unmarshal(b, &one) == nil {
		*d = nil
		if string(b) != "null" {
			*d = IDs{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int)(d))
}

// Template is the model's chat template; "" if it has none.
func (c *Checkpoint) Template() string { return c.text.template }

// Generation is the publisher's recommendation.
func (c *Checkpoint) Generation() Generation { return c.text.generation }

// validateEnd checks that the ids that end a turn are tokens.
func (c *Checkpoint) validateEnd() error {
	for _, id := range c.text.generation.End {
		if n := c.settings.integer("vocab_size"); id < 0 || id >= n {
			return c.bad("eos_token_id", "is %d, expected 0 to %d", id, n-1)
		}
	}
	return nil
}

// EndOfTurn lists the ids that end a turn: the publisher's, or, for a GGUF file,
// which holds few of them, those that the tokenizer knows by their names.
func (c *Checkpoint) EndOfTurn(t *tokenizer.Tokenizer) []int {
	ids := slices.Clone([]int(c.text.generation.End))
	if len(ids) == 0 {
		return t.EndOfTurn()
	}
	if eos, ok := t.EOS(); ok && !slices.Contains(ids, eos) { // fine-tunes change it there alone
		ids = append(ids, eos)
	}
	return ids
}

// Tokenizer makes the model's tokenizer.
func (c *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	t, err := c.text.tokenizer()
	if err != nil && c.Format == GGUF {
		return nil, fmt.Errorf("checkpoint: %s: %w", c.Path, err)
	}
	if err != nil { // it names the file in the folder
		return nil, err
	}
	n := c.settings.integer("vocab_size")
	for id := n; id < t.VocabSize(); id++ { // special ones may lie there: Gemma 3's text models have one for images
		if text, kind := t.Token(id); kind != tokenizer.Control && kind != tokenizer.Unused {
			return nil, fmt.Errorf("checkpoint: %s: the tokenizer has %d tokens, but the model embeds %d: token %d is %q", c.Path, t.VocabSize(), n, id, text)
		}
	}
	return t, nil
}

// textHF reads the text files of a Hugging Face folder; those of the tokenizer
// when it is made.
func textHF(dir string, config []byte) (textFiles, error) {
	t := textFiles{tokenizer: func() (*tokenizer.Tokenizer, error) { return tokenizerHF(dir) }}
	generation, err := readText(dir, "generation_config.json", maxConfig)
	if err != nil {
		return t, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json", config}, {"generation_config.json", generation}} { // the second has the last word
		if f.data != nil {
			if err := json.Unmarshal(f.data, &t.generation); err != nil {
				return t, fmt.Errorf("checkpoint: %s: %s: %w", dir, f.name, err)
			}
		}
	}
	template, err := readText(dir, "chat_template.jinja", maxText)
	if err != nil || template != nil {
		t.template = string(template)
		return t, err
	}
	tokenizerConfig, err := readText(dir, "tokenizer_config.json", maxText)
	if err != nil {
		return t, err
	}
	if t.template, err = configTemplate(tokenizerConfig); err != nil {
		return t, fmt.Errorf("checkpoint: %s: tokenizer_config.json: %w", dir, err)
	}
	return t, nil
}

// tokenizerHF makes the tokenizer of a Hugging Face folder.
func tokenizerHF(dir string) (*tokenizer.Tokenizer, error) {
	config, err := readText(dir, "tokenizer_config.json", maxText)
	if err != nil {
		return nil, err
	}
	for _, form := range []struct {
		name string
		make func(file, config []byte) (*tokenizer.Tokenizer, error)
	}{{"tokenizer.json", tokenizer.FromJSON}, {"tokenizer.model", tokenizer.FromSentencePiece}} {
		file, err := readText(dir, form.name, maxTokenizer)
		if err != nil {
			return nil, err
		}
		if file == nil {
			continue
		}
		t, err := form.make(file, config)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %s: %w", filepath.Join(dir, form.name), err)
		}
		return t, nil
	}
	return nil, fmt.Errorf("checkpoint: %s: neither tokenizer.json nor tokenizer.model is there", dir)
}

// configTemplate is the template inside tokenizer_config.json: a string, or a
// list of named ones of which the one named default counts.
func configTemplate(config []byte) (string, error) {
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if config == nil {
		return "", nil
	}
	if err := json.Unmarshal(config, &c); err != nil || c.Template == nil {
		return "", err
	}
	var one string
	if json.Unmarshal(c.Template, &one) == nil {
		return one, nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(c.Template, &named); err != nil {
		return "", fmt.Errorf("chat_template: %w", err)
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", nil
}

// textGGUF reads what a GGUF file has about text.
func textGGUF(f *gguf.File) (textFiles, error) {
	var t textFiles
	var err error
	if t.template, err = f.Metadata.String("tokenizer.chat_template"); err != nil && !errors.Is(err, gguf.ErrNoKey) {
		return t, err
	}
	t.tokenizer = func() (*tokenizer.Tokenizer, error) { return tokenizerGGUF(f) }
	return t, nil
}

// tokenizerGGUF hands a file's tokenizer metadata over.
func tokenizerGGUF(f *gguf.File) (*tokenizer.Tokenizer, error) {
	m, g := f.Metadata, tokenizer.GGUF{}
	var types []int64
	var scores []float64
	var bos, eos, eot, eom *int64
	err := errors.Join(
		optional(&g.Model, m.String, "model"), optional(&g.Pre, m.String, "pre"),
		optional(&g.Tokens, m.Strings, "tokens"), optional(&g.Merges, m.Strings, "merges"),
		optional(&types, m.Ints, "token_type"), optional(&scores, m.Floats, "scores"),
		optional(&bos, pointer(m.Int), "bos_token_id"), optional(&eos, pointer(m.Int), "eos_token_id"),
		optional(&eot, pointer(m.Int), "eot_token_id"), optional(&eom, pointer(m.Int), "eom_token_id"),
		optional(&g.AddBOS, pointer(m.Bool), "add_bos_token"), optional(&g.AddEOS, pointer(m.Bool), "add_eos_token"),
		optional(&g.AddSpacePrefix, pointer(m.Bool), "add_space_prefix"))
	if err != nil {
		return nil, err
	}
	for i, v := range types {
		if v != int64(int32(v)) {
			return nil, fmt.Errorf("key tokenizer.ggml.token_type: %d for token %d is no type", v, i)
		}
		g.Types = append(g.Types, int32(v))
	}
	for _, v := range scores {
		g.Scores = append(g.Scores, float32(v))
	}
	for to, id := range map[**int]*int64{&g.BOS: bos, &g.EOS: eos, &g.EOT: eot, &g.EOM: eom} {
		if id != nil {
			n := int(*id)
			*to = &n
		}
	}
	return tokenizer.FromGGUF(g)
}

// optional sets to from the tokenizer's key; a key that is absent leaves it.
func optional[T any](to *T, get func(key string) (T, error), key string) error {
	v, err := get("tokenizer.ggml." + key)
	if errors.Is(err, gguf.ErrNoKey) {
		return nil
	}
	*to = v
	return err
}

// pointer makes a getter's value tell absent from zero.
func pointer[T any](get func(key string) (T, error)) func(key string) (*T, error) {
	return func(key string) (*T, error) {
		v, err := get(key)
		return &v, err
	}
}
