package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/karat-run/karat"
)

// conversation is a chat at a terminal.
type conversation struct {
	*talk
	said
	log      io.Writer
	undo     undo
	prompter *prompter
}

// said is the state of a chat. Its messages are the user's and the model's in turn; the system message is apart.
type said struct {
	system   string
	messages []karat.Message
	from     int          // the first message still sent, for lack of room in the context
	files    []string     // texts for the next message
	images   []karat.Part // pictures for the next message
}

// maxUndo bounds the changes within reach of /undo.
const maxUndo = 1000

// undo is the chat before each change.
type undo []said

// keep keeps the chat for /undo before a change.
func (u *undo) keep(s said) {
	if len(*u) == maxUndo {
		*u = slices.Delete(*u, 0, 1)
	}
	*u = append(*u, s)
}

// takeBack returns the chat before the last change.
func (u *undo) takeBack() (s said) {
	last := len(*u) - 1
	s, *u = (*u)[last], (*u)[:last]
	return s
}

// converse chats until the user leaves.
func (t *talk) converse() error {
	x := t.call
	p := &conversation{talk: t, log: x.log, said: said{system: t.flags.chat.system}}
	fmt.Fprintf(p.log, "karat: chat with %s; /help lists the commands\n", oneLine(p.modelName()))
	p.hintSampling("/set temp 0.8")
	p.prompter = openPrompter(x.in, p.log, t.flags.noHistory)
	defer p.prompter.close()
	for {
		line, err := p.prompter.read()
		if err == nil {
			p.prompter.lines.keep(line)
			err = p.obey(line)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil && p.prompter.interrupts > 1:
			return failure{status: statusInterrupted}
		case err != nil:
			return err
		}
	}
}

// obey carries out a line. The error is io.EOF at the end.
func (p *conversation) obey(line string) error {
	if p.model.Sees() {
		var paths []string
		paths, line = cutImages(line)
		for _, path := range paths {
			if err := addImage(p, path); err != nil {
				fmt.Fprintln(p.log, "karat:", oneLine(err.Error()))
				return nil
			}
		}
	}
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
func (t *talk) modelName() string {
	if name := t.call.model.name; name != "" {
		return name
	}
	return t.model.Info().Path
}

// say asks for an answer. A message without an answer leaves the conversation; an answer broken off stays. The error
// is of the output.
func (p *conversation) say(text string) error {
	p.undo.keep(p.said)
	text, p.files = strings.Join(append([]string{text}, p.files...), "\n\n"), nil
	before := p.messages[:len(p.messages):len(p.messages)]
	said := karat.Message{Role: karat.RoleUser, Parts: append(p.images[:len(p.images):len(p.images)], karat.Text(text))}
	p.messages, p.images = append(before, said), nil
	a := answer{output: p.output()}
	ctx, stop := p.prompter.interruptible()
	defer stop()
	r, err := p.fit(ctx)
	if err == nil {
		a.parser, a.ids = r.parser, r.ids
		err = a.write(ctx, r.tokens(ctx, a.session))
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
		p.said = p.undo.takeBack()
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
