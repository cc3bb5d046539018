package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/backend/webgpu"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/quantmix"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpText has the words of all commands and flags. Each part begins with "=== " and a command's usage.
//
//go:embed help.txt
var helpText string

// words are a command's part of the help.
type words struct {
	use, short, long, example string
	flags                     map[string]flagWords
}

// flagWords are the letter and the usage of a flag.
type flagWords struct{ letter, usage string }

// sharedFlags is the part of the help for flags that several commands have.
const sharedFlags = "shared"

// helpWords returns the parts of the help by the names of their commands: "lab record".
var helpWords = sync.OnceValue(func() map[string]*words {
	text := strings.NewReplacer("{types}", wrapped(strings.Join(quantmix.Names(), ", "), 15), "{fusions}", strings.Join(webgpu.Fusions, ", "),
		"{forms}", strings.Join(lab.Forms, ", ")).Replace(helpText)
	all := map[string]*words{}
	for _, part := range strings.Split("\n"+text, "\n=== ")[1:] {
		head, body, _ := strings.Cut(part, "\n")
		name := strings.TrimPrefix(strings.TrimSpace(commandPath.FindString(head)), "karat")
		w := &words{use: strings.TrimSpace(strings.TrimPrefix(head, "karat"+name[:strings.LastIndexByte(name, ' ')+1]))}
		w.short, body, _ = strings.Cut(body, "\n")
		body, flags, _ := strings.Cut(body, "\nFlags:\n")
		w.long, w.example, _ = strings.Cut(body, "\nExamples:\n")
		w.long, w.example = strings.TrimSpace(w.long), strings.TrimRight(w.example, "\n")
		w.flags = readFlags(flags)
		all[strings.TrimSpace(name)] = w
	}
	return all
})

// commandPath matches the names of a command in a usage, before its arguments.
var commandPath = regexp.MustCompile(`^[a-z]+( [a-z]+)*`)

// readFlags reads lines as "-o, --output  `file` to write". A line that is indented further goes on with the one before.
func readFlags(text string) map[string]flagWords {
	all := map[string]flagWords{}
	for _, line := range strings.Split(strings.ReplaceAll(text, "\n      ", " "), "\n") {
		head, usage, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if letter, name, _ := strings.Cut(head, "--"); ok {
			all[name] = flagWords{strings.Trim(letter, "-, "), usage}
		}
	}
	return all
}

// wrapped breaks a list between its words, so that lines have at most 98 columns. The first line begins at a column.
func wrapped(list string, column int) string {
	var b strings.Builder
	for i, word := range strings.Fields(list) {
		if column += len(word) + 1; column > 98 {
			b.WriteByte('\n')
			column = len(word)
		} else if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(word)
	}
	return b.String()
}

// command is a command that is being made.
type command struct {
	*cobra.Command
	words *words
	model *modelArg // nil for a command without MODEL
	texts bool      // texts follow MODEL, and the command tells MODEL from them
}

// define begins the command of a name, such as "lab record". Its words are in the help.
func define(name string, run func(*call) error) *command {
	w := helpWords()[name]
	c := &command{words: w, Command: &cobra.Command{Use: w.use, Short: w.short, Long: w.long, Example: w.example}}
	c.Flags().SortFlags = false
	if run == nil {
		return c
	}
	c.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case c.texts:
			return nil
		case c.model != nil && c.model.name != "":
			args = append([]string{c.model.name}, args...)
		}
		return byUse(c.Command, args)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		x := &call{command: c, args: args, in: c.InOrStdin(), out: c.OutOrStdout(), log: c.ErrOrStderr()}
		x.ctx, x.stop = interruptible()
		defer func() { x.stop() }()
		if c.model != nil && !c.texts {
			var err error
			if x.args, err = c.model.lead(c.Command, args); err != nil {
				return err
			}
		}
		err := run(x)
		if f := (failure{}); err != nil && x.ctx.Err() != nil && !errors.As(err, &f) {
			return x.interrupted("")
		}
		return err
	}
	return c
}

// group makes a command of one that only holds others: it prints help, also for "karat lab help", and suggests a name
// for one that it does not have.
func group(c *command, subcommands ...*cobra.Command) *cobra.Command {
	c.AddCommand(subcommands...)
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 || len(args) == 1 && args[0] == "help" {
			return c.Help()
		}
		var names []string
		for _, sub := range c.Commands() {
			names = append(names, sub.Name())
		}
		hint := ""
		if near := nearest(args[0], names); near != "" {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		return usagef("there is no command %q%s", args[0], hint)
	}
	return c.Command
}

// otherNames are names that flags have in other programs and older versions. Help does not list them.
var otherNames = map[string][]string{"ctx": {"ctx-size", "num-ctx", "context"}, "tokens": {"max-tokens", "n-predict", "num-predict", "gen"},
	"temp": {"temperature"}, "decode-last": {"decode"}, "by-layer": {"layers"}}

// flags registers flags, each by its name in the help and a pointer to its value, which is the default, or a function
// that takes a value.
func (c *command) flags(pairs ...any) {
	for i := 0; i < len(pairs); i += 2 {
		c.flag(pairs[i].(string), pairs[i+1])
	}
}

// flag registers a flag.
func (c *command) flag(name string, to any) *pflag.Flag {
	w, ok := c.words.flags[name]
	if !ok {
		if w, ok = helpWords()[sharedFlags].flags[name]; !ok {
			panic("the help has no flag " + name)
		}
	}
	fs := c.Flags()
	switch to := to.(type) {
	case *string:
		fs.StringVarP(to, name, w.letter, *to, w.usage)
	case *bool:
		fs.BoolVarP(to, name, w.letter, *to, w.usage)
	case *int:
		fs.IntVarP(to, name, w.letter, *to, w.usage)
	case *uint16:
		fs.Uint16VarP(to, name, w.letter, *to, w.usage)
	case *uint64:
		fs.Uint64VarP(to, name, w.letter, *to, w.usage)
	case *float64:
		fs.Float64VarP(to, name, w.letter, *to, w.usage)
	case *[]string:
		fs.StringArrayVarP(to, name, w.letter, *to, w.usage)
	case *commaList:
		fs.StringSliceVarP((*[]string)(to), name, w.letter, *to, w.usage)
	case *[]int:
		fs.IntSliceVarP(to, name, w.letter, *to, w.usage)
	case func(string) error:
		fs.FuncP(name, w.letter, w.usage, to)
	case pflag.Value:
		fs.VarP(to, name, w.letter, w.usage)
	default:
		panic(fmt.Sprintf("--%s: a flag of %T", name, to))
	}
	if x, ok := to.(*choice); ok {
		c.complete(name, cobra.FixedCompletions(x.values, cobra.ShellCompDirectiveNoFileComp))
	}
	for _, other := range otherNames[name] {
		if fs.Lookup(other) == nil {
			alias(fs, name, other)
		}
	}
	return fs.Lookup(name)
}

// complete has a shell complete the values of a flag.
func (c *command) complete(flag string, by cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // a name twice in the program
	}
}

// call is one run of a command.
type call struct {
	*command
	ctx  context.Context // ends with a signal
	stop func()          // stops to listen to signals
	args []string        // arguments without MODEL

	in       io.Reader
	out, log io.Writer
}

// changed reports whether the command line has a flag.
func (x *call) changed(flag string) bool { return x.Flags().Changed(flag) }

// interrupted returns the failure of a command that a signal has ended, with more words about it.
func (x *call) interrupted(more string) error {
	return failure{statusInterrupted, errors.New("interrupted" + more)}
}

// unwritten returns err, or that a signal has ended the command before it wrote a file.
func (x *call) unwritten(err error, path string) error {
	if x.ended(err) {
		return x.interrupted(": " + path + " was not written")
	}
	return err
}

// ended reports whether err says that a signal has ended the command.
func (x *call) ended(err error) bool { return x.ctx.Err() != nil && errors.Is(err, x.ctx.Err()) }

// printf prints to standard output.
func (x *call) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(x.out, format, args...)
	return err
}

// say prints a line for the user beside the output.
func (x *call) say(format string, args ...any) { fmt.Fprintf(x.log, "karat: "+format+"\n", args...) }

// note prints what a user should know.
func (x *call) note(text string) { x.say("note: %s", oneLine(text)) }

// json prints v as JSON.
func (x *call) json(v any) error { return writeJSON(x.out, v) }

// choice is a flag that takes one of a few values.
type choice struct {
	value  string
	values []string
}

func (c *choice) String() string { return c.value }

// Type lists the values, but not so many that they would push all help to the right.
func (c *choice) Type() string {
	if list := strings.Join(c.values, "|"); len(list) <= 80 {
		return list
	}
	return "name"
}

func (c *choice) Set(s string) error {
	if !slices.Contains(c.values, s) {
		return fmt.Errorf("want %s", strings.Join(c.values, ", "))
	}
	c.value = s
	return nil
}

// name is a flag that takes the name of a file. An empty one, as that of a variable
// which is not set, is none.
type name string

// file returns the flag that takes the name of a file.
func file(to *string) *name { return (*name)(to) }

func (n *name) String() string { return string(*n) }
func (n *name) Type() string   { return "file" }

func (n *name) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*n = name(s)
	return nil
}

// commaList is a flag that takes words, separated by commas.
type commaList []string

// alias gives a flag more names, which help does not list.
func alias(fs *pflag.FlagSet, of string, names ...string) {
	f := fs.Lookup(of)
	for _, n := range names {
		fs.AddFlag(&pflag.Flag{Name: n, Usage: "--" + of, Value: sameFlag{f}, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal, Hidden: true})
	}
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
