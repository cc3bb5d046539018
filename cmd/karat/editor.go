package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// errInterrupt is Ctrl-C in the place of a line, errTyped Ctrl-C behind a text.
var (
	errInterrupt = errors.New("interrupted")
	errTyped     = fmt.Errorf("%w, and the line was not empty", errInterrupt)
)

// editor reads lines at a terminal, with editing and a history. A pasted text is a part of a line, whatever lines the
// text has.
type editor struct {
	in   *os.File
	out  io.Writer
	keys *keys
	term *term.Terminal

	lines       *history
	interrupted func() bool // reports a Ctrl-C before keys were read singly; nil for never
}

// newEditor returns an editor with the history h, nil unless both ends are terminals.
func newEditor(in io.Reader, out io.Writer, h *history) *editor {
	file, ok := in.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(out) {
		return nil
	}
	e := &editor{in: file, out: out, keys: &keys{in: file}, lines: h}
	h.shown = func(line string) string { return e.keys.short(line, 4000) }
	e.reset()
	return e
}

// reset forgets the line, but not the lines before.
func (e *editor) reset() {
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{e.keys, e.out}, "")
	t.History = e.lines
	e.term = t
}

// line returns the text typed up to Enter. On return the terminal is in its former mode, so Ctrl-C is a signal while a
// model answers.
func (e *editor) line(prompt string) (string, error) {
	leave, err := e.makeRaw()
	if err != nil {
		return "", err
	}
	defer func() { leave() }()
	if e.interrupted != nil && e.interrupted() {
		return "", errInterrupt
	}
	if suspend != nil {
		e.keys.suspend = func() (err error) {
			leave()
			fmt.Fprintln(e.out) // the shell begins a line of its own
			suspend()
			if leave, err = e.makeRaw(); err != nil {
				leave = func() {}
				return err
			}
			_, err = e.term.Write(nil) // draws the line again
			return err
		}
	}
	e.term.SetPrompt(prompt)
	e.keys.interrupted, e.keys.typed = false, false
	line, err := e.term.ReadLine()
	if err == io.EOF && e.keys.interrupted {
		e.reset()
		if e.keys.typed {
			return "", errTyped
		}
		return "", errInterrupt
	}
	return e.keys.expand(line), err
}

// makeRaw sets the terminal to send each key when pressed, until leave restores the mode.
func (e *editor) makeRaw() (leave func(), err error) {
	state, err := term.MakeRaw(int(e.in.Fd()))
	if err != nil {
		return nil, err
	}
	if f, ok := e.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			e.term.SetSize(w, h)
		}
	}
	e.term.SetBracketedPasteMode(true)
	return func() {
		e.term.SetBracketedPasteMode(false)
		term.Restore(int(e.in.Fd()), state)
	}, nil
}

// keys are a terminal's input, with a short name in place of each pasted text: a terminal's line has at most 4096
// characters, and no line ends.
type keys struct {
	in          io.Reader
	rest        []byte // read, and not yet looked at
	ready       []byte // to be handed over
	paste       []byte // the part present so far; nil outside a paste
	pasted      []string
	interrupted bool         // Ctrl-C was handed over
	typed       bool         // another key was
	suspend     func() error // called for Ctrl-Z; nil if Ctrl-Z is a key like others
}

// Ctrl-C and Ctrl-Z, as sent by a terminal read key by key.
const (
	ctrlC = 3
	ctrlZ = 26
)

// altEnter is sent for Alt-Enter, the end of a line with a continuation.
const altEnter = "\x1b\r"

// Marks around a pasted text.
const (
	pasteStart = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

func (k *keys) Read(p []byte) (int, error) {
	for len(k.ready) == 0 || k.ready[0] == ctrlZ && k.suspend != nil {
		if len(k.ready) > 0 {
			k.ready = k.ready[1:]
			if err := k.suspend(); err != nil {
				return 0, err
			}
			continue
		}
		var b [4096]byte
		n, err := k.in.Read(b[:])
		if n == 0 && err != nil {
			return 0, err
		}
		k.take(b[:n])
	}
	n := copy(p, k.ready)
	if i := bytes.IndexByte(p[:n], ctrlZ); i > 0 && k.suspend != nil { // the line gets the keys before Ctrl-Z first
		n = i
	}
	if i := bytes.IndexByte(p[:n], ctrlC); i >= 0 { // the rest is for the next line
		k.interrupted, k.typed = true, k.typed || i > 0
		n = i + 1
	} else {
		k.typed = k.typed || n > 0
	}
	k.ready = k.ready[n:]
	return n, nil
}

// take handles the next bytes of the terminal.
func (k *keys) take(b []byte) {
	k.rest = append(k.rest, b...)
	for len(k.rest) > 0 {
		mark := pasteStart
		if k.paste != nil {
			mark = pasteEnd
		}
		before, after, found := bytes.Cut(k.rest, []byte(mark))
		if !found { // a possible beginning of the mark waits
			n := len(k.rest)
			for i := max(0, n-len(mark)+1); i < len(k.rest) && n == len(k.rest); i++ {
				if strings.HasPrefix(mark, string(k.rest[i:])) {
					n = i
				}
			}
			before, after = k.rest[:n], k.rest[n:]
		}
		if k.paste != nil {
			k.paste = append(k.paste, before[:min(len(before), maxInput-len(k.paste))]...)
		} else {
			k.ready = append(k.ready, bytes.ReplaceAll(before, []byte(altEnter), []byte("\\\r"))...)
		}
		k.rest = append([]byte(nil), after...)
		switch {
		case !found:
			return
		case k.paste == nil:
			k.paste = []byte{}
		default:
			k.insert(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(k.paste)))
			k.paste = nil
		}
	}
}

// insert hands over a pasted text, or its name.
func (k *keys) insert(text string) { k.ready = append(k.ready, k.short(text, 200)...) }

// short returns the form of a text for a line: the text itself, or its name if the text has more than most bytes.
func (k *keys) short(text string, most int) string {
	// control characters would be taken for keys
	if !strings.ContainsFunc(text, unicode.IsControl) && len(text) <= most {
		return text
	}
	i := slices.Index(k.pasted, text)
	if i < 0 {
		i = len(k.pasted)
		k.pasted = append(k.pasted, text)
	}
	return k.name(i)
}

// name returns the stand-in of a pasted text.
func (k *keys) name(i int) string {
	return fmt.Sprintf("[paste %d, %s]", i+1, count(1+strings.Count(strings.TrimSuffix(k.pasted[i], "\n"), "\n"),
		"line"))
}

// expand returns a line with the texts in place of their names.
func (k *keys) expand(line string) string {
	var names []string
	for i, text := range k.pasted {
		names = append(names, k.name(i), strings.TrimSuffix(text, "\n"))
	}
	return strings.NewReplacer(names...).Replace(line)
}
