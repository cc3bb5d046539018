package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Call is a call of a tool.
type Call struct {
	Name      string
	Arguments string // a JSON object
}

// form is how calls are written between their marks.
type form int

const (
	plain  form = iota // {"name": …, "arguments": {…}}, or a list of these
	named              // plain, or NAME{…} and NAME[ARGS]{…}
	tagged             // plain, or <function=NAME><parameter=KEY>VALUE</parameter></function>, or NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>
	quoted             // call:NAME{KEY:VALUE,…}, with <|"|> around strings
)

// quote is around strings of the quoted form.
const quote = `<|"|>`

var errForm = errors.New("syntax: no call")

// Tools are the tools that may be called: by name, the parameters that are strings.
type Tools map[string]map[string]bool

// parse reads the calls of a text between marks.
func (f form) parse(text string, tools Tools) (calls []Call, err error) {
	text = strings.TrimSpace(text)
	switch {
	case f == quoted:
		calls, err = parseQuoted(text)
	case strings.HasPrefix(text, "{") || strings.HasPrefix(text, "["):
		calls, err = parsePlain(text)
	case f == tagged && strings.HasPrefix(text, "<function="):
		calls, err = parseFunction(text, tools)
	case f == tagged:
		calls, err = parsePairs(text, tools)
	case f == named:
		calls, err = parseNamed(text)
	default:
		return nil, errForm
	}
	for _, c := range calls {
		if _, ok := tools[c.Name]; err == nil && !ok {
			return nil, fmt.Errorf("syntax: there is no tool %q", c.Name)
		}
	}
	if err == nil && len(calls) == 0 {
		return nil, errForm
	}
	return calls, err
}

func parsePlain(text string) (calls []Call, err error) {
	var all []json.RawMessage
	if text[0] == '{' {
		all = []json.RawMessage{json.RawMessage(text)}
	} else if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	for _, raw := range all {
		var o struct {
			Name       string          `json:"name"`
			ToolName   string          `json:"tool_name"`
			Arguments  json.RawMessage `json:"arguments"`
			Parameters json.RawMessage `json:"parameters"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return nil, err
		}
		c := Call{Name: o.Name}
		if c.Name == "" {
			c.Name = o.ToolName
		}
		arguments := o.Arguments
		if arguments == nil {
			arguments = o.Parameters
		}
		var inner string // some models write the object as a string
		if json.Unmarshal(arguments, &inner) == nil && inner != "" {
			arguments = json.RawMessage(inner)
		}
		if c.Arguments, err = object(arguments); err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// object is a JSON object without spaces around its parts; nothing is {}.
func object(raw []byte) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "{}", nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", err
	}
	if b.Bytes()[0] != '{' {
		return "", errForm
	}
	return b.String(), nil
}

func parseNamed(text string) (calls []Call, err error) {
	for text != "" {
		at := strings.IndexByte(text, '{')
		if at < 0 {
			return nil, errForm
		}
		name := strings.TrimSpace(strings.TrimSuffix(text[:at], "[ARGS]"))
		if i := strings.Index(name, "[CALL_ID]"); i >= 0 {
			name = name[:i]
		}
		var raw json.RawMessage
		d := json.NewDecoder(strings.NewReader(text[at:]))
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		arguments, err := object(raw)
		if err != nil {
			return nil, err
		}
		calls = append(calls, Call{name, arguments})
		text = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text[at+int(d.InputOffset()):]), "[TOOL_CALLS]"))
	}
	return calls, nil
}

// parameters makes an object of names and values as a model wrote them: JSON, or text.
type parameters struct {
	strings map[string]bool
	b       bytes.Buffer
	seen    map[string]bool
}

func (p *parameters) add(name, value string) error {
	if p.seen[name] || name == "" {
		return errForm
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[name] = true
	raw := []byte(strings.TrimSpace(value))
	if p.strings[name] || !json.Valid(raw) {
		var err error
		if raw, err = json.Marshal(value); err != nil {
			return err
		}
	}
	key, err := json.Marshal(name)
	if err != nil {
		return err
	}
	if p.b.Len() > 0 {
		p.b.WriteByte(',')
	}
	p.b.Write(append(append(key, ':'), raw...))
	return nil
}

func (p *parameters) object() (string, error) { return object([]byte("{" + p.b.String() + "}")) }

// within cuts the text between two marks off the beginning of text.
func within(text, begin, end string) (inner, rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, begin); !ok {
		return "", text, false
	}
	return strings.Cut(rest, end)
}

func parseFunction(text string, tools Tools) (calls []Call, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		body, rest, ok := within(text, "<function=", "</function>")
		name, body, named := strings.Cut(body, ">")
		if !ok || !named {
			return nil, errForm
		}
		p := parameters{strings: tools[name]}
		for body = strings.TrimSpace(body); body != ""; body = strings.TrimSpace(body) {
			inner, after, ok := within(body, "<parameter=", "</parameter>")
			key, value, named := strings.Cut(inner, ">")
			if !ok || !named {
				return nil, errForm
			}
			if err := p.add(key, strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")); err != nil {
				return nil, err
			}
			body = after
		}
		c := Call{Name: name}
		if c.Arguments, err = p.object(); err != nil {
			return nil, err
		}
		calls, text = append(calls, c), rest
	}
	return calls, nil
}

func parsePairs(text string, tools Tools) ([]Call, error) {
	name, body := text, ""
	if at := strings.Index(text, "<arg_key>"); at >= 0 {
		name, body = strings.TrimSpace(text[:at]), text[at:]
	}
	p := parameters{strings: tools[name]}
	for body = strings.TrimSpace(body); body != ""; body = strings.TrimSpace(body) {
		key, rest, ok := within(body, "<arg_key>", "</arg_key>")
		value, after, paired := within(strings.TrimSpace(rest), "<arg_value>", "</arg_value>")
		if !ok || !paired {
			return nil, errForm
		}
		if err := p.add(strings.TrimSpace(key), value); err != nil {
			return nil, err
		}
		body = after
	}
	arguments, err := p.object()
	return []Call{{name, arguments}}, err
}

// parseQuoted turns the names and strings of the quoted form into JSON's.
func parseQuoted(text string) ([]Call, error) {
	text, ok := strings.CutPrefix(text, "call:")
	at := strings.IndexByte(text, '{')
	if !ok || at < 0 {
		return nil, errForm
	}
	var b strings.Builder
	for i, part := range strings.Split(text[at:], quote) {
		if i%2 == 1 {
			s, err := json.Marshal(part)
			if err != nil {
				return nil, err
			}
			b.Write(s)
			continue
		}
		quoteNames(&b, part)
	}
	arguments, err := object([]byte(b.String()))
	return []Call{{strings.TrimSpace(text[:at]), arguments}}, err
}

// quoteNames writes a piece of an object whose names have no quotes.
func quoteNames(b *strings.Builder, text string) {
	for text != "" {
		at := strings.IndexAny(text, "{,[]}:")
		if at < 0 {
			b.WriteString(text)
			return
		}
		if word := strings.TrimSpace(text[:at]); text[at] == ':' && word != "" {
			name, _ := json.Marshal(word) // a string has JSON
			b.Write(name)
		} else {
			b.WriteString(word)
		}
		b.WriteByte(text[at])
		text = text[at+1:]
	}
}
