package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"
)

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
