package syntax

import "strings"

// Arguments is how the arguments of a call are written.
type Arguments int

// The ways.
const (
	JSONArguments   Arguments = iota // an object of JSON
	QuotedArguments                  // {KEY:VALUE,…}, with <|"|> around strings
	PairArguments                    // Key, KEY, Value, VALUE and End for each; strings as they are, other values as JSON
)

// Style is how a model writes calls when it is asked for some. A call is Name, the tool's name, Then, the arguments, After.
type Style struct {
	First, Between, Last string // before the first call, between two, and after the last
	Name, Then, After    string
	Arguments            Arguments
	Key, Value, End      string // of PairArguments
	Quote                string // around strings of QuotedArguments
	Avoid                string // what no string may hold: the mark that ends the call
	Single               bool   // there can be one call alone
}

// Style is the style of models with a chat template, whose syntax s is. ok says that there is one.
func (s *Syntax) Style(template string) (st Style, ok bool) {
	plain := Style{Name: `{"name": "`, Then: `", "arguments": `, After: `}`}
	if len(s.Calls) == 0 || s.Bare {
		plain.Then, plain.Single = `", "parameters": `, true
		return plain, s.Bare
	}
	begin, end := s.Calls[0].Begin, s.Calls[0].End
	plain.Avoid = end
	switch {
	case s.form == quoted:
		return Style{Name: begin + "call:", After: end, Arguments: QuotedArguments, Quote: quote, Avoid: end}, true
	case s.form == named && strings.Contains(template, "[ARGS]"):
		return Style{Name: begin, Then: "[ARGS]"}, true
	case s.form == tagged && strings.Contains(template, "<function="):
		return Style{Name: begin + "\n<function=", Then: ">\n", After: "</function>\n" + end, Between: "\n", Arguments: PairArguments,
			Key: "<parameter=", Value: ">\n", End: "\n</parameter>\n", Avoid: "</"}, true
	case s.form == tagged && strings.Contains(template, "<arg_key>"):
		return Style{Name: begin, Then: "\n", After: end, Between: "\n", Arguments: PairArguments,
			Key: "<arg_key>", Value: "</arg_key>\n<arg_value>", End: "</arg_value>\n", Avoid: "</"}, true
	case s.form == tagged:
		plain.Name, plain.After, plain.Between = begin+"\n"+plain.Name, plain.After+"\n"+end, "\n"
		return plain, true
	case begin == "<|START_ACTION|>":
		plain.Name, plain.Then = `{"tool_name": "`, `", "parameters": `
	}
	plain.First, plain.Between, plain.Last = begin+"[", ", ", "]"+end
	return plain, true
}
