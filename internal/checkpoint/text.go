package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/tokenizer"
)

// textFiles are a model's files about text, or where GGUF has the same. The
// tokenizer is made only when it is asked for.
type textFiles struct {
	template   string // chat template; "" for none
	tokens     int    // that a GGUF file's tokenizer has
	generation Generation
	tokenizer  func() (*tokenizer.Tokenizer, error)
	gguf       func() (tokenizer.GGUF, []string, error) // the same as GGUF has it, and what GGUF cannot say
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

// UnmarshalJSON takes a whole number in any spelling: 50.0 is 50.
func (g *Generation) UnmarshalJSON(b []byte) error {
	type plain Generation
	x := struct {
		*plain
		TopK *float64 `json:"top_k"`
	}{plain: (*plain)(g)}
	if err := json.Unmarshal(b, &x); err != nil {
		return jsonerr.Plain(err, "plain.")
	}
	if k := x.TopK; k != nil {
		if *k != float64(int32(*k)) {
			return fmt.Errorf("top_k: %v, want an integer of 32 bits", *k)
		}
		g.TopK = int(*k)
	}
	return nil
}

// IDs is one id or a list of them.
type IDs []int

// UnmarshalJSON implements json.Unmarshaler. An id below 0 stands for none.
func (d *IDs) UnmarshalJSON(b []byte) error {
	var one *float64
	var list []float64
	if json.Unmarshal(b, &list) != nil {
		if json.Unmarshal(b, &one) != nil {
			return errors.New("ids of tokens: want an integer, or a list of them")
		}
		list = []float64{*one} // null is a list
	}
	*d = nil
	for _, id := range list {
		if id != float64(int32(id)) {
			return fmt.Errorf("ids of tokens: %v, want an integer, or a list of them", id)
		}
		if id >= 0 {
			*d = append(*d, int(id))
		}
	}
	return nil
}

// Template is the model's chat template; "" if it has none.
func (c *Checkpoint) Template() string { return c.text.template }

// Generation is the publisher's recommendation.
func (c *Checkpoint) Generation() Generation { return c.text.generation }

// validateEnd checks that the ids that end a turn are tokens.
func (c *Checkpoint) validateEnd() error {
	for _, id := range c.text.generation.End {
		if n := c.settings.Int("vocab_size"); id < 0 || id >= n {
			return c.bad("eos_token_id", "is %d, expected 0 to %d", id, n-1)
		}
	}
	return nil
}

// EndOfTurn returns the ids that end a turn: the publisher's, and the ones that the tokenizer knows by their names. A
// GGUF file has few of the publisher's. So a folder and its GGUF file end alike.
func (c *Checkpoint) EndOfTurn(t *tokenizer.Tokenizer) []int {
	ids := slices.Clone([]int(c.text.generation.End))
	for _, id := range t.EndOfTurn() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Bounds of a tokenizer by the number of tokens that the model embeds, before it is made:
// tokens beyond these, and bytes of tokenizer.json, whose published ones have 130 a token.
const (
	maxBeyond     = 1 << 12
	maxJSON       = 1 << 20
	maxTokenBytes = 1 << 10
)

// maxTokenizer is how many bytes a file of the folder's tokenizer may have.
func (c *Checkpoint) maxTokenizer() int {
	return min(maxTokenizer, maxJSON+maxTokenBytes*c.settings.Int("vocab_size"))
}

// Tokenizer makes the model's tokenizer.
func (c *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	n := c.settings.Int("vocab_size")
	if c.text.tokens > n+maxBeyond {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model embeds %d", c.Path, c.text.tokens, n)
	}
	t, err := c.text.tokenizer()
	if err != nil && c.Format == GGUF {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	if err != nil { // it names the file in the folder
		return nil, err
	}
	for id := n; id < t.VocabSize(); id++ { // special ones may lie there: Gemma 3's text models have one for images
		if text, kind := t.Token(id); kind != tokenizer.Control && kind != tokenizer.Unused {
			return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model embeds %d: token %d is %q", c.Path, t.VocabSize(), n, id, text)
		}
	}
	return t, nil
}

// textHF reads the text files of a Hugging Face folder; those of the tokenizer
// when it is made.
func (c *Checkpoint) textHF(dir string, config []byte) (textFiles, error) {
	t := textFiles{tokenizer: func() (*tokenizer.Tokenizer, error) {
		return tokenizerHF(dir, c.maxTokenizer())
	}}
	t.gguf = func() (tokenizer.GGUF, []string, error) { return c.tokenizerToGGUF(config) }
	generation, err := readText(dir, "generation_config.json", maxConfig)
	if err != nil {
		return t, err
	}
	var text struct { // of the part of a multimodal model that writes
		Config json.RawMessage `json:"text_config"`
	}
	if config != nil {
		if err := json.Unmarshal(config, &text); err != nil {
			return t, fmt.Errorf("%s: config.json: %w", dir, jsonerr.Plain(err, ""))
		}
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json: text_config", text.Config}, {"config.json", config}, {"generation_config.json", finite(generation)}} { // the last has the last word
		if f.data != nil {
			if err := json.Unmarshal(f.data, &t.generation); err != nil {
				return t, fmt.Errorf("%s: %s: %w", dir, f.name, jsonerr.Plain(err, ""))
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
	var others []string
	if t.template, others, err = configTemplate(tokenizerConfig); err != nil {
		return t, fmt.Errorf("%s: tokenizer_config.json: %w", dir, err)
	}
	if t.template == "" && len(others) == 0 { // processors of images have it in a file of its own
		b, err := readText(dir, "chat_template.json", maxText)
		if err == nil {
			t.template, others, err = configTemplate(b)
		}
		if err != nil {
			return t, fmt.Errorf("%s: chat_template.json: %w", dir, err)
		}
	}
	if len(others) > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("the chat templates named %q are set aside", others))
	}
	return t, nil
}

// tokenizerFiles reads the files of a Hugging Face folder's tokenizer, of which one may have
// so many bytes.
func tokenizerFiles(dir string, most int) (f tokenizer.Files, err error) {
	for _, file := range []struct {
		name  string
		limit int
		to    *[]byte
	}{{"tokenizer_config.json", maxText, &f.Config}, {"tokenizer.json", most, &f.JSON}, {"tokenizer.model", most, &f.Model}} {
		if *file.to, err = readText(dir, file.name, file.limit); err != nil {
			return f, err
		}
	}
	if f.JSON != nil || f.Model != nil {
		return f, nil
	}
	vocab, err := readText(dir, "vocab.txt", most)
	if err != nil {
		return f, err
	}
	if vocab == nil {
		return f, fmt.Errorf("%s: %w: none of tokenizer.json, tokenizer.model and vocab.txt is there", dir, tokenizer.ErrNone)
	}
	if f.JSON, err = tokenizer.FromVocab(vocab, f.Config); err != nil {
		return f, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}

// tokenizerHF makes the tokenizer of a Hugging Face folder.
func tokenizerHF(dir string, most int) (*tokenizer.Tokenizer, error) {
	f, err := tokenizerFiles(dir, most)
	if err != nil {
		return nil, err
	}
	name := "tokenizer.json"
	if f.JSON == nil {
		name = "tokenizer.model"
	}
	return parseTokenizer(filepath.Join(dir, name), f)
}

// parseTokenizer makes the tokenizer of the file at path, which f holds with its configuration.
func parseTokenizer(path string, f tokenizer.Files) (*tokenizer.Tokenizer, error) {
	from, file := tokenizer.FromJSON, f.JSON
	if file == nil {
		from, file = tokenizer.FromSentencePiece, f.Model
	}
	t, err := from(file, f.Config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// configTemplate is the template inside tokenizer_config.json: a string, or several by their
// names, as a list or an object, of which the one named default counts. The others' names are
// the second result.
func configTemplate(config []byte) (template string, others []string, err error) {
	var c struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if config == nil {
		return "", nil, nil
	}
	if err := json.Unmarshal(config, &c); err != nil || c.Template == nil {
		return "", nil, err
	}
	var one string
	if json.Unmarshal(c.Template, &one) == nil {
		return one, nil, nil
	}
	var byName map[string]string
	var named []struct{ Name, Template string }
	if json.Unmarshal(c.Template, &byName) == nil {
		template = byName["default"]
		delete(byName, "default")
		return template, slices.Sorted(maps.Keys(byName)), nil
	}
	if err := json.Unmarshal(c.Template, &named); err != nil {
		return "", nil, fmt.Errorf("chat_template: %w", err)
	}
	for _, n := range named {
		if n.Name == "default" {
			template = n.Template
		} else {
			others = append(others, n.Name)
		}
	}
	return template, others, nil
}

// textGGUF reads what a GGUF file has about text.
func textGGUF(f *gguf.File) (textFiles, error) {
	var t textFiles
	var err error
	if v, ok := f.Metadata.Lookup(tokenizerPrefix + "tokens"); ok {
		t.tokens = v.Len()
	}
	if t.template, err = f.Metadata.String("tokenizer.chat_template"); err != nil && !errors.Is(err, gguf.ErrNoKey) {
		return t, err
	}
	if err := t.generation.read(f.Metadata); err != nil {
		return t, err
	}
	t.gguf = func() (tokenizer.GGUF, []string, error) {
		g, err := metadataTokenizer(f.Metadata)
		return g, nil, err
	}
	t.tokenizer = func() (*tokenizer.Tokenizer, error) {
		g, err := metadataTokenizer(f.Metadata)
		if err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(g)
	}
	return t, nil
}
