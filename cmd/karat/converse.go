package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
)

// conversation is a chat at a terminal.
type conversation struct {
	*talk
	said
	log   io.Writer
	undo  []said // the chat before each change
	lines *history

	next       func(prompt string) (string, error) // asks for a line; errInterrupt is Ctrl-C
	signals    <-chan os.Signal
	interrupts int // since the last line
}

// said is the state of a chat. Its messages are the user's and the model's in turn; the system message is apart.
type said struct {
	system   string
	messages []karat.Message
	from     int      // the first message still sent, for lack of room in the context
	files    []string // texts for the next message
}

// maxUndo bounds the changes within reach of /undo.
const maxUndo = 1000

// converse chats until the user leaves.
func (t *talk) converse() error {
	x := t.call
	p := &conversation{talk: t, log: x.log, said: said{system: t.flags.chat.system}}
	fmt.Fprintf(p.log, "karat: chat with %s; /help lists the commands\n", oneLine(p.modelName()))
	p.hintSampling("/set temp 0.8")
	signals := make(chan os.Signal, 2) // two at once are two
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	p.signals = signals
	p.lines = openHistory("")
	if !t.flags.noHistory {
		p.lines = openHistory(stateFile("history"))
	}
	if e := newEditor(x.in, p.log, p.lines); e != nil {
		e.interrupted = func() bool { // by a signal after an answer
			select {
			case <-p.signals:
				return true
			default:
				return false
			}
		}
		p.next = e.line
	} else {
		p.next = p.plain(readLines(x.in))
	}
	for {
		line, err := p.read()
		if err == nil {
			p.lines.keep(line)
			err = p.obey(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && p.interrupts > 1:
			return failure{status: statusInterrupted}
		case err != nil:
			return err
		}
	}
}

// obey carries out a line. The error is io.EOF at the end.
func (p *conversation) obey(line string) error {
	switch {
	case strings.TrimSpace(line) == "":
		return nil
	case strings.HasPrefix(line, "//"):
		line = line[1:]
	case strings.HasPrefix(line, "/"):
		err := p.run(line)
		var f failure
		if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &f) {
			fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
			err = nil
		}
		return err
	}
	return p.say(line)
}

// modelName returns the name of the model, in the user's form.
func (p *conversation) modelName() string {
	if name := p.call.model.name; name != "" {
		return name
	}
	return p.model.Info().Path
}

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
func (p *conversation) read() (string, error) {
	var text strings.Builder
	quoted := false
	for prompt := ">>> "; ; prompt = "... " {
		line, err := p.next(prompt)
		switch {
		case errors.Is(err, errInterrupt):
			fmt.Fprintln(p.log)
			if errors.Is(err, errTyped) {
				p.interrupts = 0
			}
			if p.interrupts++; p.interrupts > 1 {
				return "", failure{status: statusInterrupted}
			}
			fmt.Fprintln(p.log, "karat: Ctrl-C again, Ctrl-D or /bye leaves")
			return "", nil
		case err != nil:
			fmt.Fprintln(p.log)
			return "", err
		}
		p.interrupts = 0
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
func (p *conversation) plain(lines <-chan string) func(prompt string) (string, error) {
	return func(prompt string) (string, error) {
		fmt.Fprint(p.log, prompt)
		select {
		case line, ok := <-lines:
			if !ok {
				return "", io.EOF
			}
			return line, nil
		case <-p.signals:
			return "", errInterrupt
		}
	}
}

// change keeps the chat for /undo before a change.
func (p *conversation) change() {
	if len(p.undo) == maxUndo {
		p.undo = slices.Delete(p.undo, 0, 1)
	}
	p.undo = append(p.undo, p.said)
}

// say asks for an answer. A message without an answer leaves the conversation; an answer broken off stays. The error
// is of the output.
func (p *conversation) say(text string) error {
	p.change()
	text, p.files = strings.Join(append([]string{text}, p.files...), "\n\n"), nil
	before := p.messages[:len(p.messages):len(p.messages)]
	p.messages = append(before, karat.TextMessage(karat.RoleUser, text))
	a := answer{output: p.output()}
	ctx, stop := p.interruptible()
	defer stop()
	r, err := p.fit(ctx)
	if err == nil {
		a.parser, a.ids = r.parser, r.ids
		err = a.write(ctx, a.session.GenerateIDs(ctx, r.ids, r.g))
	} else if err = a.explain(err); ctx.Err() != nil {
		err = failure{status: statusInterrupted}
	}
	var f failure
	var full contextFull
	switch {
	case err != nil && errors.As(err, &f):
	case err != nil && a.stop == "" && a.tokens > 0:
		return err // of the output
	case err != nil:
		fmt.Fprintln(a.log, "karat:", oneLine(p.flags.chat.addName(err).Error()))
		if errors.As(err, &full) {
			hint := "/set ctx sets the length of the context"
			if errors.Is(err, karat.ErrBudget) {
				hint = "--kv-budget sets the memory of the KV cache"
			}
			if p.flags.keepAll { // else the oldest messages are gone already
				hint = "/clear makes room; " + hint
			}
			fmt.Fprintln(a.log, "karat:", hint)
		}
	}
	if a.tokens == 0 {
		p.said, p.undo = p.undo[len(p.undo)-1], p.undo[:len(p.undo)-1]
		return nil
	}
	m := karat.Message{Role: karat.RoleAssistant}
	if a.reasoning.Len() > 0 {
		m.Parts = append(m.Parts, karat.Reasoning(a.reasoning.String()))
	}
	p.messages = append(p.messages, karat.Message{Role: m.Role, Parts: append(m.Parts, karat.Text(a.text.String()))})
	return p.keep()
}

// keep saves the chat for /load last, so nothing is lost.
func (p *conversation) keep() error {
	if p.flags.noHistory {
		return nil
	}
	if err := p.write(stateFile("chats", "last.json")); err != nil && p.flags.verbose {
		fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
	}
	return nil
}

// sent returns the messages sent to the model.
func (p *conversation) sent() []karat.Message {
	p.flags.chat.system = p.system
	return append(p.flags.chat.opening(), p.messages[p.from:]...)
}

// fit makes the request of the chat. Without room in the context for the chat and an answer, the oldest messages go.
func (p *conversation) fit(ctx context.Context) (request, error) {
	size := p.model.Info().Context
	most, first := size-min(size/8, 1024), p.from
	for {
		r, err := p.flags.chat.request(ctx, p.model, p.sent(), p.g, p.flags.grammar.turn)
		fits := err == nil && len(r.ids) <= most || err != nil && !errors.Is(err, karat.ErrFull)
		next := slices.IndexFunc(p.messages[p.from+1:], func(m karat.Message) bool { return m.Role == karat.RoleUser })
		if fits || p.flags.keepAll || next < 0 {
			if errors.Is(err, karat.ErrFull) || len(r.ids) > size { // the new message alone does not fit
				p.from = first
			}
			if p.from > first {
				fmt.Fprintf(p.log, "karat: the context of %s is full: the %s oldest messages are no longer sent\n",
					count(size, "token"), fmt.Sprint(p.from))
			}
			return r, err
		}
		p.from += 1 + next
		most = size - size/4 // room for the next messages
	}
}

// interruptible returns a context cancelled by Ctrl-C; the second Ctrl-C ends the program.
func (p *conversation) interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	done := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-p.signals:
				if p.interrupts++; p.interrupts > 1 { // converse leaves, once the answer is kept
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
