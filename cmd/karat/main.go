// Command karat runs language models, and inspects, checks and converts their files.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/karat-run/karat"
	_ "github.com/karat-run/karat/webgpu"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:])) }

// Exit statuses. What a signal ends has 128 and the signal's number (failure.exit).
const (
	statusError       = 1
	statusUsage       = 2
	statusInterrupted = 130 // by Ctrl-C, or the signal that untilSignal saw
)

// failure is an error that sets the exit status, which is else statusError.
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

// signalled is the number of the signal that untilSignal saw, 0 before one.
var signalled atomic.Int32

// exit is the status that the program ends with: as a shell has it where a signal ends it.
func (f failure) exit() int {
	if n := int(signalled.Load()); n > 0 && f.status == statusInterrupted {
		return 128 + n
	}
	return f.status
}

// usageError is an error of the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// errorText returns an error on one line. Errors that come together name their file once: "m.gguf: A is missing; B is
// missing".
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

// run executes a command line and returns the exit status.
func run(args []string) int {
	started := false
	root := newRootCommand()
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateFlagGroups(); err != nil { // cobra asks later
			return together(err)
		}
		started = true
		return nil
	}
	helped := writeHelp(root)
	root.SetArgs(args)
	command, _, _ := root.Find(args)
	err := refuseLong(args)
	if err == nil {
		command, err = root.ExecuteC()
	}
	if err == nil {
		err = *helped
	}
	if err == nil || brokenPipe(err) {
		return 0
	}
	var f failure
	if errors.As(err, &f) && f.err == nil {
		return f.exit()
	}
	fmt.Fprintln(os.Stderr, "karat:", errorText(err))
	var usage usageError
	var file *fs.PathError // such as standard output, of --version
	switch {
	case f.status != 0:
		return f.exit()
	case errors.As(err, &file), errors.As(err, &usage) && errors.As(usage.error, &file):
		return statusError
	case !started || errors.As(err, &usage): // before the start errors are cobra's, of the command line
		fmt.Fprintf(os.Stderr, "Run %q for help.\n", command.CommandPath()+" --help")
		return statusUsage
	}
	return statusError
}

// interruptible calls untilSignal; tests replace it that interrupt a command at one of its steps.
var interruptible = untilSignal

// untilSignal returns a context that ends when the program is told to end, so that the program can say how far it came,
// and tidy up. A second signal ends the program at once.
func untilSignal() (ctx context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGTERM}
	for _, s := range append([]os.Signal{os.Interrupt}, hangup...) {
		if !signal.Ignored(s) { // as nohup has it
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

func newRootCommand() *cobra.Command {
	root := define("", nil)
	root.Use, root.Version, root.SilenceErrors, root.SilenceUsage = "karat", karat.Version(), true, true
	c := group(root, newRunCommand(), newServeCommand(), newPullCommand(), newListCommand(), newShowCommand(), newRemoveCommand(),
		newCopyCommand(), newRunningCommand(), newEmbedCommand(), newRerankCommand(), newTokenizeCommand(), newLogitsCommand(),
		newScoreCommand(), newKVCommand(), newStatsCommand(), newInspectCommand(), newConvertCommand(), newCheckCommand(),
		newLabCommand(), newEvalCommand(), newImatrixCommand(), newBenchCommand(), newQuantizeCommand(), newEditCommand(),
		newDevicesCommand(), newWebCommand(), newVersionCommand())
	c.SetFlagErrorFunc(func(of *cobra.Command, err error) error {
		if e := (*strconv.NumError)(nil); errors.As(err, &e) { // whose text is for programmers
			return usagef("%s%s", strings.TrimSuffix(err.Error(), e.Error()), numberText(e))
		}
		if gone := (goneError{}); errors.As(err, &gone) {
			return usagef("%w", gone)
		}
		return unknownFlag(of, err)
	})
	strictHelp(c)
	allHelp(c)
	return c
}

// together is cobra's error of flags that exclude each other, in plain words.
func together(err error) error {
	_, set, ok := strings.Cut(err.Error(), "; [")
	set, _, all := strings.Cut(set, "] were all set")
	if !ok || !all {
		return err
	}
	return usagef("--%s: give one of them", strings.Join(strings.Fields(set), ", --"))
}

// numberText says what number a flag wants.
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

// byUse wants the arguments that the command's Use lists: NAME, NAME... for one or more, [NAME] for one that may be
// missing, and [NAME...] for any number of texts, which may be empty.
func byUse(c *cobra.Command, args []string) error {
	var needed, all []string
	many, texts := false, false
	for _, word := range strings.Fields(c.Use)[1:] {
		if strings.HasPrefix(strings.Trim(word, "["), "-") { // flags come last
			break
		}
		all = append(all, strings.Trim(word, "[]."))
		many, texts = many || strings.Contains(word, "..."), texts || strings.HasPrefix(word, "[") && strings.HasSuffix(word, "...]")
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

// writeJSON writes v as indented JSON, in which <eos> stays legible.
func writeJSON(w io.Writer, v any) error {
	e := newEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// newEncoder writes JSON, in which <eos> stays legible.
func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}
