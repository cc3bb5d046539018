package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"github.com/karat-run/karat"
	"github.com/spf13/cobra"
)

// conversation is a chat at a terminal.
type conversation struct {
	output
	g        karat.GenerateOptions
	flags    *chatFlags
	messages []karat.Message

	next       func(prompt string) (string, error) // asks for a line; errInterrupt is Ctrl-C
	signals    <-chan os.Signal
	interrupts int // since the last line
}

const chatHelp = `Type a message and press Enter. A line that ends in \ continues on the next line. The arrow
keys edit the line and bring back earlier ones. A pasted text may have several lines.
  /clear  forget the conversation
  /help   this text
  /bye    leave (or press Ctrl-D)
Ctrl-C stops an answer, a second Ctrl-C leaves.
`

// converse chats until the user leaves.
func (f *chatFlags) converse(c *cobra.Command, m *karat.Model, g karat.GenerateOptions, o output) error {
	fmt.Fprintf(o.log, "karat: chat with %s; /help tells how\n", oneLine(m.Info().Path))
	signals := make(chan os.Signal, 2) // two at once are two
	signal.Notify(signals, os.Interrupt)
	defer signal.Stop(signals)
	p := &conversation{output: o, g: g, flags: f, signals: signals}
	if e := newEditor(c.InOrStdin(), o.log); e != nil {
		p.next = e.line
	} else {
		p.next = p.plain(readLines(c.InOrStdin()))
	}
	p.messages = p.flags.opening()
	for {
		line, err := p.read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case line == "":
		case strings.HasPrefix(line, "/") && !strings.ContainsAny(line, " \n"):
			if !p.command(line) {
				return nil
			}
		default:
			if err := p.say(line); err != nil {
				return err
			}
		}
	}
}

// readLines reads lines until the input ends. Waiting for one cannot be broken
// off, so the goroutine ends with the input or with the program.
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

// read asks for a line, and for its continuation lines. The error is io.EOF
// at the end, and a failure after the second Ctrl-C.
func (p *conversation) read() (string, error) {
	var text strings.Builder
	for prompt := ">>> "; ; prompt = "... " {
		line, err := p.next(prompt)
		switch {
		case errors.Is(err, errInterrupt):
			fmt.Fprintln(p.log)
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
		line, more := strings.CutSuffix(line, `\`)
		text.WriteString(line)
		if !more {
			return text.String(), nil
		}
		text.WriteByte('\n')
	}
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

// command obeys a command, and reports whether the conversation goes on.
func (p *conversation) command(line string) bool {
	switch line {
	case "/bye", "/exit", "/quit":
		return false
	case "/clear":
		p.messages = p.flags.opening()
		fmt.Fprintln(p.log, "karat: the conversation is forgotten")
	case "/help", "/?":
		fmt.Fprint(p.log, chatHelp)
	default:
		fmt.Fprintf(p.log, "karat: there is no command %s\n%s", oneLine(line), chatHelp)
	}
	return true
}

// say has the model answer. What it could not answer does not stay in the
// conversation; an answer that was broken off does. The error is of the output.
func (p *conversation) say(text string) error {
	messages := append(p.messages[:len(p.messages):len(p.messages)], karat.TextMessage(karat.RoleUser, text))
	a := answer{output: p.output}
	ctx, stop := p.interruptible()
	defer stop()
	err := a.write(ctx, a.session.Chat(ctx, messages, p.g))
	var f failure
	var full contextFull
	switch {
	case a.stop == "":
		return err
	case a.full():
		fmt.Fprintln(a.log, "karat: /clear makes room; --ctx sets the length of the context")
	case err != nil && !errors.As(err, &f):
		fmt.Fprintln(a.log, "karat:", errorText(p.flags.named(err)))
		if errors.As(err, &full) {
			hint := "--ctx sets the length of the context"
			if errors.Is(err, karat.ErrBudget) {
				hint = "--kv-budget sets the memory of keys and values"
			}
			fmt.Fprintln(a.log, "karat: /clear makes room;", hint)
		}
	case a.tokens > 0:
		p.messages = append(messages, karat.TextMessage(karat.RoleAssistant, a.text.String()))
	}
	return nil
}

// interruptible is a context that Ctrl-C cancels; the second one ends the program.
func (p *conversation) interruptible() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	done := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-p.signals:
				if p.interrupts++; p.interrupts > 1 {
					os.Exit(statusInterrupted)
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
