package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

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

// sharedFlags is the part of the help for flags of several commands.
const sharedFlags = "shared"

// helpWords returns the parts of the help by the names of their commands: "lab record".
var helpWords = sync.OnceValue(func() map[string]*words {
	text := strings.ReplaceAll(helpText, "{types}", wrapWords(strings.Join(quantmix.Names(), ", "), 15))
	text = strings.ReplaceAll(text, "{fusions}", strings.Join(webgpu.Fusions, ", "))
	text = strings.ReplaceAll(text, "{forms}", strings.Join(lab.Forms, ", "))
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

// readFlags reads lines as "-o, --output `file` to write". A line with further indentation continues the line before.
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

// wrapWords breaks a list between its words, into lines of at most 98 columns. The first line begins at a column.
func wrapWords(list string, column int) string {
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

// command is a command in the making.
type command struct {
	*cobra.Command
	words *words
	model *modelArg // nil for a command without MODEL
	texts bool      // texts follow MODEL, and the command finds MODEL among them
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
		err := catch(func() error { return run(x) })
		if f := (failure{}); err != nil && x.ctx.Err() != nil && !errors.As(err, &f) {
			return x.interrupted("")
		}
		return err
	}
	return c
}

// thrown is the error of a command, between throw and catch.
type thrown struct{ error }

// throw ends a command with an error; nil ends nothing. Only what a command runs, and what passes errors on unchanged,
// may throw: a caller that adds to an error never sees a thrown one.
func throw(err error) {
	if err != nil {
		panic(thrown{err})
	}
}

// must returns v, or throws an error.
func must[T any](v T, err error) T {
	throw(err)
	return v
}

// must2 returns v and w, or throws an error.
func must2[T, U any](v T, w U, err error) (T, U) {
	throw(err)
	return v, w
}

// catch returns the error that do returns or throws.
func catch(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t, is := p.(thrown)
			if !is {
				panic(p)
			}
			err = t.error
		}
	}()
	return do()
}

// group makes a command holding only other commands: group prints help, also for "karat lab help", and suggests a name
// for an unknown command.
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
		if same := commandsOfOthers[args[0]]; slices.Contains(names, same) {
			hint = fmt.Sprintf(": %q does this", c.CommandPath()+" "+same)
		} else if near := nearest(args[0], names); near != "" {
			hint = fmt.Sprintf(": did you mean %q?", near)
		}
		return usagef("there is no command %q%s", args[0], hint)
	}
	return c.Command
}

// otherNames are names of flags in other programs and older versions. Help does not list them.
var otherNames = map[string][]string{"ctx": {"ctx-size", "num-ctx", "context"},
	"tokens": {"max-tokens", "n-predict", "num-predict", "gen"}, "temp": {"temperature"}, "decode-last": {"decode"},
	"by-layer": {"layers"}}

// flags registers flags, each by its name in the help and a pointer to its value, with the default inside, or a
// function of a value.
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

// complete registers a shell's completion of the values of a flag.
func (c *command) complete(flag string, by cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, by); err != nil {
		panic(err) // a name twice in the program
	}
}

// call is a run of a command.
type call struct {
	*command
	ctx  context.Context // ends with a signal
	stop func()          // stops to listen to signals
	args []string        // arguments without MODEL

	in       io.Reader
	out, log io.Writer

	head bool // the lab looks at the model's head for drafts
}

// changed reports whether the command line has a flag.
func (x *call) changed(flag string) bool { return x.Flags().Changed(flag) }

// interrupted returns the failure of a command ended by a signal, with more words about the state.
func (x *call) interrupted(more string) error {
	return failure{statusInterrupted, errors.New("interrupted" + more)}
}

// orInterrupted returns err, or, after a signal, the failure of an interrupted command with more words about the state.
func (x *call) orInterrupted(err error, more string) error {
	if x.isEnded(err) {
		return x.interrupted(more)
	}
	return err
}

// isEnded reports whether err comes from a signal's end of the command.
func (x *call) isEnded(err error) bool { return x.ctx.Err() != nil && errors.Is(err, x.ctx.Err()) }

// printf prints to standard output.
func (x *call) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(x.out, format, args...)
	return err
}

// say prints a line for the user beside the output.
func (x *call) say(format string, args ...any) { fmt.Fprintf(x.log, "karat: "+format+"\n", args...) }

// note prints a note for the user.
func (x *call) note(text string) { x.say("note: %s", oneLine(text)) }

// json prints v as JSON.
func (x *call) json(v any) error { return writeJSON(x.out, v) }

// choice is a flag with a few possible values.
type choice struct {
	value  string
	values []string
}

func (c *choice) String() string { return c.value }

// Type lists the values, up to a width harmless to the layout of help.
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

// name is a flag with a file's name. An empty name, as from an unset variable, is none.
type name string

// file returns the flag of a file's name.
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

// commaList is a flag of words, separated by commas.
type commaList []string

// alias gives a flag more names, hidden from help.
func alias(fs *pflag.FlagSet, of string, names ...string) {
	f := fs.Lookup(of)
	for _, n := range names {
		fs.AddFlag(&pflag.Flag{Name: n, Usage: "--" + of, Value: sameFlag{f}, DefValue: f.DefValue,
			NoOptDefVal: f.NoOptDefVal, Hidden: true})
	}
}

// sameFlag is the value of an alias, and sets the flag itself.
type sameFlag struct{ *pflag.Flag }

func (s sameFlag) String() string { return s.Value.String() }
func (s sameFlag) Type() string   { return s.Value.Type() }

func (s sameFlag) Set(text string) error {
	err := s.Value.Set(text)
	s.Changed = s.Changed || err == nil
	return err
}

// rename points from the old name of a flag to the new name.
func rename(fs *pflag.FlagSet, old, letter, hint string) {
	fs.AddFlag(&pflag.Flag{Name: old, Shorthand: letter, Usage: hint, Value: goneFlag(hint), Hidden: true,
		NoOptDefVal: "true"})
}

// goneFlag is the value of a removed flag: advice for the user.
type goneFlag string

func (g goneFlag) String() string   { return "" }
func (g goneFlag) Type() string     { return "gone" }
func (g goneFlag) Set(string) error { return goneError{errors.New(string(g))} }

// goneError is the error of a removed flag. It needs no words of the flags' parser.
type goneError struct{ error }

// Exit statuses. An end by a signal has 128 plus the signal's number (failure.exit).
const (
	statusError       = 1
	statusUsage       = 2
	statusInterrupted = 130 // by Ctrl-C, or by the signal seen by untilSignal
)

// failure is an error with an exit status, by default statusError.
type failure struct {
	status int
	err    error // nil if all is said
}

func (f failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.status)
	}
	return f.err.Error()
}

func (f failure) Unwrap() error { return f.err }

// signalled is the number of the signal seen by untilSignal, 0 for none.
var signalled atomic.Int32

// exit returns the program's exit status: after a signal, a shell's.
func (f failure) exit() int {
	if n := int(signalled.Load()); n > 0 && f.status == statusInterrupted {
		return 128 + n
	}
	return f.status
}

// usageError is an error of the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errorText returns an error on one line. Joined errors name their file once: "m.gguf: A is missing; B is missing".
func errorText(err error) string {
	for in := errors.Unwrap(err); in != nil && in.Error() == err.Error(); in = errors.Unwrap(err) {
		err = in
	}
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return oneLine(err.Error())
	}
	var text strings.Builder
	file := ""
	for i, err := range all.Unwrap() {
		next := errorText(err)
		if i > 0 {
			text.WriteString("; ")
			next = strings.TrimPrefix(next, file)
		} else if name, _, ok := strings.Cut(next, ": "); ok {
			file = name + ": "
		}
		text.WriteString(next)
	}
	return text.String()
}

// interruptible calls untilSignal; tests replace it to interrupt a command at a step.
var interruptible = untilSignal

// untilSignal returns a context for the time until a signal to end, so that the program can report its progress, and
// tidy up. A second signal ends the program at once.
func untilSignal() (ctx context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGTERM}
	for _, s := range append([]os.Signal{os.Interrupt}, hangup...) {
		if !signal.Ignored(s) { // ignored under nohup
			signals = append(signals, s)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, signals...)
	go func() {
		select {
		case s := <-seen:
			if n, ok := s.(syscall.Signal); ok {
				signalled.Store(int32(n))
			}
			cancel()
		case <-ctx.Done():
		}
		signal.Stop(seen)
	}()
	return ctx, cancel
}

// numberText describes the number wanted by a flag.
func numberText(e *strconv.NumError) string {
	switch {
	case errors.Is(e.Err, strconv.ErrRange):
		return "the number is too large or too small"
	case e.Func == "ParseUint":
		return "want a whole number, 0 or more"
	case e.Func == "ParseInt" || e.Func == "Atoi":
		return "want a whole number"
	case e.Func == "ParseFloat":
		return "want a number"
	}
	return e.Err.Error()
}

// byUse wants the arguments listed by the command's Use: NAME, NAME... for one or more, [NAME] for an optional
// argument, and [NAME...] for any number of texts, even empty.
func byUse(c *cobra.Command, args []string) error {
	var needed, all []string
	many, texts := false, false
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(strings.Trim(word, "["), "-") { // flags come last
			break
		}
		all = append(all, strings.Trim(word, "[]."))
		many, texts = many || strings.Contains(word, "..."), texts || strings.HasPrefix(word, "[") &&
			strings.HasSuffix(word, "...]")
		if word[0] != '[' {
			needed = append(needed, strings.Trim(word, "."))
		}
	}
	wrong := ""
	switch empty := slices.Index(args, ""); {
	case len(args) < len(needed):
		wrong = needed[len(args)] + " is missing"
	case len(args) > len(all) && !many:
		wrong = fmt.Sprintf("%q is an argument too many", args[len(all)])
	case empty < 0 || texts && empty >= len(needed):
		return nil
	case len(args) == len(needed):
		wrong = needed[empty] + " is empty"
	default:
		wrong = all[min(empty, len(all)-1)] + " is empty"
	}
	text := fmt.Sprintf("%s; the usage is %s", wrong, c.UseLine())
	if example, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n"); example != "" {
		text += "; for example: " + example
	}
	return usagef("%s", text)
}

// writeJSON writes v as indented JSON, with <eos> legible.
func writeJSON(w io.Writer, v any) error {
	e := newEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// newEncoder returns an encoder of JSON with <eos> legible.
func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}
