// Package syntax finds the parts of a model's answer: reasoning, calls of tools, and the text between them. A model's
// spelling of these parts is a matter of its training, and its chat template shows the spelling: Of finds the marks
// there. No family is known by its name.
//
// Files in reading order: flow.go, read.go, tags.go, python.go, parser.go, reader.go, form.go, syntax.go.
package syntax

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// General is the syntax of calls for models whose chat template takes no tools, as described in the text that
// introduces the tools. A fence of Markdown around the object is also read, since models are used to fences.
var General = Syntax{Calls: []Marks{{Begin: "<tool_call>", End: "</tool_call>"}}, General: true, Style: Style{
	Each: true, Name: "\n{\"name\": \"", Then: `", "arguments": `, After: "}\n", Between: "\n"}}

// Syntax is how a model writes reasoning and calls. The zero value has neither.
type Syntax struct {
	Open, Close string   // around reasoning; "" for none
	Next        string   // mark before the text after reasoning, where an answer has several messages
	Calls       []Marks  // marks around calls, in the order of search
	Bare        bool     // an answer consisting of a single call has no marks
	Frame       []string // marks around text that are no text
	Answer      Marks    // marks of the Frame that may be around the last text
	Header      string   // end of a message's header, where messages have headers: Next or a channel begins the header
	Lead        string   // end of a prompt that belongs to the answer's first mark
	Token       string   // special token without brackets within the marks
	Style       Style    // of calls
	IDs         IDs      // of calls in the history
	General     bool     // the template shows no calls: they are written as in General
}

// Marks are around a call, or a list of calls. An End of "" stands for the answer's end.
type Marks struct {
	Begin, End string
	Last       bool // the End also ends the answer, and may so be missing
}

// Of returns the syntax of models with a chat template.
func Of(template string) (s Syntax) {
	has := func(mark string) bool { return strings.Contains(template, mark) }
	s = General
	if template == "" {
		return Syntax{}
	}
	for _, k := range known().Calls {
		if !slices.ContainsFunc(k.If, func(m string) bool { return !has(m) }) {
			s = k.Syntax
			break
		}
	}
	for _, t := range known().Reasoning {
		if s.Open == "" && has(t.If) {
			s.Open, s.Close = t.Open, t.Close
			s.Frame = slices.Concat(s.Frame, t.Frame)
		}
	}
	for _, a := range known().Answers {
		if slices.Contains(s.Frame, a.Begin) {
			s.Answer = a
		} else if has(a.Begin) {
			s.Answer, s.Frame = a, slices.Concat(s.Frame, []string{a.Begin, a.End})
		}
	}
	return s
}

// Marks returns the parts of the syntax that a model may have as special tokens.
func (s *Syntax) Marks() (all []string) {
	add := func(marks ...string) {
		for _, m := range marks {
			if m != "" && !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	add(s.Token)
	for _, text := range s.texts() {
		if s.Token == "" {
			add(bracketed(text)...)
			continue
		}
		for part := range strings.SplitSeq(text, s.Token) {
			add(bracketed(part)...)
		}
	}
	if s.Style.Form == Quoted {
		add(Quote)
	}
	return all
}

// texts returns all fixed texts of the syntax.
func (s *Syntax) texts() []string {
	y := &s.Style
	all := []string{s.Open, s.Close, s.Next, s.Answer.Begin, s.Answer.End, y.First, y.Between, y.Last, y.Name, y.Then,
		y.After, y.Key, y.Value, y.End, s.Header}
	for _, c := range s.Calls {
		all = append(all, c.Begin, c.End)
	}
	return append(all, s.Frame...)
}

// bracketed returns the parts of a text that look like special tokens: <NAME> and [NAME].
func bracketed(text string) (all []string) {
	for i := 0; i < len(text); i++ {
		stop := ""
		switch text[i] {
		case '<':
			stop = "><= \n"
		case '[':
			stop = "][\"'<{\n"
		default:
			continue
		}
		if n := strings.IndexAny(text[i+1:], stop); n > 0 && text[i+1+n] == stop[0] {
			all = append(all, text[i:i+n+2])
			i += n + 1
		}
	}
	return all
}

// Opens reports whether a prompt ends within reasoning, as some templates begin an answer.
func (s *Syntax) Opens(prompt string) bool {
	return s.Open != "" && strings.HasSuffix(strings.TrimRight(prompt, " \n"), s.Open)
}

// Within reports whether the beginning of an answer ends within reasoning.
func (s *Syntax) Within(answer string) bool {
	return s.Open != "" && strings.LastIndex(answer, s.Open) > strings.LastIndex(answer, s.Close)
}

// Form is the spelling of calls between their marks. A list of JSON objects, {"name": …, "arguments": {…}}, is read in
// any form.
type Form string

// The forms.
const (
	Object Form = ""       // {"name": "NAME", "arguments": {…}}, or a list
	Keyed  Form = "keyed"  // {"NAME": {…}}, or a list
	Named  Form = "named"  // NAME, a mark, {…}
	Tagged Form = "tagged" // marks around each name and value; strings as they are, other values as JSON
	Nested Form = "nested" // Tagged, with the names as tags; parts of values also have tags
	Python Form = "python" // NAME(KEY=VALUE, …), a list or lines
	Quoted Form = "quoted" // NAME{KEY:VALUE,…}, with Quote around strings
)

// Quote is around strings of the form Quoted.
const Quote = `<|"|>`

// Style is a model's spelling of calls when asked for calls: First, the calls with Between between them, Last. A call
// is Name, the tool's name, Then, the arguments, After. The Syntax's first marks are around all of that or, with Each,
// around each call. In reading calls, white space beside the marks of Tagged does not count.
type Style struct {
	Form                 Form
	Each                 bool
	First, Between, Last string
	Name, Then, After    string
	Key, Value, End      string // of Tagged and Nested: around the name and the value of an argument
	Other                string // Value where the value is no string
	// of Named, in reading: the text before a name, and the text between the name and the arguments
	Before, Behind string
	Tail           string // of Named: text that may follow arguments in reading
	Single         bool   // there is a single call
	Alone          bool   // no text comes before calls
}

// IDs is the form of the ids of calls in a chat template.
type IDs string

// The kinds of ids.
const (
	AnyIDs     IDs = ""
	NineIDs    IDs = "nine"    // nine letters and digits
	IndexedIDs IDs = "indexed" // functions.NAME:INDEX, the index among the calls of a message
)

// Fit returns an acceptable id for the call of a tool, number n of its message. Equal ids give equal results.
func (k IDs) Fit(id, name string, n int) string {
	switch {
	case k == IndexedIDs:
		return fmt.Sprintf("functions.%s:%d", name, n)
	case k == NineIDs && (len(id) != 9 || strings.ContainsFunc(id, func(r rune) bool {
		return r > 'z' || r == '_' || !isWord(byte(r))
	})):
		const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		fit := sha256.Sum256([]byte(id))
		for i := range fit {
			fit[i] = digits[int(fit[i])%len(digits)]
		}
		return string(fit[:9])
	}
	return id
}

// knownJSON lists, by the marks in a template, the spellings of calls and reasoning. The first row with all of its
// marks in the template counts.
//
//go:embed known.json
var knownJSON []byte

// knownSyntaxes are the rows of knownJSON.
type knownSyntaxes struct {
	Styles map[string]Style // styles shared by rows
	Calls  []struct {
		If     []string // marks in the template
		As     string   // one of Styles, in place of the syntax's own
		Syntax Syntax
	}
	Reasoning []struct {
		If          string // a mark in the template
		Open, Close string
		Frame       []string
	}
	Answers []Marks // around the last text
}

var known = sync.OnceValue(func() (k knownSyntaxes) {
	if err := json.Unmarshal(knownJSON, &k); err != nil {
		panic(err) // a mistake in known.json
	}
	for i := range k.Calls {
		if c := &k.Calls[i]; c.As != "" {
			c.Syntax.Style = k.Styles[c.As]
		}
	}
	return k
})

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// opener is a mark that may end a text or the reasoning.
type opener struct {
	mark  string
	kind  kind
	marks Marks // of calls
	sure  bool  // nothing but calls begins so
	fresh bool  // valid at the beginning of the answer alone
	owed  bool  // valid behind a call that ended the reasoning, and before any text
}

// kind is the part of an answer that an opener opens.
type kind int

const (
	frames          kind = iota // nothing
	opensReasoning              // reasoning
	closesReasoning             // text
	heads                       // a message with a header
	begins                      // calls
	names                       // a call whose first mark is missing
	objects                     // perhaps such a call
)

// opening returns the openers of a mode.
func (s *Syntax) opening(m mode, tools Tools) (all []opener) {
	add := func(o opener) {
		if o.mark != "" {
			all = append(all, o)
		}
	}
	if s.Header != "" {
		for _, mark := range []string{s.Next, "<|channel|>"} {
			add(opener{mark: mark, kind: heads})
		}
	}
	if m == inReasoning {
		add(opener{mark: s.Close, kind: closesReasoning})
		if s.Header != "" {
			add(opener{mark: "<|return|>", kind: closesReasoning})
			add(opener{mark: "<|call|>", kind: closesReasoning})
		}
	} else if s.Open != "" {
		if s.Header == "" {
			add(opener{mark: s.Open, kind: opensReasoning})
		}
		add(opener{mark: s.Close, kind: closesReasoning, owed: true})
	}
	if m == inText || tools != nil && s.Header == "" {
		for _, mark := range s.Frame {
			if s.Header == "" || !strings.HasPrefix(mark, "<|channel|>") && mark != s.Next {
				add(opener{mark: mark, kind: frames, fresh: !strings.ContainsAny(mark, "<[>")})
			}
		}
	}
	if tools == nil || s.Header != "" {
		return all
	}
	marks := Marks{}
	for i, c := range s.Calls {
		if add(opener{mark: c.Begin, kind: begins, marks: c, sure: true}); i == 0 {
			marks = Marks{End: c.End, Last: c.Last}
		}
	}
	if s.General {
		for _, fence := range []string{"```json", "```tool_call", "```"} {
			add(opener{mark: fence, kind: begins, marks: Marks{Begin: fence, End: "```"}, sure: true})
		}
	}
	for name := range tools {
		for _, head := range s.Style.heads(name, s.Bare) {
			add(opener{mark: head, kind: names, marks: marks, sure: s.Style.Form != Python})
		}
	}
	y := &s.Style
	if y.Form == Object || y.Form == Keyed || strings.HasPrefix(y.Name, "{") || y.Form == Python && y.First == "[" {
		add(opener{mark: "{", kind: objects, marks: marks})
		add(opener{mark: "[", kind: objects, marks: marks})
	} else if s.Bare {
		for name := range tools {
			add(opener{mark: name + y.Then, kind: objects, marks: marks, fresh: true})
		}
	}
	return all
}

// heads returns the beginnings of a call behind its first mark that cannot begin a text.
func (y *Style) heads(name string, bare bool) (all []string) {
	then := strings.TrimSpace(y.Then)
	switch {
	case bare:
	case y.Form == Python && y.First != "[":
		all = []string{name + y.Then}
	case y.Form == Tagged && y.Name == "" && then == "":
		all = []string{name + "\n" + y.Key, name + y.Key}
	case y.Form == Tagged || y.Form == Nested:
		all = []string{strings.TrimSpace(y.Name) + name + then}
	case y.Form == Quoted:
		all = []string{y.Name + name + "{"}
	case y.Form == Named && !strings.HasPrefix(y.Name, "{"):
		if then == "" || len(then) == 1 && y.Name == "" {
			return nil
		}
		all = []string{y.Name + name + y.Then[:1]}
		if y.Before != "" && y.Before != y.Name {
			all = append(all, y.Before+name+y.Then[:1])
		}
	}
	return all
}

// mode is the part of the answer that a Parser is within.
type mode int

const (
	inText mode = iota
	inReasoning
	inCall // a call, whose arguments come in pieces
)
