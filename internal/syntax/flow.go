package syntax

import (
	"bytes"
	"strings"
)

// stage is how far a call has come.
type stage int

const (
	inHead stage = iota // before its arguments
	inArguments
	inTail
)

// flow is a call whose arguments are handed over as they come.
type flow struct {
	stage           stage
	later           bool // there was a call before it between the same marks
	whole           bool // the text does not begin as calls do that are asked for: it is read whole
	depth           int  // of brackets
	quoted, escaped bool
}

// flows reports whether calls are read by flow.
func (p *Parser) flows() bool {
	form := p.s.Style.Form
	return p.Held && !p.flow.whole && p.lead == 0 && (form == Object || form == Keyed || form == Named)
}

// goOn reads on in a call, as next does.
func (p *Parser) goOn() bool {
	switch p.flow.stage {
	case inHead:
		return p.head()
	case inArguments:
		return p.arguments()
	}
	return p.tail()
}

// head reads the name of a call, up to its arguments.
func (p *Parser) head() bool {
	y := &p.s.Style
	begin := y.Name
	if !y.Each && !p.flow.later {
		begin = y.First + y.Name
	}
	space := 0
	for p.mode == inBare && space < len(p.held) && p.beside(rune(p.held[space])) {
		space++
	}
	text := string(p.held[space:min(len(p.held), space+maxBegin)])
	rest, ok := strings.CutPrefix(text, begin)
	if !ok && strings.HasPrefix(begin, text) {
		return false
	}
	for name := range p.tools {
		switch head := name + y.Then; {
		case ok && strings.HasPrefix(rest, head+"{"):
			p.take(space + len(begin) + len(head))
			p.out = append(p.out, Event{Calls: []Call{{Name: name, More: true}}})
			p.flow.stage = inArguments
			return true
		case ok && strings.HasPrefix(head, rest) && len(text) < maxBegin:
			return false
		}
	}
	p.flow.whole = true
	return true
}

// arguments hands over an object as far as it has come, without the spaces around its parts.
func (p *Parser) arguments() bool {
	f := &p.flow
	var b bytes.Buffer
	n := 0
	for n < len(p.held) && f.stage == inArguments {
		c := p.held[n]
		n++
		switch {
		case f.escaped:
			f.escaped = false
		case f.quoted:
			f.escaped, f.quoted = c == '\\', c != '"'
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		case c == '"':
			f.quoted = true
		case c == '{' || c == '[':
			f.depth++
		case c == '}' || c == ']':
			if f.depth--; f.depth == 0 {
				f.stage = inTail
			}
		}
		b.WriteByte(c)
	}
	p.take(n)
	if b.Len() > 0 {
		p.out = append(p.out, Event{Calls: []Call{{Arguments: b.String(), More: f.stage == inArguments}}})
	}
	return f.stage == inTail
}

// tail reads on behind the arguments: another call, or the end.
func (p *Parser) tail() bool {
	y := &p.s.Style
	another, end := y.After+y.Between, y.After+y.Last+p.marks.End
	if y.Each {
		another, end = y.After+p.marks.Begin, y.After+p.marks.End
	}
	text := string(p.held)
	ends := p.marks.End != "" && strings.HasPrefix(text, end)
	switch {
	case another != y.After && strings.HasPrefix(text, another) && (!y.Each || p.marks.End == ""):
		p.take(len(another))
		p.flow = flow{later: true}
	case !ends && (strings.HasPrefix(another, text) || strings.HasPrefix(end, text)):
		return false
	default:
		if ends { // always, where the answer is held
			p.take(len(end))
		}
		p.mode, p.fresh, p.space, p.flow = inText, true, "", flow{}
	}
	return true
}
