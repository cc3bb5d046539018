package syntax

import (
	"bytes"
	"strings"
	"unicode"
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
	depth           int // of brackets
	quoted, escaped bool
}

// handsOver reports whether calls are read by flow.
func handsOver(p *Parser) bool {
	form := p.s.Style.Form
	return p.Held && (form == Object || form == Keyed || form == Named)
}

// goOn reads on in a call, as next does.
func goOn(p *Parser) bool {
	switch p.flow.stage {
	case inHead:
		n, then, x := callHead(p, 0, p.marks)
		if x == yes {
			p.take(n)
			then()
		} else if x == no {
			p.mode = inText
		}
		return x != short
	case inArguments:
		return flowArguments(p)
	}
	return flowTail(p)
}

// callHead reads the name of a call at n, up to its arguments.
func callHead(p *Parser, n int, marks Marks) (end int, then func(), x reading) {
	y := &p.s.Style
	begin := y.Name
	if !y.Each && p.mode != inCall {
		begin = y.First + y.Name
	}
	text := string(p.held[n:min(len(p.held), n+maxBegin)])
	rest, ok := strings.CutPrefix(text, begin)
	if !ok && strings.HasPrefix(begin, text) {
		return 0, nil, short
	}
	for name := range p.tools {
		switch head := name + y.Then; {
		case ok && strings.HasPrefix(rest, head+"{"):
			return n + len(begin) + len(head), func() { beginCall(p, name, marks) }, yes
		case ok && strings.HasPrefix(head, rest) && len(text) < maxBegin:
			x = short
		}
	}
	return 0, nil, x
}

// beginCall hands over the name of a call whose arguments are still to come.
func beginCall(p *Parser, name string, marks Marks) {
	p.out = append(p.out, Event{Calls: []Call{{Name: name, More: true}}})
	p.mode, p.marks, p.flow = inCall, marks, flow{stage: inArguments}
}

// flowArguments hands over the available part of an object, without the spaces around its parts.
func flowArguments(p *Parser) bool {
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

// flowTail reads on behind the arguments: another call, or the end.
func flowTail(p *Parser) bool {
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
		p.flow = flow{}
	case !ends && (strings.HasPrefix(another, text) || strings.HasPrefix(end, text)):
		return false
	default:
		if ends { // always, where the answer is held
			p.take(len(end))
		}
		p.mode, p.last.fresh, p.last.space, p.flow = inText, true, "", flow{}
	}
	return true
}

// maxHeader bounds the header of a message.
const maxHeader = 1 << 9

// readHeader reads the header of a message at i, from its first mark to the mark before the message's text:
// <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|> No part of a header is text,
// however wrong the header is.
func readHeader(p *Parser, i int, final, cut bool) (n int, then func(), x reading) {
	rest := string(p.held[i:min(len(p.held), i+maxHeader)])
	head, behind := rest, false
	for _, mark := range append([]string{p.s.Header}, p.s.Frame...) {
		if k := strings.Index(head, mark); k > 0 {
			head, behind = head[:k], true
		}
	}
	whole := behind && strings.HasPrefix(rest[len(head):], p.s.Header)
	words, ok := strings.CutPrefix(head, p.s.Next)
	switch {
	case ok && !followsHeader(p, words), p.spelled(i), !behind && len(rest) == maxHeader, behind && !whole &&
		p.mode == inReasoning:
		return 0, nil, no
	case !behind && (!final || cut):
		return 0, nil, short
	}
	h := parseHeader(words, p.s.Style.Before)
	say := func() {
		if p.mode = inText; strings.HasPrefix(h.channel, "analysis") {
			p.mode = inReasoning
		}
	}
	if !whole { // the text may be there without its mark
		if n = i + len(head); h.to == "" {
			n = i + len(head) - len(h.rest)
		}
		return n, say, yes
	}
	n = i + len(head) + len(p.s.Header)
	if _, ok := p.tools[h.to]; !ok {
		return n, say, yes
	}
	if handsOver(p) {
		switch ended := n == len(p.held); {
		case ended && final && !cut:
			return n, say, yes
		case ended:
			return n, nil, short
		}
		return n, func() { beginCall(p, h.to, p.s.Calls[0]) }, yes
	}
	r := p.reader(&opener{sure: true, marks: p.s.Calls[0]})
	r.y, r.tools = &Style{Form: Named}, Tools{h.to: nil}
	if x := p.read(r, n, h.to, final, cut); x == short {
		return n, nil, short
	} else if x == no {
		return n, say, yes
	}
	return n + r.at - len(h.to), func() {
		p.mode = inText
		p.out = append(p.out, Event{Calls: r.calls})
	}, yes
}

// header holds a message's channel, the tool it is addressed to, and the words behind the channel's name.
type header struct{ channel, to, rest string }

func parseHeader(text, before string) (h header) {
	_, behind, ok := strings.Cut(text, "<|channel|>")
	if ok {
		h.rest = strings.TrimLeft(behind, " ")
		h.channel = h.rest[:len(h.rest)-len(strings.TrimLeftFunc(h.rest, unicode.IsLetter))]
		h.rest = h.rest[len(h.channel):]
	}
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, "<|", " <|")) {
		if name, ok := strings.CutPrefix(word, "to="); ok {
			h.to = strings.TrimPrefix(name, before)
		}
	}
	return h
}

// followsHeader reports whether text may continue a header behind the speaker.
func followsHeader(p *Parser, text string) bool {
	text = strings.TrimLeft(text, " ")
	for _, mark := range []string{"<|channel|>", "<|constrain|>", p.s.Header, "to="} {
		if strings.HasPrefix(text, mark) || strings.HasPrefix(mark, text) {
			return true
		}
	}
	return false
}
