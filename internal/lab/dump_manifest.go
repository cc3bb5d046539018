package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// manifest holds the contents of manifest.json, the description of a folder of arrays: a record's JSON file with every
// key optional, and lists of arrays. Two examples:
//
//	{"token_ids": [1, 5], "rendered_prompt": "Hi", "logits": "logits.npy", "taps": {"layers.0.out": "l0.npy"}}
//	{"prompts": [{"ids": [1, 5], "arrays": [{"name": "embed", "file": "e.npy", "dtype": "bfloat16"}]}]}
//
// The first has a single prompt, and other names for ids and text. Arrays are under taps, files, tensors or arrays, of
// the whole or of a prompt: names with files, files with names, or a list of objects. Of dtype only bfloat16 counts,
// a type absent from NumPy.
type manifest struct {
	arrays []arrayInfo
	info   []byte // the record's JSON
}

type arrayInfo struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	DType  string `json:"dtype"`
	Prompt *int   `json:"prompt"`
}

type jsonObject map[string]json.RawMessage

func (m *manifest) parse(b []byte) error {
	var all jsonObject
	if err := json.Unmarshal(b, &all); err != nil {
		return plain(err)
	}
	if all == nil {
		return errors.New("not an object")
	}
	if err := m.addArrays(all, nil); err != nil {
		return err
	}
	if class := all["numerics"]; strings.HasPrefix(string(class), `"`) {
		all["numerics"] = fmt.Appendf(nil, `{"activations":%s}`, class)
	}
	prompts := []jsonObject{}
	if list := all["prompts"]; list != nil {
		err := eachOf(list, func(i int, d *json.Decoder) error {
			var p jsonObject
			if err := d.Decode(&p); err != nil {
				return err
			}
			if p["index"] != nil {
				if err := json.Unmarshal(p["index"], &i); err != nil {
					return err
				}
			}
			p.rename()
			prompts = append(prompts, p)
			return m.addArrays(p, &i)
		})
		if err != nil {
			return fmt.Errorf("prompts: %w", err)
		}
	} else if all.rename(); all["ids"] != nil || all["text"] != nil {
		prompts = append(prompts, jsonObject{"ids": all["ids"], "text": all["text"]})
	}
	var err error
	if all["prompts"], err = json.Marshal(prompts); err != nil {
		return err
	}
	m.info, err = json.Marshal(all)
	return err
}

// rename gives values under other names the record's names, and forgets the arrays.
func (o jsonObject) rename() {
	for other, name := range map[string]string{"token_ids": "ids", "input_ids": "ids", "rendered_prompt": "text"} {
		if o[name] == nil && o[other] != nil {
			o[name] = o[other]
		}
	}
	if strings.HasPrefix(string(o["prompt"]), `"`) { // a text, not a record's object
		if o["text"] == nil {
			o["text"] = o["prompt"]
		}
		delete(o, "prompt")
	}
	maps.DeleteFunc(o, func(_ string, v json.RawMessage) bool { return v == nil })
}

// addArrays adds the arrays that o lists, prompt being the one that they are of, if not nil.
func (m *manifest) addArrays(o jsonObject, prompt *int) error {
	for _, name := range []string{"ids", "token_ids", "logits", "hidden"} {
		if raw := o[name]; strings.HasPrefix(string(raw), `"`) {
			if err := m.addArray(name, raw, prompt); err != nil {
				return err
			}
			delete(o, name)
		}
	}
	for _, section := range []string{"taps", "files", "tensors", "arrays"} {
		raw := o[section]
		if raw == nil {
			continue
		}
		delete(o, section)
		var entries map[string]json.RawMessage
		if raw[0] == '[' {
			var list []json.RawMessage
			if err := json.Unmarshal(raw, &list); err != nil {
				return fmt.Errorf("%s: %w", section, plain(err))
			}
			for i, e := range list {
				if err := m.addArray("", e, prompt); err != nil {
					return fmt.Errorf("%s: entry %d: %w", section, i, err)
				}
			}
			continue
		}
		if err := json.Unmarshal(raw, &entries); err != nil {
			return fmt.Errorf("%s: %w", section, plain(err))
		}
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			if err := m.addArray(key, entries[key], prompt); err != nil {
				return fmt.Errorf("%s: %q: %w", section, key, err)
			}
		}
	}
	return nil
}

// addArray adds an entry: text or object, under a key that is a name, a file, or "" in a list.
func (m *manifest) addArray(key string, e json.RawMessage, prompt *int) error {
	var a arrayInfo
	var other string
	if json.Unmarshal(e, &other) != nil {
		if err := json.Unmarshal(e, &a); err != nil {
			return plain(err)
		}
	}
	if strings.HasSuffix(key, ".npy") {
		a.File, a.Name = cmp.Or(a.File, key), cmp.Or(a.Name, other)
	} else {
		a.Name, a.File = cmp.Or(a.Name, key), cmp.Or(a.File, other)
	}
	a.Name = cmp.Or(a.Name, strings.TrimSuffix(a.File, ".npy"))
	a.File = cmp.Or(a.File, a.Name+".npy")
	if a.Name == "" {
		return errors.New("no name and no file")
	}
	if a.Prompt == nil {
		a.Prompt = prompt
	}
	m.arrays = append(m.arrays, a)
	return nil
}
