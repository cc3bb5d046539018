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

// manifest is what manifest.json says of a folder of arrays. It is a record's JSON file, of which all may be
// missing: token_ids may stand for a prompt's ids and rendered_prompt for its text, and those of a single prompt
// may stand beside names. Besides, here or in a prompt, it has arrays under taps, files, tensors or arrays: an
// object from names to files or from files to names, the other one being a text or in an object with name, file,
// dtype and prompt; or a list of such objects. ids, logits and hidden may be files, too. A dtype matters where it
// is bfloat16, for which NumPy has none; all else is in the files.
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
