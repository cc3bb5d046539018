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
	"time"
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
