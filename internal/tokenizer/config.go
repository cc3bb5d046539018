package tokenizer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/karat-run/karat/internal/jsonerr"
)

// A config holds the settings of the tokenizer in tokenizer_config.json. The rest of the file is for other programs.
type config struct {
	BOS    nameOf                    `json:"bos_token"`
	EOS    nameOf                    `json:"eos_token"`
	UNK    nameOf                    `json:"unk_token"`
	SEP    nameOf                    `json:"sep_token"`
	PAD    nameOf                    `json:"pad_token"`
	CLS    nameOf                    `json:"cls_token"`
	Mask   nameOf                    `json:"mask_token"`
	AddBOS *bool                     `json:"add_bos_token"`
	AddEOS *bool                     `json:"add_eos_token"`
	Added  map[string]jsonAddedToken `json:"added_tokens_decoder"`
}

// A nameOf is a token's name, spelled "name", {"content": "name"} or null.
type nameOf string

func (n *nameOf) UnmarshalJSON(b []byte) error {
	var object struct{ Content string }
	if b[0] == '{' {
		err := json.Unmarshal(b, &object)
		*n = nameOf(object.Content)
		return err
	}
	return json.Unmarshal(b, (*string)(n))
}

func parseConfig(b []byte) (c config, err error) {
	if len(b) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("tokenizer_config.json: %w", jsonerr.Plain(err, ""))
	}
	return c, nil
}

// appendTokens adds added tokens absent from the vocabulary, and returns all of added_tokens_decoder by id.
func (c *config) appendTokens(tokens *[]token) (map[int]addedToken, error) {
	added := make(map[int]addedToken, len(c.Added))
	for key, a := range c.Added {
		id, err := strconv.Atoi(key)
		if err != nil || id < 0 || id >= len(*tokens)+len(c.Added)+maxGap {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: id %q is outside the vocabulary", key)
		}
		added[id] = a.token(id)
	}
	for _, a := range sortByID(added) {
		if err := placeToken(tokens, a); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
		}
	}
	return added, nil
}

// placeToken puts an added token into the vocabulary at its id, which must be free or its own.
func placeToken(tokens *[]token, a addedToken) error {
	for int(a.id) >= len(*tokens) {
		*tokens = append(*tokens, token{kind: Unused})
	}
	k := &(*tokens)[a.id]
	if k.text != "" && k.text != a.content {
		return fmt.Errorf("added token %q: its id %d is that of %q", a.content, a.id, k.text)
	}
	k.text = a.content
	switch {
	case a.special && k.kind != Unknown:
		k.kind = Control
	case !a.special && k.kind != Byte:
		k.kind = UserDefined
	}
	return nil
}

// sortByID returns added tokens in order of their ids.
func sortByID(added map[int]addedToken) []addedToken {
	list := make([]addedToken, 0, len(added))
	for _, id := range slices.Sorted(maps.Keys(added)) {
		list = append(list, added[id])
	}
	return list
}

// setNames sets BOS and EOS by their names.
func (c *config) setNames(t *Tokenizer) error {
	for _, k := range []struct {
		name nameOf
		to   *int
		key  string
	}{{c.BOS, &t.special.bos, "bos_token"}, {c.EOS, &t.special.eos, "eos_token"}} {
		if k.name == "" {
			continue
		}
		id, ok := t.ID(string(k.name))
		if !ok {
			return fmt.Errorf("tokenizer_config.json: %s: %q is not in the vocabulary", k.key, string(k.name))
		}
		*k.to = id
	}
	return nil
}

// surround applies add_bos_token and add_eos_token, if present, to the tokens around a text.
func (c *config) surround(t *Tokenizer) (err error) {
	if t.special.prefix, err = applyAround(t.special.prefix, c.AddBOS, t.special.bos, "add_bos_token"); err != nil {
		return err
	}
	t.special.suffix, err = applyAround(t.special.suffix, c.AddEOS, t.special.eos, "add_eos_token")
	return err
}

// applyAround applies add_bos_token or add_eos_token, if present, to the tokens before or after a text.
func applyAround(ids []int, add *bool, id int, key string) ([]int, error) {
	switch {
	case add == nil:
		return ids, nil
	case !*add:
		return slices.DeleteFunc(ids, func(i int) bool { return i == id }), nil
	case id < 0:
		return nil, fmt.Errorf("tokenizer_config.json: %s: there is no such token", key)
	case slices.Contains(ids, id):
		return ids, nil
	}
	return append(ids, id), nil
}
