package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

type editFlags struct {
	set, unset    []string
	template, out string
	json          bool
}

// templateKey is where a GGUF file has its chat template.
const templateKey = "tokenizer.chat_template"

func newEditCommand() *cobra.Command {
	var f editFlags
	c := &cobra.Command{
		Use:   "edit FILE.gguf",
		Short: "Change settings of a GGUF file",
		Long: `Edit writes a GGUF file with other metadata. The tensors stay as they are. The new file is written
beside the old one, opened as "karat run" would open it, and only then takes its place: what would
not load is refused, and an error leaves the old file as it was. It is never changed in place, whatever
the sizes: a write that breaks off would leave neither file. So there must be room for a copy.

--set takes KEY=TYPE:VALUE. TYPE is uint8, int8, uint16, int16, uint32, int32, uint64, int64,
float32, float64, bool or string, or one of them with [] behind and a JSON list as VALUE.
"karat inspect --metadata" prints the keys. "karat check" finds the ones that are wrong.`,
		Example: `  karat edit model.gguf --set general.name=string:Mine
  karat edit model.gguf --set tokenizer.ggml.eos_token_id=uint32:107 -o fixed.gguf
  karat edit model.gguf --unset tokenizer.chat_template
  karat edit model.gguf --chat-template chat.jinja -o fixed.gguf
  karat edit model.gguf --set llama.rope.freq_base=float32:500000 --json | jq '.changes[]'`,
		Args: byUse,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args[0]) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringArrayVar(&f.set, "set", nil, "`KEY=TYPE:VALUE` to set; may be given again")
	fs.StringArrayVar(&f.unset, "unset", nil, "`KEY` to remove; may be given again")
	fs.Var((*name)(&f.template), "chat-template", "set the chat template to the text of this `file`")
	fs.VarP((*name)(&f.out), "output", "o", "`file` to write (default: FILE.gguf itself)")
	alias(fs, "chat-template", "template")
	fs.BoolVar(&f.json, "json", false, "print the changes as one JSON object")
	return leadModel(c, false)
}

// options are the changes. A chat template is one that can be read.
func (f *editFlags) options() (o convert.EditOptions, err error) {
	o.Unset = f.unset
	for _, text := range f.set {
		kv, err := convert.ParseKeyValue(text)
		if err != nil {
			return o, usagef("--set %w", err)
		}
		o.Set = append(o.Set, kv)
	}
	if f.template != "" {
		text, err := (&chatFlags{file: f.template}).read()
		if err != nil {
			return o, err
		}
		o.Set = append(o.Set, gguf.KeyValue{Key: templateKey, Value: text})
	}
	for _, kv := range o.Set {
		text, ok := kv.Value.(string)
		if kv.Key == templateKey && ok {
			if _, err := chat.Parse(text, chat.Limits{}); err != nil {
				return o, fmt.Errorf("%s: %w", templateKey, err)
			}
		}
	}
	if len(o.Set)+len(o.Unset) == 0 {
		return o, usagef("no change: give --set, --unset or --template")
	}
	return o, nil
}

func (f *editFlags) run(c *cobra.Command, file string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if err := spare("-o "+f.out, f.out, f.template); err != nil {
		return err
	}
	found, err := namedModel(file)
	if err != nil {
		return err
	}
	out := f.out
	switch {
	case out == "" && found.Name != "":
		return usagef("%s is in the store of models, whose files are known by their hash: -o FILE writes another file", found.Name)
	case out == "":
		out = found.Path
	}
	ctx, stop := interruptible()
	defer stop()
	o.Loads = func(m *checkpoint.Checkpoint) error {
		_, _, err := model.Graph(ctx, m, 0)
		return err
	}
	changes, err := convert.Edit(ctx, found.Path, out, o)
	if errors.Is(err, context.Canceled) {
		return failure{statusInterrupted, fmt.Errorf("interrupted: %s was not written", out)}
	}
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if f.json {
		e := newEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"file": out, "changes": changes})
	}
	for _, x := range changes {
		was, is := x.Was, x.Is
		if was == "" {
			was = "(none)"
		}
		if is == "" {
			is = "(none)"
		}
		if _, err := fmt.Fprintf(w, "%s: %s -> %s\n", oneLine(x.Key), oneLine(was), oneLine(is)); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(w, "%s: %s\n", oneLine(out), count(len(changes), "change"))
	return err
}
