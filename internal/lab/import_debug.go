//go:build !karat_wasmsimd

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/safetensors"
)

// debugTrees end the names of the two JSON files of a model's class.
var debugTrees = []string{"_debug_tree_FULL_TENSORS.json", "_debug_tree_SUMMARY.json"}

// debugClass returns the class of the model whose tree lies in the folder at dir.
func debugClass(dir string) (string, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return "", patherr.Plain(err)
	}
	class := ""
	for _, f := range files {
		for _, end := range debugTrees {
			if name, ok := strings.CutSuffix(f.Name(), end); ok && name != class {
				if class != "" {
					return "", fmt.Errorf("trees of %q and %q; one is read", class, name)
				}
				class = name
			}
		}
	}
	if class == "" {
		return "", errors.New("no " + debugTrees[0])
	}
	return class, nil
}

// importDebug reads the tensors of a call that transformers.model_addition_debugger_context wrote: a safetensors
// file of one tensor each, called CLASS for the model or CLASS.MODULE, and behind that
// _inputs_args_0, _inputs_kwargs_hidden_states, _outputs (of modules without others in them) or _outputs_0.
func importDebug(dir string) (*Import, error) {
	class, err := debugClass(dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	d := debugTree{prompt: &Prompt{}}
	for _, f := range files {
		kind, name := debugName(f.Name(), class)
		if kind == "" {
			continue
		}
		if err = d.open(root, dir, f.Name(), kind, name); err != nil {
			err = fmt.Errorf("%q: %w", f.Name(), err)
			break
		}
	}
	if err == nil && len(d.maps) == 0 {
		err = errors.New("no tensors: the tree's JSON file holds them rounded and shortened; make it with " +
			"model_addition_debugger_context(model, debug_path, do_prune_layers=False, use_repr=False)")
	}
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Import{Form: FormHFDebug, Names: NamesHF, count: 1,
		prompt: func(int) (*Prompt, error) { return d.prompt, nil }, file: &d,
		Notes: []string{"the tree has no outputs of modules with others in them: a layer's is what the next one " +
			"reads"}}, nil
}

// debugTree is the prompt of a tree and its open files.
type debugTree struct {
	prompt *Prompt
	maps   []*safetensors.File
}

// check reports a prompt that cannot be written, or that has no values.
func (d *debugTree) check() error {
	if p := d.prompt; len(p.IDs) == 0 && p.Logits == nil && len(p.Taps) == 0 {
		return errors.New("no ids, logits or outputs of modules that a record holds")
	}
	return d.prompt.check()
}

func (d *debugTree) Close() error {
	var errs []error
	for _, f := range d.maps {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// debugEnds lists the endings of a module's files, and the ending of the tap's name for each.
var debugEnds = []struct{ end, tap string }{
	{"_outputs", ".out"}, {"_outputs_0", ".out"}, {"_inputs_args_0", ".in"}, {"_inputs_kwargs_hidden_states", ".in"},
	{"_inputs_kwargs_x", ".in"},
}

// debugName returns the kind of a file's contents, ids, logits or tap, and the tap's name. The kind is "" for other
// files.
func debugName(file, class string) (kind, tap string) {
	name, ok := strings.CutSuffix(file, ".safetensors")
	if name, ok = cut(name, class, ok); !ok {
		return "", ""
	}
	switch name {
	case "_inputs_args_0", "_inputs_kwargs_input_ids":
		return "ids", ""
	case "_outputs_logits", "_outputs_0":
		return "logits", ""
	}
	if name, ok = cut(name, ".", ok); !ok {
		return "", ""
	}
	for _, e := range debugEnds {
		if module, ok := strings.CutSuffix(name, e.end); ok && module != "" {
			return "tap", module + e.tap
		}
	}
	return "", ""
}

// cut returns the result of strings.CutPrefix if ok, else false.
func cut(s, prefix string, ok bool) (string, bool) {
	rest, found := strings.CutPrefix(s, prefix)
	return rest, ok && found
}

func (d *debugTree) open(root *os.Root, dir, name, kind, tap string) error {
	if len(d.maps) == maxArrays {
		return fmt.Errorf("more than %d tensors", maxArrays)
	}
	if _, err := root.Stat(name); err != nil { // which is where a link out of the folder ends
		return err
	}
	f, err := safetensors.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	d.maps = append(d.maps, f)
	for i := range f.Tensors {
		f.Tensors[i].Name = name
	}
	return mmap.Guard(func() error { return d.add(f, kind, tap) })
}

// add adds what a file holds.
func (d *debugTree) add(f *safetensors.File, kind, tap string) error {
	if len(f.Tensors) != 1 {
		return fmt.Errorf("%d tensors, want 1", len(f.Tensors))
	}
	t := f.Tensors[0]
	t.Shape = slices.Clone(t.Shape)
	if kind != "tap" {
		dims := map[string]int{"ids": 1, "logits": 2}[kind]
		if len(t.Shape) == dims+1 {
			if t.Shape[0] != 1 {
				return fmt.Errorf("shape %v: a batch; of one sequence it is read", []int(t.Shape))
			}
			t.Shape = t.Shape[1:]
		}
	}
	switch {
	case kind == "tap" && !t.DType.Float(): // such as a mask, or ids
		return nil
	case kind == "tap" && (strings.ContainsFunc(tap, unprintable) || !utf8.ValidString(tap)):
		return fmt.Errorf("tap %q: not a name of a record", tap)
	case kind == "tap":
		return d.prompt.add("tap."+tap, &t)
	}
	return d.prompt.add(kind, &t)
}
