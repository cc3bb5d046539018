package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxInput bounds a text that is read whole: far beyond any context.
const maxInput = 64 << 20

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// readInput is the text of a command: its argument, else the file, else standard
// input. There is none, and ok is false, where standard input is a terminal.
// The line end that a file or standard input ends in is dropped.
func readInput(c *cobra.Command, args []string, file string) (text string, ok bool, err error) {
	switch {
	case len(args) > 0 && file != "":
		return "", false, usagef("a text and -f %s: give one of them", file)
	case len(args) > 0:
		return args[0], true, nil
	case file != "" && file != "-":
		f, err := os.Open(file)
		if err != nil {
			return "", false, err
		}
		defer f.Close()
		text, err = readText(f, file)
		return text, true, err
	case file == "" && isTerminal(c.InOrStdin()):
		return "", false, nil
	}
	text, err = readText(c.InOrStdin(), "standard input")
	return text, true, err
}

func readText(r io.Reader, name string) (string, error) {
	text, err := readAll(r, name, maxInput)
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), err
}

// readAll reads at most limit bytes; more are an error.
func readAll(r io.Reader, name string, limit int64) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	case int64(len(b)) > limit:
		return "", fmt.Errorf("%s: more than %d bytes", name, limit)
	}
	return string(b), nil
}

// printable is s with what a terminal might obey replaced. Lines stay lines.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is printable for a place in a line.
func oneLine(s string) string {
	return strings.NewReplacer("\n", "⏎", "\t", "⇥").Replace(printable(s))
}

// shorten cuts s to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return fmt.Sprintf("%s… (%d characters)", string(r[:n]), len(r))
	}
	return s
}

// count is n of something, in words.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// newEncoder writes JSON, in which <eos> stays legible.
func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}
