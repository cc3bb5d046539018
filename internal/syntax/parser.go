package syntax

import (
	"bytes"
	"slices"
	"strings"
)

// Event is a piece of an answer: exactly one of its fields is set.
type Event struct {
	Text, Reasoning string
	Calls           []Call
}

// maxCall bounds the text of a call. A longer call is text.
const maxCall = 1 << 20

// Parser reads an answer as it comes, and hands over text as soon as no later text can change its meaning. A call of a
// tool is found anywhere, also within reasoning, if the call is complete. Anything else that looks like a call is text,
// as the model wrote it, without control tokens. White space beside marks is no text.
type Parser struct {
	Held     bool     // calls are held to their tools: JSON arguments come in pieces, and a cut call counts
	Required bool     // the answer is held to calls: it has no text
	Control  []string // marks that are control tokens of the model

	s       Syntax
	tools   Tools // nil for none: calls are text
	openers map[mode][]opener
	stops   []string            // marks that may follow calls
	first   map[mode]*[256]bool // first bytes of the openers of a mode
	mode    mode
	flow    flow
	marks   Marks       // marks of the call that the parser is within
	held    []byte      // not yet decided
	control map[int]int // lengths of the control tokens in held, by their beginnings
	lead    int         // bytes of held that belong to the prompt
	waiting *opener     // at the beginning of held, undecided until more text comes
	total   int         // bytes of the answer
	look    look
	last    last
	out     []Event
}

// look is how far calls were looked for.
type look struct {
	work  int  // bytes read for calls
	tried int  // bytes of held, behind the opener, already examined
	due   bool // a call may end in these bytes
}

// last is the end of the text handed over.
type last struct {
	space  string // white space held back, perhaps beside a mark
	fresh  bool   // there was no text since the last mark
	said   bool   // there was text
	before byte   // byte before held
	owed   bool   // a call ended the reasoning, and the mark of the reasoning's end may come
}

// NewParser returns a parser for an answer. An opened answer begins within reasoning (Syntax.Opens).
func (s Syntax) NewParser(tools Tools, opened bool) *Parser {
	p := &Parser{s: s, tools: tools, last: last{fresh: true}, openers: map[mode][]opener{},
		first: map[mode]*[256]bool{}}
	if opened {
		p.mode = inReasoning
	} else {
		p.held, p.lead = []byte(s.Lead), len(s.Lead)
	}
	for _, m := range s.opening(inText, tools) {
		if m.kind == begins || m.kind == frames {
			p.stops = append(p.stops, m.mark)
		}
	}
	for _, m := range []mode{inText, inReasoning} {
		p.openers[m], p.first[m] = s.opening(m, tools), new([256]bool)
		for _, o := range p.openers[m] {
			p.first[m][o.mark[0]] = true
		}
	}
	return p
}

// Continue makes the answer continue a text of its own turn: the white space at its beginning counts, and the turn's
// frame came before.
func (p *Parser) Continue() { p.last.fresh, p.last.said, p.held, p.lead = false, true, nil, 0 }

// Thinks reports whether the parser is within reasoning.
func (p *Parser) Thinks() bool { return p.mode == inReasoning }

// Control returns the name of a control token in the spelling for Write, which tells the token from equal text.
func Control(name string) string { return "\xff" + name + "\xff" }

// Write takes the next piece of an answer and returns the decided events.
func (p *Parser) Write(text string) []Event {
	p.out = nil
	p.total += len(text)
	token := false
	for part := range strings.SplitSeq(text, "\xff") {
		if token {
			if p.control == nil {
				p.control = map[int]int{}
			}
			p.control[len(p.held)] = len(part)
		}
		p.held, token = append(p.held, part...), !token
	}
	for p.next(false, false) {
	}
	return p.out
}

// End returns the rest of an answer that ended by itself.
func (p *Parser) End() []Event { return p.finish(false) }

// Cut returns the rest of an answer that was cut, without the beginning of a mark or of a call.
func (p *Parser) Cut() []Event { return p.finish(true) }

func (p *Parser) finish(cut bool) []Event {
	p.out = nil
	for p.next(true, cut) {
	}
	p.take(len(p.held))
	if p.mode != inCall {
		p.emit(p.last.space)
	}
	p.last.space = ""
	return p.out
}

// take cuts bytes off the held text, and returns the model's text among them.
func (p *Parser) take(n int) string {
	r := reader{s: string(p.held[:n]), control: p.control}
	text := r.plain(min(n, p.lead), n)
	p.control = moveTokens(p.control, -n)
	if n > 0 {
		p.last.before = p.held[n-1]
	}
	p.held, p.lead, p.waiting = p.held[n:], max(0, p.lead-n), nil
	return text
}

// moveTokens returns control tokens after moving their text, without tokens now before the beginning.
func moveTokens(control map[int]int, by int) map[int]int {
	var all map[int]int
	for from, length := range control {
		if from+by >= 0 {
			if all == nil {
				all = map[int]int{}
			}
			all[from+by] = length
		}
	}
	return all
}

// next decides on the beginning of the held text, and reports whether there may be more. With final nothing follows,
// and with cut the answer is incomplete.
func (p *Parser) next(final, cut bool) bool {
	if p.mode == inCall {
		return goOn(p)
	}
	o, i, x := p.waiting, 0, yes
	if o == nil {
		o, i, x = p.find(final && !cut)
	}
	if x != yes {
		if p.say(p.take(i)); x == short && final {
			p.last.space = ""
		}
		return false
	}
	n, then, x := p.try(o, i, final, cut)
	switch x {
	case short:
		p.say(p.take(i))
		if p.waiting = o; final { // rest of a call that was cut
			p.take(len(p.held))
			p.last.space = ""
		}
		return false
	case yes:
		p.say(p.take(i))
		p.last.space, p.last.fresh = "", true
		p.take(n - i)
		then()
		return true
	}
	p.say(p.take(i + len(o.mark)))
	return true
}

// find returns the first opener, and the longest there. Without an opener the result is a place at which an opener may
// begin.
func (p *Parser) find(final bool) (found *opener, at int, x reading) {
	openers, first, before := p.openers[p.mode], p.first[p.mode], p.last.before
	for at = range p.held {
		c := p.held[at]
		inWord := isWord(c) && isWord(before)
		if before = c; !first[c] || inWord {
			continue
		}
		rest := p.held[at:]
		for i := range openers {
			o := &openers[i]
			may := yes
			if o.kind == objects && !o.fresh {
				may = mayOpen(rest)
			}
			switch {
			case o.owed && !p.last.owed && !p.blank(at), o.fresh && !p.blank(at), may == no,
				string(rest[:1]) != o.mark[:1]:
			case may == short && !final:
				x = short
			case len(rest) >= len(o.mark) && string(rest[:len(o.mark)]) == o.mark:
				if found == nil || len(o.mark) > len(found.mark) {
					found = o
				}
			case !final && strings.HasPrefix(o.mark, string(rest[:min(len(rest), len(o.mark))])):
				x = short
			}
		}
		if x == short {
			return nil, at, short
		}
		if found != nil {
			return found, at, yes
		}
	}
	return nil, len(p.held), no
}

// blank reports whether the answer has no text before a place.
func (p *Parser) blank(at int) bool {
	return !p.last.said && strings.TrimLeft(string(p.held[min(at, p.lead):at]), " \t\r\n") == ""
}

// standsAlone reports whether a call may lack its first mark at a place: at the beginning of an answer, or, unless the
// answer must be nothing but a call, at the beginning of a line. A list, and a call that ends with the answer, may also
// begin elsewhere.
func (p *Parser) standsAlone(o *opener, at int) bool {
	line := strings.TrimRight(p.last.space+string(p.held[p.lead:max(p.lead, at)]), " ")
	switch {
	case p.blank(at):
		return true
	case p.s.Bare:
		return false
	}
	return o.marks.End == "" || o.mark == "[" || strings.HasSuffix(line, "\n")
}

// mayOpen reports whether a bracket may begin an object, or a list, of calls.
func mayOpen(text []byte) reading {
	list := text[0] == '['
	for _, c := range text[1:] {
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
		case list && c == '{':
			list = false
		default:
			if list && isWord(c) || !list && c == '"' {
				return yes
			}
			return no
		}
	}
	return short
}

// try reads an opener at i. If the result is yes, n is the end of the opened part, and the caller must call then.
func (p *Parser) try(o *opener, i int, final, cut bool) (n int, then func(), x reading) {
	n = i + len(o.mark)
	switch o.kind {
	case opensReasoning, closesReasoning, frames:
		if o.kind == frames && p.mode == inReasoning {
			break
		}
		return n, func() {
			switch o.kind {
			case opensReasoning:
				p.mode = inReasoning
			case closesReasoning:
				p.mode, p.last.owed = inText, false
			}
		}, p.isMark(o, i, final && !cut)
	case heads:
		return readHeader(p, i, final, cut)
	}
	at := i
	if o.kind == frames { // of calls within reasoning
		at, o, x = p.findFramed(i)
		if x == short && final && !cut {
			x = no
		}
		if x != yes {
			return i, nil, x
		}
	}
	if o.marks.Begin == o.mark {
		n = at + len(o.mark)
	} else {
		n = at
	}
	if handsOver(p) && (o.kind == begins || p.s.Bare) {
		if m, then, x := callHead(p, n, o.marks); x == yes || x == short && (!final || cut) {
			return m, then, x
		}
	}
	r := p.reader(o)
	r.alone = !cut && p.mode == inText && p.standsAlone(o, i)
	x = p.read(r, n, "", final, cut)
	return n + r.at, func() {
		p.last.owed = p.last.owed || p.mode == inReasoning
		p.mode = inText
		p.out = append(p.out, Event{Calls: r.calls})
	}, x
}

// reader returns the reader of calls behind an opener.
func (p *Parser) reader(o *opener) *reader {
	return &reader{y: &p.s.Style, marks: o.marks, tools: p.tools, begun: o.sure, stops: p.stops}
}

// read reads calls at n, behind a name known already. A beginning is examined first, and more where the beginning does
// not decide. The cost of repeated examination is bounded by the answer's length.
func (p *Parser) read(r *reader, n int, name string, final, cut bool) (x reading) {
	if size := len(p.held) - n; !final && p.waiting != nil && size > maxBegin && size <= maxCall {
		p.look.due = p.look.due || bytes.ContainsAny(p.held[n+min(p.look.tried, size):], lasts)
		if p.look.tried = size; !p.look.due || p.look.work > 8*p.total+1<<16 {
			return short
		}
	}
	p.look.tried, p.look.due = len(p.held)-n, false
	for size := 1 << 6; ; size *= 4 {
		size = min(size, maxCall, len(p.held)-n)
		whole := n+size == len(p.held)
		r.first = size <= maxBegin
		r.s, r.control = name+string(p.held[n:n+size]), moveTokens(p.control, len(name)-n)
		attempt := func(final, loose bool) reading {
			p.look.work += len(r.s)
			r.at, r.calls, r.final, r.loose = 0, nil, final, loose
			return r.read()
		}
		x = attempt(false, false)
		switch {
		case x != short:
			return x
		case !whole && size == maxCall:
			return no
		case !whole:
			continue
		case !final:
			return short
		case p.look.work > 64*p.total+maxCall:
			return no
		}
		if x = attempt(true, false); x == yes {
			return x
		}
		if cut {
			return short
		}
		return attempt(true, true)
	}
}

// lasts lists the possible last characters of a call.
const lasts = ">]})`"

// isMark reports whether text is a mark, and not text spelled like a control token of the model: the token itself, or,
// where no text was said, or where another mark comes next or the answer ends, its spelling.
func (p *Parser) isMark(o *opener, i int, final bool) reading {
	if !p.spelled(i) {
		return yes
	}
	rest := strings.TrimLeft(string(p.held[i+len(o.mark):]), " \n")
	switch {
	case rest == "" && final:
		return yes
	case rest == "":
		return short
	}
	x := no
	for _, m := range p.openers[inText] {
		if m.kind != objects && strings.HasPrefix(rest, m.mark) {
			return yes
		}
		if m.kind != objects && !final && strings.HasPrefix(m.mark, rest) {
			x = short
		}
	}
	return x
}

// spelled reports whether text behind other text is spelled like a control token of the model.
func (p *Parser) spelled(i int) bool {
	if p.control[i] > 0 || i < p.lead || p.last.fresh && strings.TrimLeft(string(p.held[:i]), " \n") == "" {
		return false
	}
	return slices.ContainsFunc(p.Control, func(name string) bool { return bytes.HasPrefix(p.held[i:], []byte(name)) })
}

// findFramed finds the call behind the marks of the frame at i.
func (p *Parser) findFramed(i int) (at int, o *opener, x reading) {
	rest := string(p.held[i:])
	for {
		rest = strings.TrimLeft(rest, " \n")
		at = len(p.held) - len(rest)
		if rest == "" {
			return at, nil, short
		}
		o, x = nil, no
		for k := range p.openers[inReasoning] {
			m := &p.openers[inReasoning][k]
			switch {
			case m.kind != begins && m.kind != frames && m.kind != names:
			case strings.HasPrefix(rest, m.mark) && (o == nil || len(m.mark) > len(o.mark)):
				o = m
			case strings.HasPrefix(m.mark, rest):
				x = short
			}
		}
		if o == nil {
			return at, nil, x
		}
		if o.kind != frames {
			return at, o, yes
		}
		rest = rest[len(o.mark):]
	}
}

// say hands over text of the present mode, and holds back white space that may lie beside a mark.
func (p *Parser) say(text string) {
	if p.last.fresh {
		text = strings.TrimLeftFunc(text, p.isBeside)
	}
	if text == "" {
		return
	}
	body := strings.TrimRightFunc(text, p.isBeside)
	if body == "" {
		p.last.space += text
		return
	}
	p.last.fresh = false
	p.last.said = p.last.said || p.mode == inText
	p.emit(p.last.space + body)
	p.last.space = text[len(body):]
}

// isBeside reports whether a character may lie between marks and text. Without marks no character does.
func (p *Parser) isBeside(r rune) bool {
	return (p.s.Open != "" || len(p.s.Frame) > 0 || len(p.s.Calls) > 0 && p.tools != nil) && (r == '\n' || r == ' ')
}

func (p *Parser) emit(text string) {
	switch {
	case text == "":
	case p.mode == inReasoning:
		p.out = append(p.out, Event{Reasoning: text})
	case !p.Required:
		p.out = append(p.out, Event{Text: text})
	}
}
