package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// editFlags are the flags of edit.
type editFlags struct {
	set, unset    []string
	template, out string
	json          bool
}

// templateKey is the key of a GGUF file's chat template.
const templateKey = "tokenizer.chat_template"

func newEditCommand() *cobra.Command {
	var f editFlags
	c := define("edit", f.run)
	c.flags("set", &f.set, "unset", &f.unset, "chat-template", file(&f.template), "output", file(&f.out), "json",
		&f.json)
	alias(c.Flags(), "chat-template", "template")
	c.takesModel()
	return c.Command
}

// options returns the changes, with a readable chat template.
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
		text := must((&chatFlags{file: f.template}).read())
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

func (f *editFlags) run(x *call) error {
	o := must(f.options())
	throw(refuseOverwrite("-o "+f.out, f.out, f.template))
	must(x.find())
	found := must(namedModel(x.model.name))
	out := f.out
	switch {
	case out == "" && found.Name != "":
		return usagef("%s is in the store of models, whose files are known by their hash: -o FILE writes another file",
			found.Name)
	case out == "":
		out = found.Path
	}
	o.Loads = x.checkLoads
	changes, err := convert.Edit(x.ctx, found.Path, out, o)
	if err != nil {
		return x.unwritten(err, out)
	}
	if f.json {
		return x.json(map[string]any{"file": out, "changes": changes})
	}
	return writeChanges(x.out, out, changes, "")
}

// checkLoads returns the error of a model impossible to load.
func (x *call) checkLoads(m *checkpoint.Checkpoint) error {
	_, _, err := model.Graph(x.ctx, m, 0)
	return err
}

// writeChanges prints the changes to the metadata of a file.
func writeChanges(w io.Writer, file string, changes []convert.Change, end string) error {
	for _, c := range changes {
		was, is := cmp.Or(c.Was, "(none)"), cmp.Or(c.Is, "(none)")
		if _, err := fmt.Fprintf(w, "%s: %s -> %s\n", oneLine(c.Key), oneLine(was), oneLine(is)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n%s", oneLine(file), count(len(changes), "change"), end)
	return err
}
