package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/tokenizer"
)

// Bounds of a folder's text files, read into memory. Published files have at most 5 KiB, 1 MiB and 33 MiB.
const (
	MaxConfig    = 1 << 20
	MaxText      = 16 << 20
	MaxTokenizer = 48 << 20
)

// ReadText reads a file of a folder; the result is nil if the file is absent.
func ReadText(dir, name string, limit int) ([]byte, error) {
	b, err := mmap.ReadFile(filepath.Join(dir, name), int64(limit))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(b, []byte("version https://git-lfs")) {
		return nil, fmt.Errorf("%s: a Git LFS pointer, whose file was not fetched: git lfs pull fetches it",
			filepath.Join(dir, name))
	}
	return b, nil
}

// Text reads a folder's chat template, and the publisher's recommendations.
func Text(c *settings.Model, dir string, config []byte) (t string, g settings.Generation, err error) {
	generation, err := ReadText(dir, "generation_config.json", MaxConfig)
	if err != nil {
		return t, g, err
	}
	var text struct { // the writing part of a multimodal model
		Config json.RawMessage `json:"text_config"`
	}
	if config != nil {
		if err := json.Unmarshal(config, &text); err != nil {
			return t, g, fmt.Errorf("%s: config.json: %w", dir, jsonerr.Plain(err, ""))
		}
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"config.json: text_config", text.Config}, {"config.json", config},
		{"generation_config.json", Finite(generation)}} { // later files overrule earlier
		if f.data != nil {
			if err := json.Unmarshal(f.data, &g); err != nil {
				return t, g, fmt.Errorf("%s: %s: %w", dir, f.name, jsonerr.Plain(err, ""))
			}
		}
	}
	for _, x := range g.Unapplied {
		c.Notes = append(c.Notes, fmt.Sprintf("the publisher's %s = %s is not applied to answers", x.Key, x.Value))
	}
	template, err := ReadText(dir, "chat_template.jinja", MaxText)
	if err != nil || template != nil {
		return string(template), g, err
	}
	tokenizerConfig, err := ReadText(dir, "tokenizer_config.json", MaxText)
	if err != nil {
		return t, g, err
	}
	var others []string
	if t, others, err = configTemplate(tokenizerConfig); err != nil {
		return t, g, fmt.Errorf("%s: tokenizer_config.json: %w", dir, err)
	}
	if t == "" && len(others) == 0 { // image processors have the template in a separate file
		b, err := ReadText(dir, "chat_template.json", MaxText)
		if err == nil {
			t, others, err = configTemplate(b)
		}
		if err != nil {
			return t, g, fmt.Errorf("%s: chat_template.json: %w", dir, err)
		}
	}
	if len(others) > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("the chat templates named %q are set aside", others))
	}
	return t, g, nil
}

// configTemplate returns the template inside tokenizer_config.json: a string, or a list or object of templates by name.
// The template named default counts; the second result has the other names.
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

// TokenizerFiles reads the files of a Hugging Face folder's tokenizer, of at most so many bytes each.
func TokenizerFiles(dir string, most int) (f tokenizer.Files, err error) {
	for _, file := range []struct {
		name  string
		limit int
		to    *[]byte
	}{{"tokenizer_config.json", MaxText, &f.Config}, {"tokenizer.json", most, &f.JSON},
		{"tokenizer.model", most, &f.Model}} {
		if *file.to, err = ReadText(dir, file.name, file.limit); err != nil {
			return f, err
		}
	}
	if f.Name = "tokenizer.json"; f.JSON != nil {
		return f, nil
	}
	if f.Name = "tokenizer.model"; f.Model != nil {
		return f, nil
	}
	f.Name = "vocab.txt"
	vocab, err := ReadText(dir, f.Name, most)
	if err != nil {
		return f, err
	}
	from := tokenizer.FromVocab
	if vocab == nil {
		from, f.Name = tokenizer.FromTiktoken, "tiktoken.model"
		if vocab, err = ReadText(dir, f.Name, most); err != nil {
			return f, err
		}
	}
	if vocab == nil {
		return f, fmt.Errorf("%s: %w: none of tokenizer.json, tokenizer.model, vocab.txt and tiktoken.model is there",
			dir, tokenizer.ErrNone)
	}
	if f.JSON, err = from(vocab, f.Config); err != nil {
		return f, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}

// Tokenizer makes the tokenizer of a Hugging Face folder.
func Tokenizer(dir string, most int) (*tokenizer.Tokenizer, error) {
	f, err := TokenizerFiles(dir, most)
	if err != nil {
		return nil, err
	}
	return ParseTokenizer(filepath.Join(dir, f.Name), f)
}

// ParseTokenizer makes the tokenizer of the files f; path is for errors.
func ParseTokenizer(path string, f tokenizer.Files) (*tokenizer.Tokenizer, error) {
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

// SpecialIDs returns config.json's ids of special tokens, "bos" to "mask"; of several the first.
func SpecialIDs(config []byte) map[string]int {
	var all map[string]json.RawMessage
	if json.Unmarshal(config, &all) != nil {
		return nil
	}
	ids := map[string]int{}
	for _, name := range []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"} {
		var list settings.IDs
		if raw, ok := all[name+"_token_id"]; ok && json.Unmarshal(raw, &list) == nil && len(list) > 0 {
			ids[name] = list[0]
		}
	}
	return ids
}
