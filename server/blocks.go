package server

import (
	"strings"

	"github.com/karat-run/karat"
)

// The kinds of an answer's blocks.
type kind int

const (
	textBlock kind = iota
	reasoningBlock
	callBlock
	customBlock // a call whose input is a text
)

// block is a part of an answer for the APIs with lists of parts: a text, reasoning, or a call.
type block struct {
	kind   kind
	text   strings.Builder
	call   *call
	tokens []karat.Token // of a text, if log-probabilities are asked for
	cut    bool          // the answer ended inside the block, by its length
}

// blocks collect an answer of a single choice, and report changes for streams.
type blocks struct {
	all     []*block
	open    bool // the last block may still grow
	opened  func(i int, b *block)
	grew    func(i int, b *block, piece string, tokens []karat.Token)
	closed  func(i int, b *block)
	early   []karat.Token // whose text comes with a later event
	tokens  []karat.Token // of the whole answer
	finish  string
	stopped string
	full    bool // the answer filled the context
}

func (l *blocks) add(e event) {
	l.tokens = append(l.tokens, e.tokens...)
	switch {
	case e.call != nil:
		kind := callBlock
		if e.call.custom {
			kind = customBlock
		}
		if !e.call.again {
			l.begin(kind, e.call)
		}
		if l.grow(e.call.arguments, nil); !e.call.more {
			l.close()
		}
		l.early = nil
	case e.reasoning != "":
		l.begin(reasoningBlock, nil)
		l.grow(e.reasoning, nil)
		l.early = nil
	case e.text != "":
		l.begin(textBlock, nil)
		l.grow(e.text, append(l.early, e.tokens...))
		l.early = nil
	default:
		l.early = append(l.early, e.tokens...)
	}
	if e.finish != "" {
		l.finish, l.stopped, l.full = e.finish, e.stopped, e.full
		if n := len(l.all); l.open {
			b := l.all[n-1]
			if b.cut = e.finish == finishLength; b.kind == textBlock {
				b.tokens = append(b.tokens, l.early...) // whose text did not come
			}
		}
		l.close()
	}
}

// text returns the text of all blocks of a kind.
func (l *blocks) text(k kind) string {
	var b strings.Builder
	for _, x := range l.all {
		if x.kind == k {
			b.WriteString(x.text.String())
		}
	}
	return b.String()
}

// calls returns the blocks of calls.
func (l *blocks) calls() (all []*block) {
	for _, b := range l.all {
		if b.call != nil {
			all = append(all, b)
		}
	}
	return all
}

// begin makes sure the last block is of the kind; each call has its own.
func (l *blocks) begin(k kind, c *call) {
	if n := len(l.all); l.open && l.all[n-1].kind == k && k < callBlock {
		return
	}
	l.close()
	b := &block{kind: k, call: c}
	l.all, l.open = append(l.all, b), true
	if l.opened != nil {
		l.opened(len(l.all)-1, b)
	}
}

func (l *blocks) grow(piece string, tokens []karat.Token) {
	if piece == "" {
		return
	}
	b := l.all[len(l.all)-1]
	b.text.WriteString(piece)
	b.tokens = append(b.tokens, tokens...)
	if l.grew != nil {
		l.grew(len(l.all)-1, b, piece, tokens)
	}
}

func (l *blocks) close() {
	if l.open && l.closed != nil {
		l.closed(len(l.all)-1, l.all[len(l.all)-1])
	}
	l.open = false
}
