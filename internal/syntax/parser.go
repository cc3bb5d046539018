package syntax

import (
	"bytes"
	"strings"
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

// maxCall bounds the text of a call. A longer one is text.
const maxCall = 1 << 20

// maxBegin is how many bytes are looked at to tell a call without marks from a text.
const maxBegin = 1 << 8

// Parser reads an answer as it comes. Anything but a well-formed call of a tool is text, as the model
// wrote it. White space beside marks is no text.
type Parser struct {
	Held   bool // the answer is held to its syntax, and calls to their tools: JSON arguments come in pieces, and a call that is cut is one
	flow   flow
	s      Syntax
	tools  Tools // nil for none: calls are text
	mode   mode
	marks  Marks  // of the call that the parser is within
	begun  string // the mark that was met last, as far as the model wrote it
	held   []byte // not yet decided
	lead   int    // bytes of held that are the prompt's
	looked int    // bytes of held in which no call ends, or no text begins
	space  string // that may be beside a mark
	apart  string // the space before the call that the parser is within
	fresh  bool   // there was no text since the last mark
	out    []Event
}

// NewParser reads an answer. opened says that it begins within reasoning (Syntax.Opens).
func (s Syntax) NewParser(tools Tools, opened bool) *Parser {
	p := &Parser{s: s, tools: tools, fresh: true}
	if p.mode = p.start(); opened {
		p.mode = inReasoning
	} else {
		p.held, p.lead = []byte(s.Lead), len(s.Lead)
	}
	return p
}

// Continue makes the answer one that goes on with a text of its own turn: the white space at its beginning counts, and the turn's
// frame came before.
func (p *Parser) Continue() {
	if p.fresh, p.held, p.lead = false, nil, 0; p.mode == inBare {
		p.mode = inText
	}
}

// start is what an answer is within where nothing was said.
func (p *Parser) start() mode {
	if p.s.Bare && p.tools != nil {
		return inBare
	}
	return inText
}

// Thinks reports whether the parser is within reasoning.
func (p *Parser) Thinks() bool { return p.mode == inReasoning }

// Write takes the next piece of an answer and returns the decided events.
func (p *Parser) Write(text string) []Event {
	p.held = append(p.held, text...)
	p.out = nil
	for p.next(false) {
	}
	return p.out
}

// End returns the rest.
func (p *Parser) End() []Event {
	p.out = nil
	for p.next(true) {
	}
	if p.flow.stage > inHead { // the rest of the call
		p.take(len(p.held))
		return p.out
	}
	switch rest := p.take(len(p.held)); p.mode {
	case inText, inReasoning:
		p.say(rest)
	case inBare:
		p.apart = ""
		p.call("", strings.TrimLeftFunc(rest, p.beside), "")
	case inCall:
		if p.marks.End == "" || p.marks.Last {
			p.call(p.begun, rest, "")
		} else {
			p.verbatim(p.begun + rest)
		}
	}
	p.emit(p.space)
	p.space = ""
	return p.out
}

// take cuts bytes off the held text, and returns the ones that the model wrote.
func (p *Parser) take(n int) string {
	lead := min(n, p.lead)
	text := string(p.held[lead:n])
	p.held, p.lead, p.looked = p.held[n:], p.lead-lead, 0
	return text
}

// next decides on the beginning of the held text, and reports whether there may be more. final says that nothing follows.
func (p *Parser) next(final bool) bool {
	switch p.mode {
	case inReasoning:
		return p.until([]string{p.s.Close}, final, func(string) { p.mode, p.fresh, p.flow = p.start(), true, flow{} })
	case inCall:
		if p.flows() {
			return p.goOn()
		}
		return p.within()
	case inBare:
		if p.flows() {
			return p.goOn()
		}
		for p.looked < len(p.held) && strings.IndexByte(" \t\r\n", p.held[p.looked]) >= 0 {
			p.looked++
		}
		text := p.held[p.looked:]
		if len(p.held) <= maxCall && p.bare(string(text[:min(len(text), maxBegin)])) {
			return false
		}
		p.mode = inText
		return true
	}
	return p.until(p.openers(), final, p.open)
}

// bare reports whether a text may begin a call that has no marks.
func (p *Parser) bare(text string) bool {
	begins := func(with string) bool { return strings.HasPrefix(text, with) || strings.HasPrefix(with, text) }
	if begins("{") {
		return true
	}
	switch p.s.Style.Form {
	case Python:
		return begins("[")
	case Named:
		for name := range p.tools {
			if begins(name + p.s.Style.Then) {
				return true
			}
		}
	}
	return false
}

// within looks for the end of a call.
func (p *Parser) within() bool {
	end := p.marks.End
	n := -1
	if end != "" {
		n = bytes.Index(p.held[p.looked:], []byte(end))
	}
	switch {
	case n >= 0:
		body := p.take(p.looked + n)
		p.call(p.begun, body, p.take(len(end)))
		return true
	case len(p.held) > maxCall:
		p.verbatim(p.begun + p.take(len(p.held)))
		return true
	}
	p.looked = max(0, len(p.held)-len(end))
	return false
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

// open goes on behind a mark.
func (p *Parser) open(mark string) {
	p.fresh = true
	if mark == p.s.Open {
		p.mode = inReasoning
	}
	for _, c := range p.s.Calls {
		if mark == c.Begin && p.tools != nil {
			p.mode, p.marks, p.flow = inCall, c, flow{}
		}
	}
}

// until hands over what comes before the first of the marks, the longest there, and has then go on behind it. Without
// one it hands over what cannot be the beginning of one.
func (p *Parser) until(marks []string, final bool, then func(mark string)) bool {
	first, found := len(p.held), ""
	partial := len(p.held) // a mark may begin here
	for _, m := range marks {
		if i := bytes.Index(p.held, []byte(m)); i >= 0 && (i < first || i == first && len(m) > len(found)) {
			first, found = i, m
		}
		for k := min(len(m)-1, len(p.held)); k > 0 && !final; k-- {
			if bytes.HasSuffix(p.held, []byte(m[:k])) {
				partial = min(partial, len(p.held)-k)
				break
			}
		}
	}
	if found == "" || partial <= first {
		p.say(p.take(partial))
		return false
	}
	p.say(p.take(first))
	p.apart, p.space = p.space, ""
	p.begun = p.take(len(found))
	then(found)
	return true
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
	return (p.s.Open != "" || len(p.s.Frame) > 0 || len(p.s.Calls) > 0 && p.tools != nil) && (r == '\n' || r == ' ')
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
	calls, err := p.s.Style.parse(body, p.marks.Begin, p.tools)
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
