package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	meta "github.com/karat-run/karat/internal/checkpoint/gguf"
	"github.com/karat-run/karat/internal/checkpoint/hf"
	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tokenizer"
)

// TextGGUF returns GGUF's keys about text: the recommended sampling, the tokenizer and the chat template. The notes
// tell the losses.
func (c *Checkpoint) TextGGUF() (keys []gguf.KeyValue, notes []string, err error) {
	if _, err := c.Tokenizer(); err != nil {
		return nil, nil, err
	}
	g, notes, err := c.text.gguf()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	keys = append(meta.WriteGeneration(c.text.generation), meta.WriteTokenizer(g)...)
	if n := c.Values.Int("type_vocab_size"); n > 0 {
		keys = append(keys, gguf.KeyValue{Key: meta.TokenizerPrefix + "token_type_count", Value: uint32(n)})
	}
	if c.text.template != "" {
		keys = append(keys, gguf.KeyValue{Key: "tokenizer.chat_template", Value: c.text.template})
	}
	return keys, notes, nil
}

// tokenizerToGGUF translates the tokenizer of a Hugging Face folder. Ids that end a turn, and whose names do not say
// so, take the keys eot and eom.
func (c *Checkpoint) tokenizerToGGUF(config []byte) (g tokenizer.GGUF, notes []string, err error) {
	f, err := hf.TokenizerFiles(c.Path, c.maxTokenizer())
	if err != nil {
		return g, nil, err
	}
	if g, notes, err = tokenizer.ToGGUF(f, c.Values.Int("vocab_size"), c.Family.Tokenizer.Merged,
		c.Family.Tokenizer.Pre, hf.SpecialIDs(config)); err != nil {
		return g, nil, err
	}
	t, err := tokenizer.FromGGUF(g)
	if err != nil {
		return g, nil, err
	}
	folder, err := c.Tokenizer()
	if err != nil {
		return g, nil, err
	}
	if err := sameNames(folder, t, c.text.template); err != nil {
		return g, nil, err
	}
	known := t.EndOfTurn()
	for _, id := range c.text.generation.End {
		switch {
		case slices.Contains(known, id):
		case g.EOT == nil:
			g.EOT = &id
		case g.EOM == nil:
			g.EOM = &id
		default:
			notes = append(notes, fmt.Sprintf("generation_config.json: eos_token_id: GGUF has no key for %d, the "+
				"third that ends a turn and has no known name", id))
		}
	}
	return g, notes, nil
}

// sameNames compares BOS and EOS of a GGUF file with the folder's where the chat template writes their names.
func sameNames(folder, t *tokenizer.Tokenizer, template string) error {
	for _, x := range []struct {
		name string
		id   func(*tokenizer.Tokenizer) (int, bool)
	}{{"bos_token", (*tokenizer.Tokenizer).BOS}, {"eos_token", (*tokenizer.Tokenizer).EOS}} {
		was, ok := x.id(folder)
		is, _ := x.id(t)
		if ok && was != is && strings.Contains(template, x.name) {
			return fmt.Errorf("the chat template writes %s, which is token %d here and must be token %d in GGUF, "+
				"where it surrounds a text", x.name, was, is)
		}
	}
	return nil
}

// Template returns the model's chat template; "" if there is none.
func (c *Checkpoint) Template() string { return c.text.template }

// Generation returns the publisher's recommendation.
func (c *Checkpoint) Generation() settings.Generation { return c.text.generation }

// validateEnd checks that the ids ending a turn are tokens.
func (c *Checkpoint) validateEnd() error {
	for _, id := range c.text.generation.End {
		if n := c.Values.Int("vocab_size"); id < 0 || id >= n {
			return c.Bad("eos_token_id", "is %d, expected 0 to %d", id, n-1)
		}
	}
	return nil
}

// EndOfTurn returns the ids that end a turn: the publisher's, and the tokens known by their names. A GGUF file has few
// of the publisher's; with the names a folder and its GGUF file end alike.
func (c *Checkpoint) EndOfTurn(t *tokenizer.Tokenizer) []int {
	ids := slices.Clone([]int(c.text.generation.End))
	for _, id := range t.EndOfTurn() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Bounds of a tokenizer, checked before its making: tokens beyond the embedded, and bytes of tokenizer.json for each
// token. Published files have 130 bytes a token.
const (
	maxBeyond     = 1 << 12
	maxJSON       = 1 << 20
	maxTokenBytes = 1 << 10
)

// maxTokenizer returns how many bytes a file of the folder's tokenizer may have.
func (c *Checkpoint) maxTokenizer() int {
	return min(hf.MaxTokenizer, maxJSON+maxTokenBytes*c.Values.Int("vocab_size"))
}

// Tokenizer makes the model's tokenizer.
func (c *Checkpoint) Tokenizer() (*tokenizer.Tokenizer, error) {
	n := c.Values.Int("vocab_size")
	if c.text.tokens > n+maxBeyond {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model embeds %d", c.Path, c.text.tokens, n)
	}
	t, err := c.text.tokenizer()
	if err != nil && c.Format == GGUF {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	if err != nil { // the error names the file in the folder
		return nil, err
	}
	for id := n; id < t.VocabSize(); id++ { // special tokens may lie there: Gemma 3 has a token for images
		if text, kind := t.Token(id); kind != tokenizer.Control && kind != tokenizer.Unused {
			return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but the model embeds %d: token %d is %q", c.Path,
				t.VocabSize(), n, id, text)
		}
	}
	return t, nil
}

// textGGUF reads a GGUF file's keys about text.
func textGGUF(f *gguf.File) (textFiles, error) {
	var t textFiles
	var err error
	if v, ok := f.Metadata.Lookup(meta.TokenizerPrefix + "tokens"); ok {
		t.tokens = v.Len()
	}
	if t.template, err = f.Metadata.String("tokenizer.chat_template"); err != nil && !errors.Is(err, gguf.ErrNoKey) {
		return t, err
	}
	if t.generation, err = meta.Generation(f.Metadata); err != nil {
		return t, err
	}
	t.gguf = func() (tokenizer.GGUF, []string, error) {
		g, err := meta.Tokenizer(f.Metadata)
		return g, nil, err
	}
	t.tokenizer = func() (*tokenizer.Tokenizer, error) {
		g, err := meta.Tokenizer(f.Metadata)
		if err != nil {
			return nil, err
		}
		return tokenizer.FromGGUF(g)
	}
	return t, nil
}

// FolderHF returns the contents of a Hugging Face folder besides the tensors, by file name, for a GGUF file's model.
// The tensors' type dtype is spelled as in transformers.
func (c *Checkpoint) FolderHF(dtype string) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	t, err := c.Tokenizer()
	if err != nil {
		return nil, err
	}
	g, _, err := c.text.gguf()
	var own tokenizer.Files
	if err == nil {
		own, err = tokenizer.ToJSON(g)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	files["tokenizer.json"], files["tokenizer_config.json"] = own.JSON, own.Config
	if c.text.template != "" {
		files["chat_template.jinja"] = []byte(c.text.template)
	}
	ids := map[string]any{}
	for name, id := range map[string]*int{"bos": g.BOS, "eos": g.EOS, "pad": g.PAD} {
		if id != nil {
			ids[name+"_token_id"] = *id
		}
	}
	config, err := hf.Config(c.Model, dtype)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	c.rankHF(config)
	if err := c.modulesHF(files); err != nil {
		return nil, err
	}
	maps.Copy(config, ids)
	if c.Tower != nil {
		if config, err = c.Tower.configHF(c.Model, config, t.ID); err != nil {
			return nil, err
		}
		files["preprocessor_config.json"] = append(c.Tower.Processor, '\n')
	}
	if files["config.json"], err = hf.Marshal(config); err != nil {
		return nil, err
	}
	if ends := c.EndOfTurn(t); len(ends) > 0 {
		ids["eos_token_id"] = ends
	}
	hf.Describe(c.text.generation, ids)
	files["generation_config.json"], err = hf.Marshal(ids)
	return files, err
}

// textHF reads the text files of a Hugging Face folder, and leaves the tokenizer's to its making.
func (c *Checkpoint) textHF(config []byte) (err error) {
	c.text.tokenizer = func() (*tokenizer.Tokenizer, error) { return hf.Tokenizer(c.Path, c.maxTokenizer()) }
	c.text.gguf = func() (tokenizer.GGUF, []string, error) { return c.tokenizerToGGUF(config) }
	c.text.template, c.text.generation, err = hf.Text(c.Model, c.Path, config)
	return err
}

// MetadataGGUF translates the settings of a folder, without settings in aside, into GGUF's keys and into tensors of
// rotary divisors.
func (c *Checkpoint) MetadataGGUF(aside ...string) (keys []gguf.KeyValue, factors []meta.Factors, err error) {
	keys, factors, err = meta.Write(c.Model, aside)
	pooled, e := c.poolingGGUF()
	if err = errors.Join(err, e); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return append(keys, pooled...), factors, nil
}

// OpenTokenizer makes the tokenizer of a model, or of files with a tokenizer alone: a GGUF file without tensors, of any
// architecture; a tokenizer.json or tokenizer.model, with the tokenizer_config.json beside it; a folder with such
// files.
func OpenTokenizer(path string) (*tokenizer.Tokenizer, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	switch ext := strings.ToLower(filepath.Ext(path)); {
	case st.IsDir():
		weights, _ := hf.FindWeights(path)
		if weights == "" || isMissing(path, "config.json") {
			if err := hf.CheckLinks(path); err != nil {
				return nil, err
			}
			return hf.Tokenizer(path, hf.MaxTokenizer)
		}
	case ext == ".json", ext == ".model":
		return openTokenizerFile(path, ext)
	case ext == ".gguf":
		if t, err := openVocabulary(path); t != nil || err != nil {
			return t, err
		}
	}
	c, err := Open(path)
	if err != nil {
		return nil, err
	}
	t, err := c.Tokenizer()
	return t, errors.Join(err, c.Close())
}

// openTokenizerFile makes the tokenizer of a file with any name. The extension tells the format.
func openTokenizerFile(path, ext string) (*tokenizer.Tokenizer, error) {
	dir := filepath.Dir(path)
	b, err := hf.ReadText(dir, filepath.Base(path), hf.MaxTokenizer)
	if err != nil {
		return nil, err
	}
	f := tokenizer.Files{JSON: b}
	if ext == ".model" {
		f = tokenizer.Files{Model: b}
	}
	if f.Config, err = hf.ReadText(dir, "tokenizer_config.json", hf.MaxText); err != nil {
		return nil, err
	}
	return hf.ParseTokenizer(path, f)
}

// openVocabulary makes the tokenizer of a GGUF file without tensors, and returns nil for a file with tensors.
func openVocabulary(path string) (*tokenizer.Tokenizer, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if len(f.Tensors()) > 0 {
		return nil, nil
	}
	g, err := meta.Tokenizer(f.Metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t, err := tokenizer.FromGGUF(g)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
