package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/jsonerr"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/spelling"
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
		if err := r.addPrompts(b); err != nil || len(r.Prompts) > 0 {
			return err
		}
		return errors.New("prompts: the list is empty")
	}
	var info recordInfo
	if err := json.Unmarshal(b, &info); err != nil {
		return plain(err)
	}
	if err := misspelt(b, recordFields); err != nil {
		return err
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
		var b json.RawMessage
		if err := d.Decode(&b); err != nil {
			return err
		}
		p := Prompt{Index: n}
		entry := struct {
			*Prompt
			Chat, Messages Chat // other places for prompt.chat
		}{Prompt: &p}
		if err := json.Unmarshal(b, &entry); err != nil {
			return err
		}
		if err := misspelt(b, promptFields); err != nil {
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

// The fields of a record's JSON file, manifests included, and of a prompt there.
var (
	recordFields = append([]string{"prompts", "names", "numerics"}, promptFields...)
	promptFields = []string{"index", "prompt", "text", "ids", "positions_kept", "next", "next_id", "next_probability",
		"entropy", "decode", "position_parts", "rows", "greedy_ids", "greedy_text", "float32", "bfloat16", "chat",
		"messages", "token_ids", "input_ids", "rendered_prompt", "logits", "hidden", "taps", "files", "tensors",
		"arrays"}
)

// misspelt returns an error for a field of an object that looks like a known field. Fields of other names are the
// author's notes.
func misspelt(object []byte, known []string) error {
	var fields jsonObject
	if !bytes.ContainsRune(object, '"') || json.Unmarshal(object, &fields) != nil {
		return nil // no fields
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		is := func(k string) bool { return strings.EqualFold(name, k) }
		near := func(k string) bool { return spelling.Distance(name, k) <= (len(k)+1)/4 }
		if i := slices.IndexFunc(known, near); i >= 0 && !slices.ContainsFunc(known, is) && len(name) <= maxNear {
			return fmt.Errorf("there is no field %q: did you mean %q?", name, known[i])
		}
	}
	return nil
}

// eachOf calls decode for each element of a JSON list of at most maxPrompts.
// They are decoded one by one since short text makes large structs.
func eachOf(list []byte, decode func(i int, d *json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(list))
	if t, err := d.Token(); err == io.EOF {
		return errors.New("the file is empty")
	} else if err != nil {
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
