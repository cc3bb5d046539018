package syntax

import "strings"

// opener is a mark that may end a text or the reasoning.
type opener struct {
	mark  string
	kind  kind
	marks Marks // of calls
	sure  bool  // nothing but calls begins so
	fresh bool  // valid at the beginning of the answer alone
	owed  bool  // expected behind a call that ended the reasoning
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
				add(opener{mark: mark, kind: frames})
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
	case y.Form == Tagged && y.Name == "":
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
