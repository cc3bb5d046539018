package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/mmap"
)

// maxJSON is the size of the largest JSON file that is read.
const maxJSON = 4 << 20

// recordInfo is a record's JSON file. A bare list of prompts is read as well.
type recordInfo struct {
	Prompts  json.RawMessage `json:"prompts"`
	Names    string          `json:"names"`
	Numerics json.RawMessage `json:"numerics,omitempty"`
	Decode   int             `json:"decode"` // of the prompts that do not say it
	Rows     Rows            `json:"rows"`
}

// Rows is how many of a prompt's last positions the taps have: a number, AllRows, or
// 0 if it is not said.
type Rows int

// AllRows is every position of the prompt.
const AllRows Rows = -1

// MarshalJSON implements json.Marshaler.
func (r Rows) MarshalJSON() ([]byte, error) {
	if r == AllRows {
		return []byte(`"all"`), nil
	}
	return json.Marshal(int(r))
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Rows) UnmarshalJSON(b []byte) error {
	n := 0
	switch string(b) {
	case `"all"`:
		*r = AllRows
		return nil
	case "null":
		return nil
	}
	if err := json.Unmarshal(b, &n); err != nil || n < 1 || n > maxIDs {
		return fmt.Errorf(`rows: %.40s, want "all" or the number of last positions, from 1`, b)
	}
	*r = Rows(n)
	return nil
}

// readJSON calls decode with the contents of a regular file of at most maxJSON bytes.
func readJSON(path string, decode func([]byte) error) error {
	f, err := mmap.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n := len(f.Data()); n > maxJSON {
		return fmt.Errorf("%s: %d bytes, at most %d", path, n, maxJSON)
	}
	if len(f.Data()) == 0 {
		return fmt.Errorf("%s: the file is empty", path)
	}
	if err := mmap.Guard(func() error { return decode(f.Data()) }); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// plain returns err without the names of Go's types.
func plain(err error) error { return jsonerr.Plain(err, "Prompt.") }

// addInfo fills the record's prompts from its JSON file.
func (r *Record) addInfo(b []byte) error {
	if b = bytes.TrimSpace(b); bytes.HasPrefix(b, []byte("[")) {
		return r.addPrompts(b)
	}
	var info recordInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return plain(err)
	}
	if info.Numerics != nil && string(info.Numerics) != "null" {
		var numerics bytes.Buffer
		if err := json.Compact(&numerics, info.Numerics); err != nil {
			return fmt.Errorf("numerics: %w", err)
		}
		if r.Numerics = numerics.Bytes(); r.Numerics[0] != '{' {
			return errors.New("numerics: not an object")
		}
		if err := json.Unmarshal(r.Numerics, &r.Declared); err != nil {
			return fmt.Errorf("numerics: %w", plain(err))
		}
		if err := r.Declared.Check(); err != nil {
			return fmt.Errorf("numerics: %w", err)
		}
	}
	switch r.Names = info.Names; r.Names {
	case "", NamesAuto, NamesHF, NamesLlamaCpp, NamesKarat:
	default:
		return fmt.Errorf("names: %q; want %s, %s, %s or %s", r.Names, NamesAuto, NamesHF, NamesLlamaCpp, NamesKarat)
	}
	r.decode, r.rows = info.Decode, info.Rows
	if info.Prompts == nil {
		return nil // the tensors tell which there are
	}
	return r.addPrompts(info.Prompts)
}

// addPrompts fills the record's prompts from a JSON list. An entry without
// an index has that of its place.
func (r *Record) addPrompts(list []byte) error {
	err := eachOf(list, func(n int, d *json.Decoder) error {
		p := Prompt{Index: n}
		entry := struct {
			*Prompt
			Chat, Messages Chat // other places for prompt.chat
		}{Prompt: &p}
		if err := d.Decode(&entry); err != nil {
			return err
		}
		if p.Input.Chat == nil {
			p.Input.Chat = slices.Concat(entry.Chat, entry.Messages)
		}
		if p.Index < 0 {
			return fmt.Errorf("index %d", p.Index)
		}
		i, ok := r.find(p.Index)
		if ok {
			return fmt.Errorf("index %d a second time", p.Index)
		}
		r.Prompts = slices.Insert(r.Prompts, i, &p)
		return nil
	})
	if err != nil {
		return fmt.Errorf("prompts: %w", err)
	}
	return nil
}

// eachOf calls decode for each element of a JSON list of at most maxPrompts.
// They are decoded one by one since short text makes large structs.
func eachOf(list []byte, decode func(i int, d *json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(list))
	if t, err := d.Token(); err != nil {
		return err
	} else if t != json.Delim('[') {
		return errors.New("not a list")
	}
	for i := 0; d.More(); i++ {
		if i == maxPrompts {
			return fmt.Errorf("more than %d", maxPrompts)
		}
		if err := decode(i, d); err != nil {
			return fmt.Errorf("entry %d: %w", i, plain(err))
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after the list")
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. A bare string is the text, a bare list
// the chat.
func (in *Input) UnmarshalJSON(b []byte) error {
	switch b[0] {
	case '"':
		return json.Unmarshal(b, &in.Text)
	case '[':
		return json.Unmarshal(b, &in.Chat)
	}
	type form Input
	return json.Unmarshal(b, (*form)(in))
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Chat) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	err := eachOf(b, func(_ int, d *json.Decoder) error {
		var m Message
		if err := d.Decode(&m); err != nil {
			return err
		}
		*c = append(*c, m)
		return nil
	})
	if err != nil {
		return fmt.Errorf("chat: %w", err)
	}
	return nil
}

// ReadInputs reads a list of prompts to record: a JSON list of objects, each
// with one of text, chat and ids, or of texts and chats themselves.
func ReadInputs(path string) (inputs []Input, err error) {
	err = readJSON(path, func(b []byte) error {
		inputs, err = parseInputs(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("prompts: %w", err)
	}
	if len(inputs) == 0 {
		return nil, fmt.Errorf("prompts: %s: the list is empty", path)
	}
	return inputs, nil
}

func parseInputs(b []byte) (inputs []Input, err error) {
	err = eachOf(b, func(_ int, d *json.Decoder) error {
		var in Input
		if err := d.Decode(&in); err != nil {
			return err
		}
		inputs = append(inputs, in)
		return in.check()
	})
	return inputs, err
}

// check reports an input that does not have exactly one form.
func (in *Input) check() error {
	forms := 0
	for _, has := range []bool{in.Text != nil, len(in.Chat) > 0, len(in.IDs) > 0} {
		if has {
			forms++
		}
	}
	switch {
	case forms == 0:
		return errors.New("there is no text, no chat and no ids: want one of them, and not empty")
	case forms > 1:
		return errors.New("text, chat and ids: want one of them, not several")
	}
	for i, id := range in.IDs {
		if id < 0 {
			return fmt.Errorf("ids: position %d: %d is negative", i, id)
		}
	}
	return nil
}
