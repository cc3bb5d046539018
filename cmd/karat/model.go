package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// modelArg is the MODEL of a command, after -m or before all other arguments.
type modelArg struct {
	name         string // in the user's form; "" is the embedded demo
	pull, noPull bool
}

// takesModel registers -m, --pull and --no-pull. A command whose usage does not put MODEL in brackets has no demo.
func (c *command) takesModel() {
	a := new(modelArg)
	c.model = a
	f := c.flag("model", (*name)(&a.name))
	if strings.Fields(c.Use)[1][0] != '[' {
		f.Usage = strings.TrimSuffix(f.Usage, " (default: the embedded demo)")
	}
	c.flags("pull", &a.pull, "no-pull", &a.noPull)
	c.MarkFlagsMutuallyExclusive("pull", "no-pull")
	c.complete("model", completeModels)
	c.ValidArgsFunction = func(of *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !strings.Contains(c.Use, "[MODEL...]") || a.name != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return completeModels(of, args, text)
	}
}

// completeModels completes the names of the store, and else files.
func completeModels(*cobra.Command, []string, string) (names []string, d cobra.ShellCompDirective) {
	if s, err := openStore(); err == nil {
		defer s.Close()
		all, _ := s.List()
		for _, m := range all {
			names = append(names, m.Name)
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}

// lead takes MODEL from the arguments, unless -m has MODEL, and returns the others. The first argument is MODEL for a
// command with otherwise optional arguments, else if there are more arguments than the command needs without MODEL.
func (a *modelArg) lead(c *cobra.Command, args []string) ([]string, error) {
	words := strings.Fields(c.Use)[1:]
	alone := words[0][0] != '[' || len(words) == 1 || words[1][0] == '[' || words[1][0] == '-'
	switch {
	case a.name != "" || len(args) == 0 || len(args) == 1 && !alone:
		return args, nil
	case args[0] == "":
		return nil, usagef("MODEL is empty; leave it out to use the embedded demo")
	}
	a.name = args[0]
	return args[1:], nil
}

// textArgs takes MODEL from the arguments of a command with up to n texts after MODEL, and returns the texts. A first
// argument also possible as a text is MODEL if it looks like a model.
func (x *call) textArgs(n int) ([]string, error) {
	a, args := x.model, x.args
	switch {
	case a.name != "" || len(args) == 0:
	case namesModel(args[0]):
		a.name, args = args[0], args[1:]
	case len(args) > n:
		return nil, usagef("%q is no model: no file, folder, pulled name or reference; quote the prompt if it has "+
			"several words", args[0])
	}
	if len(args) > n {
		return nil, usagef("%s after MODEL, at most %d: quote the prompt", count(len(args), "argument"), n)
	}
	return args, nil
}

// modelSpelling matches a MODEL by its spelling alone: x.gguf, ./x, /x, or NAME:TAG.
var modelSpelling = regexp.MustCompile(
	`^(\S+\.(gguf|GGUF|safetensors)|\.{0,2}/\S*|[A-Za-z0-9][A-Za-z0-9._-]*:[A-Za-z0-9][A-Za-z0-9._-]*)$`)

// namesModel reports whether an argument is meant as a MODEL, not as a text.
func namesModel(arg string) bool {
	if arg == "" {
		return false
	}
	if hub.IsReference(arg) || modelSpelling.MatchString(arg) || filepath.IsAbs(arg) &&
		!strings.ContainsAny(arg, " \n") {
		return true
	}
	_, err := hub.Find(arg)
	if hub.CheckName(arg) == nil {
		return err == nil
	}
	_, err = os.Stat(arg)
	return err == nil
}

// look returns the path of MODEL, "" for the demo, or reports a reference not pulled yet.
func (x *call) look(a *modelArg) (path string, absent bool, err error) {
	path, err = findModel(a.name)
	if err == nil && path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			hint := ""
			if x.Flags().ShorthandLookup("p") != nil && !x.changed("model") {
				hint = "; a prompt that looks like a file's name goes after -p"
			}
			return "", false, fmt.Errorf("%s: no such file or folder%s", a.name, hint)
		}
	}
	switch {
	case err == nil || !errors.Is(err, local.ErrNoModel) || !hub.IsReference(a.name):
		return path, false, err
	case a.noPull || !a.pull && !isTerminal(x.in):
		return "", false, fmt.Errorf("%s is not here yet: \"karat pull %s\" downloads it, or add --pull",
			oneLine(a.name), oneLine(a.name))
	}
	return "", true, nil
}

// find returns the path of MODEL, "" for the demo. find pulls an absent reference, at the wish of the flags or the
// user.
func (x *call) find() (string, error) { return x.findNamed(x.model) }

// findNamed finds any MODEL.
func (x *call) findNamed(a *modelArg) (string, error) {
	path, absent, err := x.look(a)
	if err != nil || !absent {
		return path, err
	}
	s, err := openStore()
	if err != nil {
		return "", err
	}
	defer s.Close()
	p := newProgress(x.log, a.name)
	begin := func(files int, size int64) error {
		what := count(files, "file")
		if size >= 0 {
			what += ", " + bytesText(size)
		}
		fmt.Fprintf(x.log, "karat: %s is not here yet: %s.", oneLine(a.name), what)
		if a.pull {
			fmt.Fprintln(x.log)
		} else if !confirm(x.ctx, x.in, x.log, " Download? [Y/n] ") {
			return failure{statusError, errors.New("nothing was downloaded")}
		}
		p = newProgress(x.log, a.name)
		return nil
	}
	m, err := s.Pull(x.ctx, a.name, hub.PullOptions{Note: x.note, Begin: begin, Progress: func(at hub.Progress) {
		p.download(at)
	}})
	p.end()
	if err != nil {
		return "", x.orInterrupted(err, keptPull)
	}
	return s.Path(m)
}

// confirm asks a question, and reports whether the answer is yes or an empty line.
func confirm(ctx context.Context, in io.Reader, log io.Writer, question string) bool {
	fmt.Fprint(log, question)
	answer, err := awaitRead(ctx, func() (string, error) { return bufio.NewReaderSize(in, 16).ReadString('\n') })
	if err != nil {
		fmt.Fprintln(log)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return err == nil && (answer == "" || answer == "y" || answer == "yes")
}

// load finds MODEL and loads it.
func (x *call) load(o karat.Options) (*karat.Model, error) {
	path := must(x.find())
	return loadModel(x.ctx, path, o, x.log)
}

// loadModel loads the model at path, or the demo if path is empty. loadModel shows the progress of a load longer than a
// second, and notes about the model for the user.
func loadModel(ctx context.Context, path string, o karat.Options, log io.Writer) (m *karat.Model, err error) {
	sayDemo(path, log)
	p := newLateProgress(log, path)
	defer p.end()
	o.Progress = p.bytes
	if path == "" {
		m, err = karat.LoadSources(ctx, []karat.Source{{Name: demoName, Data: demo}}, o)
	} else {
		m, err = karat.Load(ctx, path, o)
	}
	if err != nil {
		return nil, explainBudget(err)
	}
	info := m.Info()
	for _, n := range info.Notes {
		fmt.Fprintln(log, "karat: note:", oneLine(n))
	}
	if info.MaxContext > 0 && info.Context > info.MaxContext {
		fmt.Fprintf(log, "karat: note: a context of %s, but the model was made for %d\n", count(info.Context, "token"),
			info.MaxContext)
	}
	return m, nil
}

// newLateProgress returns a progress shown after a second.
func newLateProgress(log io.Writer, path string) *progress {
	p := newProgress(log, path)
	p.last = p.start.Add(time.Second)
	return p
}

// openFiles opens the model at path, or the demo, without running it. Its graph is for sequences of tokens tokens.
func (x *call) openFiles(path, projector string, tokens int) (*model.Files, error) {
	c, err := openCheckpoint(path)
	if err == nil {
		err = checkpoint.FitProjector(c, projector)
	}
	if err != nil {
		return nil, err
	}
	m, err := model.OpenFiles(x.ctx, c, tokens)
	if err != nil {
		return nil, err
	}
	return m, x.chooseGraph(m, tokens)
}

// chooseGraph gives m the graph of its head for drafts, if wanted. An error closes m.
func (x *call) chooseGraph(m *model.Files, tokens int) (err error) {
	if x.head {
		if m.Graph, _, err = arch.Drafter(m.Checkpoint, tokens); err != nil {
			return errors.Join(err, m.Close())
		}
	}
	return nil
}

// openCheckpoint opens the model at path, or the demo if path is empty.
func openCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	if path == "" {
		return checkpoint.Parse(demoName, demo)
	}
	path, err := findModel(path)
	if err != nil {
		return nil, err
	}
	return checkpoint.Open(path)
}

// findModel returns the path of a MODEL: a path, a name of the store, or a reference already pulled. "" is the demo.
func findModel(model string) (string, error) {
	f, err := namedModel(model)
	return f.Path, err
}

// namedModel returns the path of findModel, with the model's name in the store if any.
func namedModel(model string) (local.Found, error) {
	if model == "" {
		return local.Found{}, nil
	}
	return hub.Find(model)
}

// resolve replaces MODELs of flags by their paths. An unknown model stays a name, for the error of opening it: by then
// the command has checked its other flags.
func resolve(models ...*string) {
	for _, m := range models {
		if path, err := findModel(*m); err == nil {
			*m = path
		}
	}
}

// demo is a Gemma 3 of 18.9 million parameters, trained on Go source and generated sentences, in Q4_K_M.
//
//go:embed demo.gguf
var demo []byte

// demoName stands for the demo's path in messages.
const demoName = "demo.gguf (embedded)"

// sayDemo announces the demo, for an empty path.
func sayDemo(path string, log io.Writer) {
	if path == "" {
		fmt.Fprintln(log, "karat: no MODEL was given: this is the embedded demo, a tiny Gemma 3")
	}
}
