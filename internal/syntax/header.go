package syntax

import (
	"strings"
	"unicode"
)

// maxHeader bounds the header of a message.
const maxHeader = 1 << 9

// readHeader reads the header of a message at i, from the mark that begins it to the one before the message's text:
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

// header is a message's: the channel, the tool that the message is to, and the words behind the channel's name.
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

// followsHeader reports whether a header may go on with a text behind who speaks.
func followsHeader(p *Parser, text string) bool {
	text = strings.TrimLeft(text, " ")
	for _, mark := range []string{"<|channel|>", "<|constrain|>", p.s.Header, "to="} {
		if strings.HasPrefix(text, mark) || strings.HasPrefix(mark, text) {
			return true
		}
	}
	return false
}
