package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/syntax"
)

// conversation is the common form of the chat APIs' requests.
type conversation struct {
	messages []karat.Message
	places   []string // of the messages in the request; nil is messages[i]
	tools    []karat.Tool
	args     map[string]any        // of the template
	given    bool                  // there is a list of tools
	single   bool                  // a call ends the answer
	custom   map[string]bool       // tools whose input is a text
	spaces   map[string]spacedName // tools of namespaces, by their names for the model
	also     map[string]string     // other names of such tools in calls by the model
	choice   toolChoice
	goesOn   bool // the answer goes on with the last message, the assistant's
	bare     bool // the prompt has no beginning of an answer
	mute     bool // the tools are known, and not to be called
	pieces   bool // arguments of calls may come in pieces
	budget   *int // most tokens of reasoning; nil is any number

	reasons map[bool]string // the fields that switch reasoning on, and off
	level   string          // of reasoning, by a field

	functions bool // the tools are functions, the older form

	added []karat.Tool    // by messages
	gone  map[string]bool // the tools that messages take away
}

// call is a call of a tool in an answer, or a piece of a call.
type call struct {
	index           int
	id              string
	name, arguments string
	space           string // the namespace of the tool
	custom          bool   // of a tool with a text for its input, then in arguments
	again           bool   // the arguments go on
	more            bool   // and another piece follows
}

// turn is how the answer to a conversation is read.
type turn struct {
	syntax  syntax.Syntax
	tools   syntax.Tools
	custom  map[string]bool // tools whose input is a text
	opened  bool            // the prompt ends within reasoning
	goesOn  bool            // the answer continues a given text
	held    bool            // calls come in pieces, since a grammar holds the answer to them
	must    bool            // the answer must be a call
	before  int             // calls in the conversation
	named   bool            // the client named the tool
	single  bool            // a call ends the answer
	special []string        // marks made of special tokens

	functions bool                  // the answer's call is a function_call
	messages  []karat.Message       // with pictures; nil for none
	rendered  karat.GenerateOptions // how the messages are rendered
	places    []karat.ImagePlace    // of pictures, where only tokens are asked for
	spaces    map[string]spacedName // of tools, by all their names in calls by the model
}

// converse makes the prompt of a conversation. param names the conversation in problems.
func (r *request) converse(ctx context.Context, c *conversation, param string) {
	r.param = param
	o := karat.GenerateOptions{Tools: c.tools, TemplateArgs: c.args, NoGenerationPrompt: c.bare, Continue: c.goesOn,
		NoToolFallback: r.asked.s.o.NoToolFallback}
	var ids []int
	var places []karat.ImagePlace
	err := r.asked.renderNamed(c, param, func() (err error) {
		if r.asked.counts {
			ids, places, err = r.model.model.LocateImages(ctx, c.messages, o)
			return err
		}
		ids, err = r.model.model.TokenizeChat(ctx, c.messages, o)
		return err
	})
	if err != nil {
		throw(r.model.explain(ctx, err, c.param(err, param)))
	}
	r.prompts = [][]int{ids}
	r.turn = &turn{syntax: r.model.syntax, single: c.single, named: c.choice.named, special: r.model.special,
		functions: c.functions, places: places}
	pictures := 0
	for _, m := range c.messages {
		for _, part := range m.Parts {
			switch p := part.(type) {
			case karat.ToolCall:
				r.turn.before++
			case karat.Image:
				pictures++
			case karat.ToolResult:
				pictures += len(p.Images)
			}
		}
	}
	if pictures > 0 {
		r.turn.messages, r.turn.rendered = c.messages, o
	}
	if len(c.tools) > 0 && !c.mute {
		if r.turn.syntax.General && o.NoToolFallback {
			fail("tools", "the syntax of calls that this model's chat template has is not known")
		}
		for _, t := range c.tools {
			r.turn.tools.Add(t.Name, t.Parameters)
		}
		r.turn.custom, r.turn.spaces = c.custom, maps.Clone(c.spaces)
		for also, name := range c.also {
			r.turn.tools[also], r.turn.spaces[also] = r.turn.tools[name], c.spaces[name]
		}
	}
	r.turn.opened = r.turn.syntax.Opens(r.model.model.Detokenize(ids[max(0, len(ids)-16):]))
	if r.turn.goesOn = c.goesOn; c.goesOn {
		said := slices.DeleteFunc(slices.Clone(c.messages[len(c.messages)-1].Parts), notText)
		if r.turn.opened = r.turn.syntax.Within(join(said)); !r.form.isFree() || c.choice.required {
			throw(bad(param, "The answer goes on with the last message, whose text no form and no call of a tool "+
				"can begin "+
				"with. Leave that message out, or response_format and tool_choice"))
		}
	}
	r.constrain(ctx, c)
	r.turn.must = c.choice.required && r.grammar != nil
	if r.turn.held = c.pieces && r.grammar != nil && c.custom == nil; c.budget == nil {
		return
	}
	within := karat.ResponseFormat{InReasoning: r.turn.opened}
	if r.turn.tools != nil {
		within.Tools = c.tools
	}
	if r.grammar, err = r.model.model.ReasoningBudget(ctx, r.grammar, *c.budget, within); err != nil {
		throw(r.model.explain(ctx, err, param))
	}
}

// shows reports whether the conversation has pictures.
func (t *turn) shows() bool { return t != nil && t.messages != nil }

// render adds to the options of an answer how its messages are rendered.
func (t *turn) render(o karat.GenerateOptions) karat.GenerateOptions {
	by := &t.rendered
	o.Tools, o.TemplateArgs, o.NoToolFallback = by.Tools, by.TemplateArgs, by.NoToolFallback
	o.NoGenerationPrompt, o.Continue = by.NoGenerationPrompt, by.Continue
	return o
}

// renderNamed renders a conversation. A name without a place in the chat template is a hint: no message of its role
// keeps its name.
func (x *exchange) renderNamed(c *conversation, param string, render func() error) error {
	for {
		err, name := render(), (*karat.NameError)(nil)
		if !errors.As(err, &name) {
			return err
		}
		x.hints.add(param + "[].name")
		for role, i := c.messages[name.Message].Role, 0; i < len(c.messages); i++ {
			if c.messages[i].Role == role {
				c.messages[i].Name = ""
			}
		}
	}
}

func notText(p karat.Part) bool { _, is := p.(karat.Text); return !is }

// setPlaces gives the messages without a place the path of a message in the request.
func (c *conversation) setPlaces(path string) {
	for len(c.places) < len(c.messages) {
		c.places = append(c.places, strings.TrimSuffix(path, "."))
	}
}

// param returns the place in the request of an error's message, or else of the conversation.
func (c *conversation) param(err error, all string) string {
	var of *karat.MessageError
	switch {
	case !errors.As(err, &of):
		return all
	case c.places != nil:
		return c.places[of.Message]
	}
	return fmt.Sprintf("%s[%d]", all, of.Message)
}

// explain returns the client's part of an error of the template, without the path of the file.
func (m *served) explain(ctx context.Context, err error, param string) *problem {
	if ctx.Err() != nil {
		return refuse(499, "", "", "The client has gone")
	}
	if errors.Is(err, karat.ErrFull) {
		return tooManyProblem(param, m.room)
	}
	if of, is := errors.AsType[*karat.MessageError](err); is {
		return bad(param, "%s: %v", param, of.Err)
	}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	text := strings.NewReplacer("GenerateOptions.Tools", "tools", "GenerateOptions.", "").Replace(err.Error())
	if m.info.Path != "" {
		text = strings.ReplaceAll(text, m.info.Path, "the model")
	}
	return bad(param, "The chat template does not take this conversation: %s", text)
}

// newCallID returns the id of the answer's n-th call, in the form of the model's chat template.
func (t *turn) newCallID(name string, n int) string {
	return t.syntax.IDs.Fit(newID("call_"), name, t.before+n)
}

// pieces turns an answer's text into events. A nil pieces passes the text on.
type pieces struct {
	t      *turn
	p      *syntax.Parser
	calls  int
	now    *call // still growing
	single bool
}

func (t *turn) parser() *pieces {
	if t == nil {
		return nil
	}
	p := &pieces{t: t, p: t.syntax.NewParser(t.tools, t.opened), single: t.single}
	if p.p.Held, p.p.Required, p.p.Control = t.held, t.must, t.special; t.goesOn {
		p.p.Continue()
	}
	return p
}

func (p *pieces) write(text string) []event {
	switch {
	case text == "":
		return nil
	case p == nil:
		return []event{{text: text}}
	}
	return p.events(p.p.Write(text))
}

// end returns the rest of an answer, cut or ended by itself.
func (p *pieces) end(cut bool) []event {
	switch {
	case p == nil || p.isSatisfied():
		return nil
	case cut:
		return p.events(p.p.Cut())
	}
	return p.events(p.p.End())
}

func (p *pieces) events(from []syntax.Event) (all []event) {
	for _, e := range from {
		if p.isSatisfied() {
			break
		}
		if e.Calls == nil {
			all = append(all, event{text: e.Text, reasoning: e.Reasoning})
			continue
		}
		for _, c := range e.Calls {
			if p.isSatisfied() {
				break
			}
			if p.now == nil {
				p.now = &call{index: p.calls, id: p.t.newCallID(c.Name, p.calls), name: c.Name}
				if of, ok := p.t.spaces[c.Name]; ok {
					p.now.name, p.now.space = of.name, of.space
				}
			}
			x := *p.now
			if x.arguments, x.more = c.Arguments, c.More; p.t.custom[c.Name] {
				x.unwrap()
			}
			all = append(all, event{call: &x})
			if p.now.again = true; !c.More {
				p.now = nil
				p.calls++
			}
		}
	}
	return all
}

// thinks reports whether the answer is within reasoning.
func (p *pieces) thinks() bool { return p != nil && p.p.Thinks() }

// isSatisfied reports whether nothing more is wanted: a single call was, and is there.
func (p *pieces) isSatisfied() bool { return p != nil && p.single && p.calls > 0 }

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
