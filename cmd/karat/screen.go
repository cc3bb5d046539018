package main

import (
	"io"
)

// screen shows an answer as it comes.
type screen interface {
	text(s string) error  // shows a part of the answer
	think(s string) error // shows a part of the reasoning before it
	end() error           // ends the answer's last line
}

// newScreen returns the screen for an output. Reasoning is shown on a terminal alone.
func newScreen(out io.Writer, plain, hide bool) screen {
	return &plainScreen{w: out, terminal: isTerminal(out), hide: hide}
}

// plainScreen writes the answer as it is.
type plainScreen struct {
	w              io.Writer
	terminal, hide bool
	said, thought  bool
}

func (p *plainScreen) write(s string) error {
	if p.terminal {
		s = printable(s)
	}
	_, err := io.WriteString(p.w, s)
	return err
}

func (p *plainScreen) text(s string) error {
	if p.thought && !p.said {
		s = "\n\n" + s
	}
	p.said = p.said || s != ""
	return p.write(s)
}

func (p *plainScreen) think(s string) error {
	if !p.terminal || p.hide {
		return nil
	}
	if !p.thought {
		s = "Thinking: " + s
	}
	p.thought = true
	return p.write(s)
}

func (p *plainScreen) end() error { return p.write("\n") }
