package syntax

import (
	"strings"
	"unicode"
)

// Event is a piece of an answer: one of its fields is set.
type Event struct {
	Text, Reasoning string
	Calls           []Call
}

// mode is what a Parser is within.
type mode int

const (
	inText mode = iota
	inReasoning
	inCall
	inBare
)

// Parser reads an answer as it comes. Anything but a well-formed call of a tool is text, as the model
// wrote it. White space beside marks is no text.
type Parser struct {
	s     Syntax
	tools Tools // nil for none: calls are text
	mode  mode
	marks Marks  // of the call that the parser is within
	held  string // not yet decided
	space string // that may be beside a mark
	apart string // the space before the call that the parser is within
	fresh bool   // there was no text since the last mark
	out   []Event
}

// NewParser reads an answer. opened says that it begins within reasoning (Syntax.Opens).
func (s Syntax) NewParser(tools Tools, opened bool) *Parser {
	p := &Parser{s: s, tools: tools, fresh: true}
	if opened {
		p.mode = inReasoning
	} else if s.Bare && tools != nil {
		p.mode = inBare
	}
	return p
}

// Thinks reports whether the parser is within reasoning.
func (p *Parser) Thinks() bool { return p.mode == inReasoning }

// Write takes the next piece of an answer and returns the decided events.
func (p *Parser) Write(text string) []Event {
	p.held += text
	p.out = nil
	for p.next() {
	}
	return p.out
}

// End returns the rest.
func (p *Parser) End() []Event {
	p.out = nil
	rest := p.held
	p.held = ""
	switch p.mode {
	case inText, inReasoning:
		p.say(rest)
	case inBare:
		p.call("", rest, "")
	case inCall:
		if p.marks.End == "" {
			p.call(p.marks.Begin, rest, "")
		} else {
			p.verbatim(p.marks.Begin + rest)
		}
	}
	p.emit(p.space)
	p.space = ""
	return p.out
}

// next decides on the beginning of the held text, and reports whether there may be more.
func (p *Parser) next() bool {
	switch p.mode {
	case inReasoning:
		return p.until([]string{p.s.Close}, func(string) { p.mode, p.fresh = inText, true })
	case inCall:
		body, rest, ok := strings.Cut(p.held, p.marks.End)
		if p.marks.End == "" || !ok {
			return false
		}
		p.held = rest
		p.call(p.marks.Begin, body, p.marks.End)
		return true
	case inBare:
		if text := strings.TrimLeftFunc(p.held, unicode.IsSpace); text == "" || text[0] == '{' {
			return false
		}
		p.mode = inText
		return true
	}
	return p.until(p.openers(), p.open)
}

// openers are the marks that end a text.
func (p *Parser) openers() []string {
	marks := append([]string(nil), p.s.Frame...)
	if p.s.Open != "" {
		marks = append(marks, p.s.Open)
	}
	if p.tools != nil {
		for _, c := range p.s.Calls {
			marks = append(marks, c.Begin)
		}
	}
	return marks
}

func (p *Parser) open(mark string) {
	p.fresh = true
	if mark == p.s.Open {
		p.mode = inReasoning
	}
	for _, c := range p.s.Calls {
		if mark == c.Begin && p.tools != nil {
			p.mode, p.marks = inCall, c
		}
	}
}

// until hands over what comes before the first of the marks, and has then go on behind it. Without
// one it hands over what cannot be the beginning of one.
func (p *Parser) until(marks []string, then func(mark string)) bool {
	first, found := len(p.held), ""
	for _, m := range marks {
		if i := strings.Index(p.held, m); i >= 0 && (i < first || i == first && len(m) > len(found)) {
			first, found = i, m
		}
	}
	if found != "" {
		p.say(p.held[:first])
		p.held, p.apart, p.space = p.held[first+len(found):], p.space, ""
		then(found)
		return true
	}
	keep := 0
	for _, m := range marks {
		for k := min(len(m)-1, len(p.held)); k > keep; k-- {
			if strings.HasSuffix(p.held, m[:k]) {
				keep = k
			}
		}
	}
	text := p.held[:len(p.held)-keep]
	p.held = p.held[len(p.held)-keep:]
	p.say(text)
	return false
}

// say hands over text of the present mode, but for white space that may be beside a mark.
func (p *Parser) say(text string) {
	if p.fresh {
		text = strings.TrimLeftFunc(text, p.beside)
	}
	if text == "" {
		return
	}
	body := strings.TrimRightFunc(text, p.beside)
	if body == "" {
		p.space += text
		return
	}
	p.fresh = false
	p.emit(p.space + body)
	p.space = text[len(body):]
}

// beside are the characters that may be between marks and text. Where there are no marks there
// is nothing beside them.
func (p *Parser) beside(r rune) bool {
	return (p.s.Open != "" || len(p.s.Calls) > 0 && p.tools != nil) && (r == '\n' || r == ' ')
}

func (p *Parser) emit(text string) {
	if text == "" {
		return
	}
	e := Event{Text: text}
	if p.mode == inReasoning {
		e = Event{Reasoning: text}
	}
	p.out = append(p.out, e)
}

// call hands over the calls of a text, or the text with its marks where it has none.
func (p *Parser) call(begin, body, end string) {
	calls, err := p.s.form.parse(body, p.tools)
	if err != nil {
		p.verbatim(begin + body + end)
		return
	}
	p.mode, p.fresh, p.space = inText, true, ""
	p.out = append(p.out, Event{Calls: calls})
}

// verbatim hands over what looked like a call as the model wrote it.
func (p *Parser) verbatim(text string) {
	p.mode, p.fresh, p.space = inText, false, p.apart
	p.say(text)
}
