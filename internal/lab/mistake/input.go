package mistake

import (
	"errors"
	"fmt"
	"slices"

	"github.com/karat-run/karat/internal/lab"
)

// inputIDs are the faults of an engine's input.
var inputIDs = []string{"input_ids", "input_bos", "input_template"}

func isInput(id string) bool { return slices.Contains(inputIDs, id) }

// Tokens is a tokenizer, as far as faults of the input need it.
type Tokens struct {
	BOS    int32                                     // -1 if the tokenizer writes none
	Encode func(text string) ([]int32, error)        // of raw text, with the BOS in front
	Render func(chat []lab.Message) ([]int32, error) // of a chat, by the model's template
}

// Inputs changes the ids of prompts, not their text, and returns the answer key.
func Inputs(prompts []*lab.Prompt, faults []Fault, t Tokens) ([]Injected, error) {
	var all []Injected
	for _, f := range faults {
		if f.Where != "" || f.Layers != "" {
			return nil, fmt.Errorf("%v: it is in the input, and takes no layers", f)
		}
		in := Injected{Cause: f.ID, Fault: f.String(), Op: "Embed", Layers: []int{}, Positions: 1}
		for _, p := range prompts {
			ids, detail, err := t.change(p, f)
			if err != nil {
				return nil, fmt.Errorf("%v: prompt %d: %w", f, p.Index, err)
			}
			if len(ids) > 0 && !slices.Equal(ids, p.IDs) {
				in.Detail = detail
				if p.IDs = ids; p.Parts != nil {
					p.Parts = nil // an image's patches lie elsewhere now: all is taken for text
				}
			}
		}
		if in.Detail == "" {
			return nil, fmt.Errorf("%v: it would change no prompt", f)
		}
		all = append(all, in)
	}
	return all, nil
}

// change returns the ids of a prompt in an engine with the fault.
func (t *Tokens) change(p *lab.Prompt, f Fault) (ids []int32, detail string, err error) {
	switch f.ID + "=" + f.Value {
	case "input_bos=":
		if len(p.IDs) > 1 && p.IDs[0] == t.BOS {
			return p.IDs[1:], "the BOS token is missing", nil
		}
		return p.IDs, "", nil
	case "input_bos=double":
		if t.BOS < 0 {
			return nil, "", errors.New("the tokenizer has no BOS token")
		}
		return append([]int32{t.BOS}, p.IDs...), "a BOS token too many", nil
	case "input_template=":
		return t.template(p)
	case "input_ids=":
		ids, err = t.pieces(p)
		return ids, "the text is encoded character by character", err
	case "input_ids=lost":
		at := len(p.IDs) / 2
		return slices.Delete(slices.Clone(p.IDs), at, at+1), "the token in the middle is lost", nil
	}
	return nil, "", fmt.Errorf("value %q is not possible", f.Value)
}

// template renders raw text as a chat, and a chat as the raw text of its messages.
func (t *Tokens) template(p *lab.Prompt) (ids []int32, detail string, err error) {
	switch {
	case p.Input.Text != nil:
		ids, err = t.Render([]lab.Message{{Role: "user", Content: *p.Input.Text}})
		return ids, "raw text has the chat template", err
	case p.Input.Chat != nil:
		text := ""
		for _, m := range p.Input.Chat {
			text += m.Content
		}
		ids, err = t.Encode(text)
		return ids, "a chat has no template", err
	}
	return p.IDs, "", nil
}

// pieces encodes each character alone, as if there were no merges.
func (t *Tokens) pieces(p *lab.Prompt) ([]int32, error) {
	if p.Input.Text == nil {
		return p.IDs, nil
	}
	var ids []int32
	for _, r := range *p.Input.Text {
		piece, err := t.Encode(string(r))
		if err != nil {
			return nil, err
		}
		if len(piece) > 0 && piece[0] == t.BOS && ids != nil {
			piece = piece[1:]
		}
		ids = append(ids, piece...)
	}
	return ids, nil
}
