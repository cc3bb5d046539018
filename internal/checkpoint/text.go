package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

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
	End         IDs     `json:"eos_token_id"` // every id that ends a turn
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

// Tokenizer makes the model's tokenizer.
func (c *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	t, err := c.text.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %s: %w", c.Path, err)
	}
	if n := c.settings.integer("vocab_size"); t.VocabSize() > n {
		return nil, fmt.Errorf("checkpoint: %s: the tokenizer has %d tokens, but the model embeds %d", c.Path, t.VocabSize(), n)
	}
	return t, nil
}

// textHF reads the text files of a Hugging Face folder.
func textHF(dir string) (textFiles, error) {
	files := map[string][]byte{}
	for _, name := range []string{"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "config.json"} {
		b, err := readText(dir, name)
		if err != nil {
			return textFiles{}, err
		}
		files[name] = b
	}
	t := textFiles{template: string(files["chat_template.jinja"])}
	for _, name := range []string{"config.json", "generation_config.json"} { // the second has the last word
		if b := files[name]; b != nil {
			if err := json.Unmarshal(b, &t.generation); err != nil {
				return t, fmt.Errorf("checkpoint: %s: %s: %w", dir, name, err)
			}
		}
	}
	if config := files["tokenizer_config.json"]; t.template == "" && config != nil {
		var err error
		if t.template, err = configTemplate(config); err != nil {
			return t, fmt.Errorf("checkpoint: %s: tokenizer_config.json: %w", dir, err)
		}
	}
	t.tokenizer = func() (*tokenizer.Tokenizer, error) {
		switch config := files["tokenizer_config.json"]; {
		case files["tokenizer.json"] != nil:
			return tokenizer.FromJSON(files["tokenizer.json"], config)
		case files["tokenizer.model"] != nil:
			return tokenizer.FromSentencePiece(files["tokenizer.model"], config)
		}
		return nil, errors.New("neither tokenizer.json nor tokenizer.model is there")
	}
	return t, nil
}

// configTemplate is the template inside tokenizer_config.json: a string, or a
// list of named ones of which the one named default counts.
func configTemplate(config []byte) (string, error) {
	var c struct {
		Template json.RawMessage `json:"chat_template"`
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
	m := f.Metadata
	g := tokenizer.GGUF{}
	var errs []error
	note := func(err error) bool {
		if err != nil && !errors.Is(err, gguf.ErrNoKey) {
			errs = append(errs, err)
		}
		return err == nil
	}
	for key, to := range map[string]*string{"model": &g.Model, "pre": &g.Pre} {
		if s, err := m.String("tokenizer.ggml." + key); note(err) {
			*to = s
		}
	}
	for key, to := range map[string]*[]string{"tokens": &g.Tokens, "merges": &g.Merges} {
		if s, err := m.Strings("tokenizer.ggml." + key); note(err) {
			*to = s
		}
	}
	for key, to := range map[string]**int{"bos": &g.BOS, "eos": &g.EOS, "eot": &g.EOT, "eom": &g.EOM} {
		if n, err := m.Int("tokenizer.ggml." + key + "_token_id"); note(err) {
			id := int(n)
			*to = &id
		}
	}
	for key, to := range map[string]**bool{"add_bos_token": &g.AddBOS, "add_eos_token": &g.AddEOS, "add_space_prefix": &g.AddSpacePrefix} {
		if b, err := m.Bool("tokenizer.ggml." + key); note(err) {
			*to = &b
		}
	}
	if s, err := m.Floats("tokenizer.ggml.scores"); note(err) {
		g.Scores = make([]float32, len(s))
		for i, v := range s {
			g.Scores[i] = float32(v)
		}
	}
	if s, err := m.Ints("tokenizer.ggml.token_type"); note(err) {
		g.Types = make([]int32, len(s))
		for i, v := range s {
			g.Types[i] = int32(v)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return tokenizer.FromGGUF(g)
}
