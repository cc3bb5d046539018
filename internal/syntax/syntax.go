// Package syntax finds the parts of a model's answer: reasoning, calls of tools, and the text between
// them. How a model writes them is a matter of its training, which its chat template shows:
// Of finds the marks there. No family is known by its name.
package syntax

import (
	"strings"
)

// Syntax is how a model writes reasoning and calls. The zero value has neither.
type Syntax struct {
	Open, Close string   // around reasoning; "" for none
	Calls       []Marks  // around calls, in the order in which they are looked for
	Bare        bool     // an answer that is one JSON object may be a call
	Frame       []string // marks around text that are no text
	form        form
}

// Marks are around one call, or a list of calls. An End of "" is that of the answer.
type Marks struct{ Begin, End string }

// known is a row for each syntax: by the mark of a template, what its models write.
var known = []struct {
	mark   string // in the template
	syntax Syntax
}{
	{"<|tool_call>", Syntax{Calls: []Marks{{"<|tool_call>", "<tool_call|>"}}, form: quoted}},
	{"<|START_ACTION|>", Syntax{Calls: []Marks{{"<|START_ACTION|>", "<|END_ACTION|>"}}, Frame: []string{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}}},
	{"<|tool_call|>", Syntax{Calls: []Marks{{"<|tool_call|>", ""}}}},
	{"[TOOL_CALLS]", Syntax{Calls: []Marks{{"[TOOL_CALLS]", ""}}, form: named}},
	{"<tool_call>", Syntax{Calls: []Marks{{"<tool_call>", "</tool_call>"}}, form: tagged}},
	{"<|python_tag|>", Syntax{Calls: []Marks{{"<|python_tag|>", ""}}, Bare: true}},
	{`"parameters": dictionary of argument name`, Syntax{Bare: true}},
}

// thinking is a row for each way to write reasoning.
var thinking = []struct{ mark, open, close string }{
	{"<|channel>", "<|channel>thought", "<channel|>"},
	{"<|START_THINKING|>", "<|START_THINKING|>", "<|END_THINKING|>"},
	{"[THINK]", "[THINK]", "[/THINK]"},
	{"<think>", "<think>", "</think>"},
	{"</think>", "<think>", "</think>"},
}

// Of is the syntax of models with a chat template.
func Of(template string) (s Syntax) {
	for _, k := range known {
		if strings.Contains(template, k.mark) {
			s = k.syntax
			break
		}
	}
	for _, t := range thinking {
		if strings.Contains(template, t.mark) {
			s.Open, s.Close = t.open, t.close
			break
		}
	}
	return s
}

// Marks are all marks of the syntax, which a model may have as special tokens.
func (s *Syntax) Marks() (all []string) {
	add := func(marks ...string) {
		for _, m := range marks {
			if m != "" {
				all = append(all, m)
			}
		}
	}
	add(strings.TrimSuffix(s.Open, "thought"), s.Close) // the token alone, without the name of the channel
	for _, c := range s.Calls {
		add(c.Begin, c.End)
	}
	add(s.Frame...)
	if s.form == quoted {
		add(quote)
	}
	return all
}

// Opens reports whether a prompt ends within reasoning, as some templates begin an answer.
func (s *Syntax) Opens(prompt string) bool {
	return s.Open != "" && strings.HasSuffix(strings.TrimRight(prompt, " \n"), s.Open)
}
