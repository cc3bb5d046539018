package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// screen shows an answer as it comes.
type screen interface {
	text(s string) error  // shows a part of the answer
	think(s string) error // shows a part of the reasoning before the answer
	end() error           // ends the answer's last line
}

// newScreen returns the screen for an output. Markdown and folded reasoning are for terminals; a raw text has neither.
func newScreen(out io.Writer, plain, hide bool) screen {
	f, ok := out.(*os.File)
	if !ok || !isTerminal(out) || plain || os.Getenv("TERM") == "dumb" {
		return &plainScreen{w: out, terminal: isTerminal(out), hide: hide}
	}
	size := func() (columns, rows int) {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			return w, h
		}
		return 80, 24
	}
	return newRichScreen(out, size, os.Getenv("NO_COLOR") == "", hide)
}

// plainScreen writes the answer as it is. A terminal gets the reasoning before the answer.
type plainScreen struct {
	w              io.Writer
	terminal, hide bool
	said, thought  bool
}

func (p *plainScreen) write(s string) error {
	if p.terminal {
		s = answerText(s)
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

// Styles of text on a terminal, by the codes of SGR. Styles add up.
const (
	bold   = "\x1b[1m"
	dim    = "\x1b[2m"
	italic = "\x1b[3m"
	cyan   = "\x1b[36m"
	normal = "\x1b[0m"
)

// richScreen shows Markdown, and reasoning in a few dim lines, removed at its end.
type richScreen struct {
	w     io.Writer
	size  func() (columns, rows int)
	color bool
	hide  bool

	answer *markdown
	rows   []string // of the reasoning shown
	row    string   // still growing
	drawn  int      // rows on the terminal
	fresh  bool     // the terminal's line is empty
	began  time.Time
}

func newRichScreen(w io.Writer, size func() (columns, rows int), color, hide bool) *richScreen {
	s := &richScreen{w: w, size: size, color: color, hide: hide}
	s.answer = &markdown{color: color, width: func() int { columns, _ := size(); return max(columns-1, 10) }}
	return s
}

func (s *richScreen) text(text string) error {
	if err := s.fold(); err != nil {
		return err
	}
	return s.flush(s.answer.write(answerText(text)))
}

func (s *richScreen) end() error {
	if err := s.fold(); err != nil {
		return err
	}
	rest := s.answer.end()
	if rest != "" || !s.fresh {
		rest += "\n"
	}
	return s.flush(rest)
}

func (s *richScreen) flush(text string) error {
	if text != "" {
		s.fresh = strings.HasSuffix(text, "\n")
	}
	_, err := io.WriteString(s.w, text)
	return err
}

// styled returns a text with a style.
func (s *richScreen) styled(style, text string) string {
	if !s.color || text == "" {
		return text
	}
	return style + text + normal
}

// maxThought is how many rows of reasoning are shown.
const maxThought = 6

func (s *richScreen) think(text string) error {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	columns, rows := s.size()
	most := max(min(maxThought, rows/3), 1)
	if s.hide {
		if s.drawn > 0 {
			return nil
		}
		s.row, most = "thinking ...", 1
	} else {
		s.wrap(answerText(text), max(columns-1, 10))
	}
	s.rows = s.rows[max(0, len(s.rows)-most+1):]
	shown := strings.Join(append(s.rows[:len(s.rows):len(s.rows)], s.row), "\n")
	erase := s.erase()
	s.drawn = len(s.rows) + 1
	return s.flush(erase + s.styled(dim, shown))
}

// erase returns the codes for removing the rows of reasoning.
func (s *richScreen) erase() string {
	if s.drawn == 0 {
		return ""
	}
	up := ""
	if s.drawn > 1 {
		up = fmt.Sprintf("\x1b[%dA", s.drawn-1)
	}
	return "\r" + up + "\x1b[J"
}

// wrap adds a text to the rows of reasoning.
func (s *richScreen) wrap(text string, columns int) {
	for _, r := range text {
		switch {
		case r == '\n':
			if strings.TrimSpace(s.row) != "" { // empty rows say nothing in a few rows
				s.rows = append(s.rows, s.row)
			}
			s.row = ""
			continue
		case r == '\t':
			r = ' '
		}
		if s.row += string(r); textWidth(s.row) > columns {
			at := strings.LastIndexByte(s.row, ' ')
			if at <= 0 || r == ' ' {
				at = len(s.row) - len(string(r))
			}
			s.rows = append(s.rows, strings.TrimRight(s.row[:at], " "))
			s.row = strings.TrimLeft(s.row[at:], " ")
		}
	}
}

// fold replaces the reasoning by a line about it.
func (s *richScreen) fold() error {
	if s.drawn == 0 {
		return nil
	}
	line := fmt.Sprintf("(thought for %v)", time.Since(s.began).Round(time.Second))
	erase := s.erase()
	s.drawn, s.rows, s.row = 0, nil, ""
	return s.flush(erase + s.styled(dim, line) + "\n\n")
}
