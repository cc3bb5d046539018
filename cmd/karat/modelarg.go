package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// modelArg is the MODEL of a command, which stands after -m or before all other arguments. A command calls add for its
// flags, take or takeBefore for its arguments, and find once it has checked its flags.
type modelArg struct {
	name         string // as the user wrote it; "" is the embedded demo
	pull, noPull bool
}

// add registers -m, --pull and --no-pull. A command that needs a MODEL has no demo.
func (a *modelArg) add(c *cobra.Command, needed bool) {
	usage := "`MODEL`: a file, a folder, a pulled name or a reference"
	if !needed {
		usage += " (default: the embedded demo)"
	}
	fs := c.Flags()
	fs.VarP((*name)(&a.name), "model", "m", usage)
	fs.BoolVar(&a.pull, "pull", false, "download a MODEL that is not here yet, without asking")
	fs.BoolVar(&a.noPull, "no-pull", false, "never download a MODEL")
	c.MarkFlagsMutuallyExclusive("pull", "no-pull")
	if err := c.RegisterFlagCompletionFunc("model", completeModels); err != nil {
		panic(err) // a name twice in the program
	}
	c.ValidArgsFunction = a.complete
}

// take takes MODEL from the arguments, where -m does not name it, and returns the others.
func (a *modelArg) take(args []string) ([]string, error) {
	switch {
	case a.name != "" || len(args) == 0:
		return args, nil
	case args[0] == "":
		return nil, usagef("MODEL is empty; leave it out to use the embedded demo")
	}
	a.name = args[0]
	return args[1:], nil
}

// takeBefore is take for a command that takes up to n texts after MODEL, or any number with -1. A first argument that can
// be a text is MODEL if it looks like one.
func (a *modelArg) takeBefore(args []string, n int) ([]string, error) {
	switch {
	case a.name != "" || len(args) == 0:
	case namesModel(args[0]):
		a.name, args = args[0], args[1:]
	case n >= 0 && len(args) > n:
		return nil, usagef("%q is no model: no file, folder, pulled name or reference; quote the prompt if it has several words", args[0])
	}
	if n >= 0 && len(args) > n {
		return nil, usagef("%s after MODEL, at most %d: quote the prompt", count(len(args), "argument"), n)
	}
	return args, nil
}

// aModel is a MODEL by its spelling alone: x.gguf, ./x, /x, or NAME:TAG.
var aModel = regexp.MustCompile(`^(\S+\.(gguf|GGUF|safetensors)|\.{0,2}/\S*|[A-Za-z0-9][A-Za-z0-9._-]*:[A-Za-z0-9][A-Za-z0-9._-]*)$`)

// namesModel reports whether an argument is meant as a MODEL, not as a text.
func namesModel(arg string) bool {
	if arg == "" {
		return false
	}
	if hub.IsReference(arg) || aModel.MatchString(arg) || filepath.IsAbs(arg) && !strings.ContainsAny(arg, " \n") {
		return true
	}
	_, err := hub.Find(arg)
	if hub.CheckName(arg) == nil {
		return err == nil
	}
	_, err = os.Stat(arg)
	return err == nil
}

// look returns the path of MODEL, "" for the demo, or that it is a reference that may be pulled.
func (a *modelArg) look(c *cobra.Command) (path string, absent bool, err error) {
	path, err = findModel(a.name)
	if err == nil && path != "" {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			hint := ""
			if c.Flags().ShorthandLookup("p") != nil && !c.Flags().Changed("model") {
				hint = "; a prompt that looks like a file's name goes after -p"
			}
			return "", false, fmt.Errorf("%s: no such file or folder%s", a.name, hint)
		}
	}
	switch {
	case err == nil || !errors.Is(err, local.ErrNoModel) || !hub.IsReference(a.name):
		return path, false, err
	case a.noPull || !a.pull && !isTerminal(c.InOrStdin()):
		return "", false, fmt.Errorf("%s is not here yet: \"karat pull %s\" downloads it, or add --pull", oneLine(a.name), oneLine(a.name))
	}
	return "", true, nil
}

// find returns the path of MODEL, "" for the demo. It pulls a reference that is not there, if the flags or the user want so.
func (a *modelArg) find(c *cobra.Command) (string, error) {
	path, absent, err := a.look(c)
	if err != nil || !absent {
		return path, err
	}
	s, err := openStore()
	if err != nil {
		return "", err
	}
	defer s.Close()
	ctx, stop := untilSignal()
	defer stop()
	log := c.ErrOrStderr()
	var p *pullProgress
	o := hub.PullOptions{
		Note: func(text string) { fmt.Fprintln(log, "karat: note:", oneLine(text)) },
		Begin: func(files int, size int64) error {
			what := count(files, "file")
			if size >= 0 {
				what += ", " + bytesText(size)
			}
			fmt.Fprintf(log, "karat: %s is not here yet: %s.", oneLine(a.name), what)
			if !a.pull && !confirm(ctx, c.InOrStdin(), log, " Download? [Y/n] ") {
				return failure{statusError, errors.New("nothing was downloaded")}
			} else if a.pull {
				fmt.Fprintln(log)
			}
			p = &pullProgress{progress: newProgress(log, a.name)}
			return nil
		},
		Progress: func(at hub.Progress) { p.report(at) },
	}
	m, err := s.Pull(ctx, a.name, o)
	if p != nil {
		p.end()
	}
	if err != nil {
		return "", interruptedPull(ctx, err)
	}
	return s.Path(m)
}

// confirm asks a question, and reports whether the answer is yes or an empty line.
func confirm(ctx context.Context, in io.Reader, log io.Writer, question string) bool {
	fmt.Fprint(log, question)
	answer, err := awaited(ctx, func() (string, error) { return bufio.NewReaderSize(in, 16).ReadString('\n') })
	if err != nil {
		fmt.Fprintln(log)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return err == nil && (answer == "" || answer == "y" || answer == "yes")
}

// leadModel lets -m stand for the leading MODEL of a command, whose handler finds MODEL at the start of its arguments. finds
// resolves MODEL; a command without it words the errors of MODEL itself.
func leadModel(c *cobra.Command, finds bool) *cobra.Command {
	a := new(modelArg)
	first := strings.Fields(c.Use)[1]
	a.add(c, first[0] != '[')
	check, run := c.Args, c.RunE
	c.Args = func(c *cobra.Command, args []string) error {
		if a.name != "" {
			args = append([]string{a.name}, args...)
		}
		if check == nil {
			return nil
		}
		return check(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if a.name != "" {
			args = append([]string{a.name}, args...)
		} else if !a.leads(c, args) {
			return run(c, args)
		} else if a.name = args[0]; a.name == "" {
			return usagef("MODEL is empty; leave it out to use the embedded demo")
		}
		if finds {
			path, err := a.find(c)
			if err != nil {
				return err
			}
			args = append([]string{path}, args[1:]...)
		}
		return run(c, args)
	}
	return c
}

// leads reports whether the first argument is MODEL: always for a command whose other arguments may be missing, else if
// there are more arguments than the command needs without it.
func (a *modelArg) leads(c *cobra.Command, args []string) bool {
	words := strings.Fields(c.Use)[1:]
	return len(args) > 1 || len(args) == 1 && (words[0][0] != '[' || len(words) == 1 || words[1][0] == '[' || words[1][0] == '-')
}

// complete completes MODEL, each one of several, and other arguments as files.
func (a *modelArg) complete(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(c.Use, "[MODEL...]") || a.name != "" {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return completeModels(c, args, text)
}

// renamed lets the old name of a flag say the new one.
func renamed(fs *pflag.FlagSet, old, letter, hint string) {
	fs.AddFlag(&pflag.Flag{Name: old, Shorthand: letter, Usage: hint, Value: goneFlag(hint), Hidden: true, NoOptDefVal: "true"})
}

// goneFlag is the value of a flag that there is no more: what to give instead.
type goneFlag string

func (g goneFlag) String() string   { return "" }
func (g goneFlag) Type() string     { return "gone" }
func (g goneFlag) Set(string) error { return goneError{errors.New(string(g))} }

// goneError is the error of a flag that there is no more. It needs no words of the parser of flags.
type goneError struct{ error }

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

// sameFlag is the value of an alias: it sets the flag itself.
type sameFlag struct{ *pflag.Flag }

func (s sameFlag) String() string { return s.Value.String() }
func (s sameFlag) Type() string   { return s.Value.Type() }

func (s sameFlag) Set(text string) error {
	err := s.Value.Set(text)
	s.Changed = s.Changed || err == nil
	return err
}

// alias gives a flag more names, which help does not list.
func alias(fs *pflag.FlagSet, of string, names ...string) {
	f := fs.Lookup(of)
	for _, n := range names {
		fs.AddFlag(&pflag.Flag{Name: n, Usage: "--" + of, Value: sameFlag{f}, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal, Hidden: true})
	}
}

// addContext registers -c, --ctx, the length of a model's context in each command.
func addContext(fs *pflag.FlagSet, to *int, usage string) {
	fs.IntVarP(to, "ctx", "c", 0, usage)
	alias(fs, "ctx", "ctx-size", "num-ctx", "context")
}

// addThreads registers -t, --threads.
func addThreads(fs *pflag.FlagSet, to *int) {
	fs.IntVarP(to, "threads", "t", 0, "`number` of threads (default: one for each usable core)")
}

// addMost registers -n, --tokens, the maximum number of tokens to generate.
func addMost(fs *pflag.FlagSet, to *int, most int, usage string) {
	fs.IntVarP(to, "tokens", "n", most, usage)
	alias(fs, "tokens", "max-tokens", "n-predict", "num-predict")
}
