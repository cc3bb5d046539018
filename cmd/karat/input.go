package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/patherr"
	"golang.org/x/term"
)

// maxInput bounds a text read as a whole, far beyond any context.
const maxInput = 64 << 20

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// readInput returns the text of a command: its argument, else the file, else standard input. If standard input is a
// terminal, there is no text and ok is false. readInput drops a line end at the end of a file or of standard input.
func (x *call) readInput(args []string, file string) (text string, ok bool, err error) {
	read := func() (string, error) { return readText(x.in, "standard input") }
	switch {
	case len(args) > 0 && file != "":
		return "", false, usagef("give a text or -f %s, not both", file)
	case len(args) > 0:
		return args[0], true, nil
	case file != "" && file != "-":
		read = func() (string, error) { return readFile(file) }
	case file == "" && isTerminal(x.in):
		return "", false, nil
	}
	text, err = awaitRead(x.ctx, read)
	return text, true, err
}

// needText reads the input of a command in need of a text.
func (x *call) needText(args []string, file string) (string, error) {
	text, ok, err := x.readInput(args, file)
	if err == nil && !ok {
		err = usagef("give TEXT, -f FILE, or a text on standard input")
	}
	return text, err
}

// joinInput returns the text of a prompt: the argument, the files and standard input, in this order, with an empty line
// between them. Standard input is read unless a terminal, or if a file is "-". With nothing given and a terminal as
// standard input, there is no text and ok is false.
func (x *call) joinInput(args, files []string) (text string, ok bool) {
	parts := slices.Clone(args)
	if !slices.Contains(files, "-") && !isTerminal(x.in) {
		files = append(slices.Clone(files), "")
	}
	for _, file := range files {
		read := func() (string, error) { return readFile(file) }
		if file == "" || file == "-" {
			read = func() (string, error) { return readText(x.in, "standard input") }
			defer sayWaiting(x.log, len(parts) > 0)()
		}
		part := must(awaitRead(x.ctx, read))
		if part != "" || file != "" { // an empty standard input was not meant
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n\n"), len(parts) > 0
}

// sayWaiting prints after a while the reason of the wait, until stop is called.
func sayWaiting(log io.Writer, prompted bool) (stop func()) {
	if !prompted {
		return func() {}
	}
	t := time.AfterFunc(3*time.Second, func() {
		fmt.Fprintln(log, "karat: waiting for the end of standard input, which is added to the prompt; < /dev/null "+
			"adds nothing")
	})
	return func() { t.Stop() }
}

// awaitRead returns the result of read, unless ctx ends first. A read from a terminal or a pipe cannot be broken off,
// so its goroutine ends with the input or with the program.
func awaitRead(ctx context.Context, read func() (string, error)) (text string, err error) {
	done := make(chan struct{})
	var got string
	var failed error
	go func() {
		defer close(done)
		got, failed = read()
	}()
	select {
	case <-done:
		return got, failed
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// readFile returns the text of a file, without the line end at its end.
func readFile(path string) (string, error) {
	return trimLine(readWhole(path, maxInput))
}

func readText(r io.Reader, name string) (string, error) { return trimLine(readAll(r, name, maxInput)) }

func trimLine(text string, err error) (string, error) {
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), err
}

// readWhole returns the text of a file of at most limit bytes.
func readWhole(path string, limit int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", patherr.Plain(err)
	}
	defer f.Close()
	return readAll(f, path, limit)
}

// readAll reads at most limit bytes; more are an error.
func readAll(r io.Reader, name string, limit int64) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return "", patherr.Plain(err)
	case int64(len(b)) > limit:
		return "", fmt.Errorf("%s has more than %d MiB, the maximum", name, limit>>20)
	}
	return string(b), nil
}

// printable returns a stranger's text, such as a name or a licence, for a terminal. For example, U+202E, which turns
// the direction of writing, becomes the escape \u202e, as hidden characters do. Controls are replaced. Lines stay
// lines.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Cf, unicode.Bidi_Control, unicode.Zl, unicode.Zp):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(visible(r))
		}
	}
	return b.String()
}

// answerText returns a model's text for a terminal, with the characters needed by scripts for joining or direction, but
// without overrides of the direction. Controls are replaced.
func answerText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\u202d' || r == '\u202e' {
			return unicode.ReplacementChar
		}
		return visible(r)
	}, s)
}

// visible returns a character, or the replacement of a control.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return unicode.ReplacementChar
	}
	return r
}

// oneLine returns printable text for a place in a line.
func oneLine(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(printable(s), "\n", "⏎"), "\t", "⇥")
}

// unquoted returns the contents of s's quotation marks, or s itself.
func unquoted(s string) string {
	if len(s) > 1 && s[0] == '"' && s[len(s)-1] == '"' {
		if text, err := strconv.Unquote(s); err == nil {
			return text
		}
	}
	return s
}

// shorten cuts s to n characters.
func shorten(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return fmt.Sprintf("%s… (%d characters)", string(r[:n]), len(r))
	}
	return s
}

// count returns a number of things, in words.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// listFew names up to n of many.
func listFew(names []string, n int) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}

// newTable aligns cells ending in tabs.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// refuseOverwrite refuses the file out, named by the flag what, if out would replace a file of read, or a file of a
// model's folder, or a part of a split model.
func refuseOverwrite(what, out string, read ...string) error {
	for _, in := range read {
		if entries, err := os.ReadDir(in); err == nil {
			for _, x := range entries {
				// Other files in the folder are no model's: predictions, an importance matrix.
				if path := filepath.Join(in, x.Name()); slices.Contains(folderTypes, filepath.Ext(path)) &&
					sameFile(out, path) {
					return usagef("%s would replace %s, which is read", what, path)
				}
			}
		}
		parts := gguf.IsPart(in) && gguf.IsPart(out) && sameFile(filepath.Dir(in), filepath.Dir(out)) &&
			gguf.PartPath(filepath.Base(in), 1, 1) == gguf.PartPath(filepath.Base(out), 1, 1)
		if parts || sameFile(out, in) {
			return usagef("%s would replace %s, which is read", what, in)
		}
	}
	return nil
}

// folderTypes are the endings of the files of a Hugging Face model.
var folderTypes = []string{".safetensors", ".json", ".jinja", ".model"}

// sameFile reports whether both paths lead to the same file.
func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
