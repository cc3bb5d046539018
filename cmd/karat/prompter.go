package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
)

// prompter reads a chat's lines and the user's Ctrl-C.
type prompter struct {
	log        io.Writer
	lines      *history
	next       func(prompt string) (string, error) // asks for a line; errInterrupt is Ctrl-C
	signals    chan os.Signal
	interrupts int // since the last line
}

func openPrompter(in io.Reader, log io.Writer, noHistory bool) *prompter {
	c := &prompter{log: log, lines: openHistory(""), signals: make(chan os.Signal, 2)} // two at once are two
	signal.Notify(c.signals, os.Interrupt)
	if !noHistory {
		c.lines = openHistory(stateFile("history"))
	}
	e := newEditor(in, log, c.lines)
	if e == nil {
		c.next = c.plain(readLines(in))
		return c
	}
	e.interrupted = func() bool { // by a signal after an answer
		select {
		case <-c.signals:
			return true
		default:
			return false
		}
	}
	c.next = e.line
	return c
}

func (c *prompter) close() { signal.Stop(c.signals) }

// readLines reads lines until the input ends. A read cannot be broken off, so the goroutine ends with the input or with
// the program.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		b := bufio.NewReader(r)
		for {
			line, err := b.ReadString('\n')
			if line != "" {
				lines <- strings.TrimRight(line, "\r\n")
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// quotes begin and end a message of several lines.
const quotes = `"""`

// read asks for a line, and for its continuation lines: behind a \ at its end, or up to """. The error is io.EOF at the
// end, and a failure after the second Ctrl-C.
func (c *prompter) read() (string, error) {
	var text strings.Builder
	quoted := false
	for prompt := ">>> "; ; prompt = "... " {
		line, err := c.next(prompt)
		switch {
		case errors.Is(err, errInterrupt):
			fmt.Fprintln(c.log)
			if errors.Is(err, errTyped) {
				c.interrupts = 0
			}
			if c.interrupts++; c.interrupts > 1 {
				return "", failure{status: statusInterrupted}
			}
			fmt.Fprintln(c.log, "karat: Ctrl-C again, Ctrl-D or /bye leaves")
			return "", nil
		case err != nil:
			fmt.Fprintln(c.log)
			return "", err
		}
		c.interrupts = 0
		if rest, ok := strings.CutPrefix(line, quotes); ok && text.Len() == 0 && !quoted {
			line, quoted = rest, true
		}
		if quoted {
			line, ended := strings.CutSuffix(strings.TrimRight(line, " "), quotes)
			if text.WriteString(line); ended {
				return message(strings.Trim(text.String(), "\n")), nil
			}
			text.WriteByte('\n')
			continue
		}
		line, more := strings.CutSuffix(line, `\`)
		text.WriteString(line)
		if !more {
			return text.String(), nil
		}
		text.WriteByte('\n')
	}
}

// message returns a text in the form of obey, with a leading slash escaped.
func message(text string) string {
	if strings.HasPrefix(text, "/") {
		return "/" + text
	}
	return text
}

// plain asks for lines where nothing can be edited.
func (c *prompter) plain(lines <-chan string) func(prompt string) (string, error) {
	return func(prompt string) (string, error) {
		fmt.Fprint(c.log, prompt)
		select {
		case line, ok := <-lines:
			if !ok {
				return "", io.EOF
			}
			return line, nil
		case <-c.signals:
			return "", errInterrupt
		}
	}
}

// interruptible returns a context cancelled by Ctrl-C; the second Ctrl-C ends the program.
func (c *prompter) interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	done := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-c.signals:
				if c.interrupts++; c.interrupts > 1 { // converse leaves, once the answer is kept
					time.AfterFunc(2*time.Second, func() { os.Exit(statusInterrupted) })
				}
				cancel()
			case <-done:
				return
			}
		}
	})
	return ctx, func() {
		close(done)
		watch.Wait()
		cancel()
	}
}

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
			text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(k.paste))
			k.ready = append(k.ready, k.short(text, 200)...)
			k.paste = nil
		}
	}
}

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

// stateFile returns a file in the user's folder for state between runs, "" if there is no such folder.
func stateFile(names ...string) string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
		if runtime.GOOS == "windows" {
			dir = filepath.Join(home, "AppData", "Local")
		}
	}
	return filepath.Join(append([]string{dir, "karat"}, names...)...)
}

// Limits of the history: entries kept, bytes of an entry, and bytes of the file before a cut.
const (
	maxLines   = 1000
	maxEntry   = 16 << 10
	maxHistory = 4 << 20
)

// history is the messages typed, the oldest first: a file of JSON strings, a line each, shared by sessions at the same
// time. Without a file the history is the session's alone.
type history struct {
	path  string
	lines []string
	shown func(line string) string // for the editor: a form fit for display
}

// openHistory reads the history in a file. An unreadable history is empty: a chat goes on without it.
func openHistory(path string) *history {
	h := &history{path: path}
	if path == "" {
		return h
	}
	f, err := os.Open(path)
	if err != nil {
		return h
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		h.path = ""
		return h
	}
	if st.Size() > maxHistory {
		_, _ = f.Seek(-maxHistory, io.SeekEnd) // a cut line is no JSON
	}
	s := bufio.NewScanner(io.LimitReader(f, maxHistory))
	s.Buffer(nil, maxHistory)
	for s.Scan() {
		var line string
		if json.Unmarshal(s.Bytes(), &line) == nil {
			h.lines = append(h.lines, line)
		}
	}
	if n := len(h.lines); n > maxLines || st.Size() > maxHistory {
		h.lines = h.lines[max(0, n-maxLines/2):]
		var b bytes.Buffer
		for _, line := range h.lines {
			b.Write(encodeLine(line))
		}
		_ = writePrivate(h.path, b.Bytes())
	}
	return h
}

func encodeLine(line string) []byte {
	var b bytes.Buffer
	_ = newEncoder(&b).Encode(line) // a string
	return b.Bytes()
}

// Add does nothing with a line of the editor: a message may have several lines, and is kept whole.
func (h *history) Add(string) {}

// keep keeps a message, unless empty or equal to the message before.
func (h *history) keep(line string) {
	if n := len(h.lines); line == "" || n > 0 && h.lines[n-1] == line {
		return
	}
	h.lines = append(h.lines, line)
	if len(h.lines) > 2*maxLines {
		h.lines = append([]string(nil), h.lines[maxLines:]...)
	}
	if h.path == "" || len(line) > maxEntry || os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_ = f.Chmod(0o600)
	_, _ = f.Write(encodeLine(line))
	_ = f.Close()
}

// Len returns the number of lines.
func (h *history) Len() int { return len(h.lines) }

// At returns a line for the editor, the newest first.
func (h *history) At(i int) string {
	line := h.lines[len(h.lines)-1-i]
	if h.shown != nil {
		line = h.shown(line)
	}
	return line
}
