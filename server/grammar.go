package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat"
)

// Bounds of the grammars kept without a request: equal requests compile a grammar once.
const (
	maxGrammars  = 32
	grammarBytes = 64 << 20
)

// grammars are the last grammars of requests. A grammar of a key is never shared with another key: the time of a
// grammar would reveal the requests of others.
type grammars struct {
	room *karat.GrammarRoom // of all of them, also of requests under way

	mu     sync.Mutex
	list   []*keptGrammar // the last used comes last
	most   int            // bytes of unused grammars
	making map[grammarKey]chan struct{}
}

type grammarKey [sha256.Size]byte

type keptGrammar struct {
	key   grammarKey
	g     *karat.Grammar
	users int
	bytes int // at the last measurement
}

// newGrammars keeps most bytes of unused grammars. All may take four times as much.
func newGrammars(most int) *grammars {
	return &grammars{room: karat.NewGrammarRoom(4 * most), most: most, making: map[grammarKey]chan struct{}{}}
}

// take returns a caller's grammar for of. make compiles a missing grammar, once for all waiting callers. give takes the
// grammar back.
func (k *grammars) take(ctx context.Context, caller string, of any, make func() (*karat.Grammar, error)) (*keptGrammar,
	error) {
	text, err := json.Marshal([]any{caller, of})
	if err != nil {
		return nil, err
	}
	key := grammarKey(sha256.Sum256(text))
	for {
		x, made := k.find(key)
		if x != nil {
			return x, nil
		}
		if made == nil {
			break
		}
		select {
		case <-made:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	x := &keptGrammar{key: key, users: 1}
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if x.g != nil {
			k.list = append(k.list, x)
		}
		close(k.making[key])
		delete(k.making, key)
	}()
	if x.g, err = make(); err != nil {
		return nil, err
	}
	return x, nil
}

// give ends the use of a grammar. The oldest unused grammars go if there are too many.
func (k *grammars) give(x *keptGrammar) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x.users--
	idle, bytes, _ := k.measure()
	k.list = slices.DeleteFunc(k.list, func(x *keptGrammar) bool {
		if x.users > 0 || idle <= maxGrammars && bytes <= k.most {
			return false
		}
		idle, bytes = idle-1, bytes-x.bytes
		x.g.Free()
		return true
	})
}

// measure counts the unused grammars, their bytes and the bytes of the others. k.mu is held.
func (k *grammars) measure() (idle, kept, used int) {
	for _, x := range k.list {
		if x.bytes = x.g.Bytes(); x.users > 0 {
			used += x.bytes
		} else {
			idle, kept = idle+1, kept+x.bytes
		}
	}
	return idle, kept, used
}

// find returns the grammar of a key. During somebody's compilation, made ends with it; a nil grammar is the caller's to
// make.
func (k *grammars) find(key grammarKey) (x *keptGrammar, made chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.list, func(x *keptGrammar) bool { return x.key == key })
	if i < 0 {
		if made = k.making[key]; made == nil {
			k.making[key] = make(chan struct{})
		}
		return nil, made
	}
	x = k.list[i]
	x.users++
	k.list = append(slices.Delete(k.list, i, i+1), x)
	return x, nil
}

// form is the form of an answer's text: a schema, a regular expression or a grammar. The zero form is any text.
type form struct {
	schema              []byte
	pattern, gbnf, lark string
	param               string // the field of the form
}

// isFree reports whether any text fits.
func (x *form) isFree() bool {
	return x.schema == nil && x.pattern == "" && x.gbnf == "" && x.lark == ""
}

// anyObject is the schema of json_object.
var anyObject = []byte(`{"type":"object"}`)

// format reads the form of an answer: response_format, or text.format of the responses API, where the fields of a
// schema are flat.
func format(f *fields, name string, flat bool) (x form) {
	o := f.object(name)
	if o == nil {
		return x
	}
	x.param = strings.TrimSuffix(o.path, ".")
	switch o.needOneOf("type", "text", "json_object", "json_schema", "regex", "grammar") {
	case "regex":
		x.param, x.pattern = o.path+"pattern", o.filled("pattern")
	case "grammar":
		x = grammarForm(o)
	case "json_object":
		x.schema = anyObject
		if schema := o.take("schema"); schema != nil { // llama-server's field
			x.param, x.schema = o.path+"schema", schema
		}
	case "json_schema":
		s := o
		if !flat {
			s = o.needObject("json_schema")
		}
		readToolName(s)
		s.hint("description")
		s.boolean("strict", false) // an answer fits in any case
		x.param, x.schema = s.path+"schema", s.take("schema")
		if x.schema == nil {
			x.schema = anyObject
		}
		if !flat {
			s.done()
		}
	}
	o.done()
	return x
}

// maxListed bounds the number of texts to choose an answer from.
const maxListed = 1000

// formOf reads the form of an answer: response_format, llama-server's grammar or vLLM's structured_outputs.
func formOf(f *fields) (x form) {
	x = format(f, "response_format", false)
	more := func(y form) {
		if !x.isFree() && !y.isFree() {
			fail(y.param, "an answer has one form, and %s says another", x.param)
		}
		if !y.isFree() {
			x = y
		}
	}
	if f.has("grammar") {
		more(form{gbnf: f.filled("grammar"), param: "grammar"})
	}
	o := f.object("structured_outputs")
	if o == nil {
		return x
	}
	if raw := o.take("json"); raw != nil {
		if text, ok := decodeAs[string](raw); ok { // a schema in a text
			raw = json.RawMessage(text)
		}
		more(form{schema: raw, param: o.path + "json"})
	}
	if o.boolean("json_object", false) {
		more(form{schema: anyObject, param: o.path + "json_object"})
	}
	if o.has("regex") {
		more(form{pattern: o.filled("regex"), param: o.path + "regex"})
	}
	if o.has("grammar") {
		more(grammarForm(o))
	}
	if list := o.texts("choice", maxListed); len(list) > 0 {
		for i := range list {
			list[i] = regexp.QuoteMeta(list[i])
		}
		more(form{pattern: "(?:" + strings.Join(list, "|") + ")", param: o.path + "choice"})
	}
	if o.done(); x.isFree() {
		fail("structured_outputs", "want one of json, json_object, regex, choice and grammar")
	}
	return x
}

// gbnfBegin is how a grammar in GBNF begins: with a rule, behind white space and comments. None in Lark's notation
// does.
var gbnfBegin = regexp.MustCompile(`^(?:\s|#.*\n)*[\w-]+[ \t]*::=`)

// grammarForm reads a grammar. Its beginning shows whether the notation is GBNF or Lark's.
func grammarForm(o *fields) form {
	text, param := o.filled("grammar"), o.path+"grammar"
	if gbnfBegin.MatchString(text) {
		return form{gbnf: text, param: param}
	}
	return form{lark: text, param: param}
}

// ollamaFormat reads "json", or a schema.
func ollamaFormat(f *fields) form {
	raw := f.take("format")
	switch {
	case raw == nil || string(raw) == `""`:
		return form{}
	case string(raw) == `"json"`:
		return form{schema: anyObject, param: "format"}
	case raw[0] != '{':
		fail("format", `%s, want "json" or a JSON schema`, kindOf(raw))
	}
	return form{schema: raw, param: "format"}
}

// constrain compiles the grammar for the answer to a conversation.
func (r *request) constrain(ctx context.Context, c *conversation) {
	o := r.form.format()
	o.RequireCall, o.SingleCall, o.InReasoning = c.choice.required, c.single, r.turn.opened
	strict := false
	if !c.mute {
		for _, t := range c.tools {
			if c.choice.only == nil || slices.Contains(c.choice.only, t.Name) {
				o.Tools, strict = append(o.Tools, t), strict || t.Strict
			}
		}
	}
	if !r.form.isFree() || o.RequireCall || c.choice.only != nil || strict {
		r.compile(ctx, []any{r.model.print, r.model.name, o}, o, r.model.model.ResponseGrammar)
	}
}

// compile takes the grammar of of for the time of the request.
func (r *request) compile(ctx context.Context, of any, o karat.ResponseFormat, make func(context.Context,
	karat.ResponseFormat) (*karat.Grammar, error)) {
	k := r.asked.s.grammars
	o.Room, o.Key = k.room, r.asked.who.caller().Key
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.asked.s.ctx, stop)()
	x, err := k.take(ctx, o.Key, of, func() (*karat.Grammar, error) { return make(ctx, o) })
	if err != nil {
		throw(r.refuseGrammar(err, len(o.Tools) > 0))
	}
	r.grammar = x.g
	r.asked.after = append(r.asked.after, func() { k.give(x) })
	for _, path := range x.g.Ignored() {
		if _, at, tool := strings.Cut(path, ": #"); tool {
			r.asked.hints.add("tools[].parameters" + at)
		} else {
			r.asked.hints.add(r.form.param + strings.TrimPrefix(path, "#"))
		}
	}
}

// constrainText compiles the grammar of a text outside conversations.
func (r *request) constrainText(ctx context.Context) {
	if !r.form.isFree() {
		o := r.form.format()
		r.compile(ctx, o, o, karat.TextGrammar)
	}
}

func (x *form) format() karat.ResponseFormat {
	return karat.ResponseFormat{Schema: x.schema, Regexp: x.pattern, GBNF: x.gbnf, Lark: x.lark}
}

// refuseGrammar returns why a grammar is refused.
func (r *request) refuseGrammar(err error, tools bool) *problem {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return refuse(499, "cancelled", "", "The client has gone")
	}
	if errors.Is(err, karat.ErrGrammarRoom) {
		return crowded
	}
	param, text := r.form.param, err.Error()
	if param == "" || tools && strings.HasPrefix(text, "tool ") {
		param = "tools"
	}
	return bad(param, "Invalid value for '%s': %s", param, text)
}

// crowded is the problem of a grammar without room in memory.
var crowded = full("The schemas and grammars of all requests under way take the %d MiB that there are",
	4*grammarBytes>>20)

// overGrammar returns the problem of an answer with a grammar of too much work; nil for other errors.
func (r *request) overGrammar(err error) *problem {
	if !errors.Is(err, karat.ErrGrammar) {
		return nil
	}
	if errors.Is(err, karat.ErrGrammarRoom) {
		return crowded
	}
	return bad(r.form.param, "The answer cannot be held to its form: %s", err.Error())
}
