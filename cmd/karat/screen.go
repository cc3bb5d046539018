package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

// markdown shows Markdown on a terminal as it comes: headings, lists, quotes, code, bold and italic text, with lines
// wrapped between words. Anything else, such as a table, stays as written. Without color the marks also stay.
type markdown struct {
	color bool
	width func() int // columns of a line

	out    strings.Builder
	held   string // the uncertain part of the line
	fence  string // the end mark of the block of code; "" outside a block
	begun  bool   // the line's kind is known
	raw    bool   // the line is not wrapped
	style  string // of the line
	indent string // before the continuation of a line
	margin int    // columns of indent
	last   rune   // last rune before held

	column int             // of the terminal
	space  int             // columns of space before word
	word   strings.Builder // not written yet, with its styles
	cells  int             // of word
	inWord string          // the style at the end of word
}

// maxHeld bounds the text waiting for the end of a mark.
const maxHeld = 1000

// Kinds of lines. unsure is a beginning still open to any kind.
var (
	unsure  = regexp.MustCompile("^ {0,12}(#{1,6}|[-*+_][-*_ ]{0,80}|[0-9]{1,9}([.)] *)?|> ?|[`~]{1,80})?$")
	heading = regexp.MustCompile(`^ {0,3}#{1,6} +`)
	bullet  = regexp.MustCompile(`^( {0,12})([-*+]|[0-9]{1,9}[.)]) +[^ ]`)
	quote   = regexp.MustCompile(`^ {0,3}> ?[^ ]`)
	rule    = regexp.MustCompile(`^ {0,3}(-( *-){2,}|\*( *\*){2,}|_( *_){2,}) *$`)
	fenced  = regexp.MustCompile("^ {0,12}(```+|~~~+)([^`]*)$")
)

// write takes the next part of a text and returns the terminal's new text.
func (m *markdown) write(text string) string {
	for {
		line, rest, ended := strings.Cut(text, "\n")
		m.held += line
		m.line(ended)
		if !ended {
			return m.take()
		}
		m.putWord()
		m.out.WriteByte('\n')
		m.begun, m.raw, m.style, m.indent, m.margin = false, false, "", "", 0
		m.column, m.space, m.last = 0, 0, 0
		text = rest
	}
}

// end returns the rest.
func (m *markdown) end() string {
	m.line(true)
	m.putWord()
	return m.take()
}

func (m *markdown) take() string {
	defer m.out.Reset()
	return m.out.String()
}

// line shows as much of the held text as is certain.
func (m *markdown) line(ended bool) {
	switch {
	case !m.begun && !m.begin(ended):
	case m.raw:
		m.out.WriteString(m.styled(m.style, m.held))
		m.held = ""
	default:
		m.held = m.inline(m.style, m.held, ended)
	}
}

func (m *markdown) styled(style, text string) string {
	if !m.color || style == "" || text == "" {
		return text
	}
	return style + text + normal
}

// begin finds the kind of a line, and reports whether the kind is certain.
func (m *markdown) begin(ended bool) bool {
	f := fenced.FindStringSubmatch(m.held)
	closes := f != nil && m.fence != "" && strings.HasPrefix(f[1], m.fence) && strings.TrimSpace(f[2]) == ""
	switch {
	case !ended && (closes || f != nil && m.fence == "" ||
		unsure.MatchString(m.held) && (m.fence == "" || strings.Trim(m.held, " `~") == "")):
		return false
	case closes:
		m.fence, m.raw, m.style = "", true, dim
	case m.fence != "":
		m.raw, m.style = true, cyan
	case f != nil:
		m.fence, m.raw, m.style = f[1], true, dim
	case rule.MatchString(m.held):
		if m.raw, m.style = true, dim; m.color {
			m.held = strings.Repeat("─", min(m.width(), 40))
		}
	case heading.MatchString(m.held):
		if m.style = bold; m.color {
			m.held = m.held[len(heading.FindString(m.held)):]
		}
	case bullet.MatchString(m.held):
		at := bullet.FindStringSubmatchIndex(m.held)
		mark, begin := m.held[at[4]:at[5]], at[1]
		for begin--; m.held[begin]&0xc0 == 0x80; begin-- { // the first character of the text
		}
		if m.color && len(mark) == 1 {
			mark = "•"
		}
		m.lead(m.held[:at[3]]+mark+" ", strings.Repeat(" ", at[3]+textWidth(mark)+1), at[3]+textWidth(mark)+1, begin)
	case quote.MatchString(m.held):
		bar := m.styled(dim, "> ")
		if m.color {
			bar = m.styled(dim, "│ ")
		}
		m.lead(bar, bar, 2, len(m.held)-len(strings.TrimLeft(m.held, "> ")))
	case strings.HasPrefix(strings.TrimLeft(m.held, " "), "|"):
		m.raw = true
	}
	m.begun = true
	return true
}

// lead writes the text before a line, and keeps the indent of its continuation. The first n bytes are done.
func (m *markdown) lead(before, indent string, columns, n int) {
	m.out.WriteString(before)
	m.indent, m.held = indent, m.held[n:]
	m.column, m.margin = columns, columns
}

// inline shows a text with its marks, and returns the rest, uncertain before more comes.
func (m *markdown) inline(style, text string, ended bool) string {
	for text != "" {
		at := strings.IndexAny(text, "*_`\\")
		if at < 0 {
			m.put(style, text)
			return ""
		}
		m.put(style, text[:at])
		text = text[at:]
		mark := text[:len(text)-len(strings.TrimLeft(text, text[:1]))]
		rest := text[len(mark):]
		if rest == "" && !ended {
			return text
		}
		if mark[0] == '\\' { // an escape makes the next character text
			n := 1
			if len(text) > 1 && unicode.IsPunct(rune(text[1])) {
				if n = 2; m.color {
					text, n = text[1:], 1
				}
			}
			m.put(style, text[:n])
			text = text[n:]
			continue
		}
		end := -1
		if m.opens(mark, rest) {
			if end = closing(mark, rest, ended); end < 0 && !ended && len(text) <= maxHeld {
				return text
			}
		}
		if end < 0 {
			m.put(style, mark)
			text = rest
			continue
		}
		m.span(style, mark, rest[:end])
		text = rest[end+len(mark):]
	}
	return ""
}

// span shows a text between two marks.
func (m *markdown) span(style, mark, text string) {
	shown := mark
	if m.color {
		shown = ""
	}
	m.put(style, shown)
	switch {
	case mark[0] == '`':
		m.put(style+cyan, text)
	case len(mark) == 1:
		m.inline(style+italic, text, true)
	case len(mark) == 2:
		m.inline(style+bold, text, true)
	default:
		m.inline(style+bold+italic, text, true)
	}
	m.put(style, shown)
}

// opens reports whether a mark before rest can begin a span.
func (m *markdown) opens(mark, rest string) bool {
	next, _ := utf8.DecodeRuneInString(rest)
	switch {
	case rest == "":
		return false
	case mark[0] == '`':
		return true
	}
	return len(mark) <= 3 && !unicode.IsSpace(next) && (mark[0] != '_' || !isWord(m.last))
}

// closing returns the place of a span's end mark, -1 if absent.
func closing(mark, text string, ended bool) int {
	for at := 0; at < len(text); {
		i := strings.IndexByte(text[at:], mark[0])
		if i < 0 {
			return -1
		}
		at += i
		n := len(text[at:]) - len(strings.TrimLeft(text[at:], mark[:1]))
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+n:])
		switch {
		case at+n == len(text) && !ended:
			return -1 // the mark may go on
		case n == len(mark) && at > 0 &&
			(mark[0] == '`' || !unicode.IsSpace(before) && (mark[0] != '_' || !isWord(after))):
			return at
		}
		at += n
	}
	return -1
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// put adds text to the line. Words are written whole; wide characters are words of their own.
func (m *markdown) put(style, text string) {
	if !m.color {
		style = ""
	}
	for _, r := range text {
		m.last = r
		if r == ' ' || r == '\t' {
			m.putWord()
			m.space++
			continue
		}
		n := runeWidth(r)
		if n == 2 || m.cells+n > m.width()-m.margin {
			m.putWord()
		}
		if style != m.inWord {
			if m.inWord != "" {
				m.word.WriteString(normal)
			}
			m.word.WriteString(style)
			m.inWord = style
		}
		m.word.WriteRune(r)
		if m.cells += n; n == 2 {
			m.putWord()
		}
	}
}

// putWord writes the word, on a new line if this line has no room.
func (m *markdown) putWord() {
	if m.word.Len() == 0 {
		return
	}
	if m.column+m.space+m.cells > m.width() && m.column > 0 {
		m.out.WriteString("\n" + m.indent)
		m.column, m.space = m.margin, 0
	}
	m.out.WriteString(strings.Repeat(" ", m.space))
	m.out.WriteString(m.word.String())
	if m.inWord != "" {
		m.out.WriteString(normal)
	}
	m.column += m.space + m.cells
	m.word.Reset()
	m.space, m.cells, m.inWord = 0, 0, ""
}
