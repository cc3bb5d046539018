package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Call is a call of a tool, or a piece of one (Parser.Held): the first has the name, and the pieces that follow have none.
type Call struct {
	Name      string
	Arguments string // a JSON object
	More      bool   // a piece follows
}

var errForm = errors.New("no call")

// maxDepth bounds values within values.
const maxDepth = 64

// Tools are the tools that may be called: by name, the parameters that are strings.
type Tools map[string]map[string]bool

// parse reads the calls of a text between marks. begin is the first mark, which may come again between calls.
func (y *Style) parse(text, begin string, tools Tools) (calls []Call, err error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return nil, errForm
	case y.Form == Python && text[0] != '{' && !strings.HasPrefix(text, "[{"):
		calls, err = parsePython(text)
	case text[0] == '{' || text[0] == '[':
		calls, err = parseObjects(text, y.Form == Keyed)
	case y.Form == Named:
		calls, err = y.parseNamed(text, begin)
	case y.Form == Tagged || y.Form == Nested:
		calls, err = y.parseTagged(text, tools)
	case y.Form == Quoted:
		calls, err = y.parseQuoted(text)
	default:
		return nil, errForm
	}
	for _, c := range calls {
		if _, ok := tools[c.Name]; err == nil && !ok {
			return nil, fmt.Errorf("there is no tool %q", c.Name)
		}
	}
	if err == nil && len(calls) == 0 {
		return nil, errForm
	}
	return calls, err
}

func parseObjects(text string, keyed bool) (calls []Call, err error) {
	var all []json.RawMessage
	if text[0] == '{' {
		all = []json.RawMessage{json.RawMessage(text)}
	} else if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, err
	}
	for _, raw := range all {
		read := parseObject
		if keyed {
			read = parseKeyed
		}
		c, err := read(raw)
		if err != nil {
			return nil, err
		}
		calls = append(calls, c)
	}
	return calls, nil
}

func parseObject(raw json.RawMessage) (c Call, err error) {
	var o struct {
		Name       string          `json:"name"`
		ToolName   string          `json:"tool_name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return c, err
	}
	c.Name = o.Name
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
	c.Arguments, err = object(arguments)
	return c, err
}

func parseKeyed(raw json.RawMessage) (c Call, err error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(raw, &o); err != nil {
		return c, err
	}
	if len(o) != 1 {
		return c, errForm
	}
	for name, arguments := range o {
		c.Name = name
		c.Arguments, err = object(arguments)
	}
	return c, err
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

func (y *Style) parseNamed(text, begin string) (calls []Call, err error) {
	for text != "" {
		at := strings.IndexByte(text, '{')
		if at < 0 {
			return nil, errForm
		}
		name := strings.TrimSpace(text[:at])
		if _, after, ok := strings.Cut(name, y.Before); ok {
			name = strings.TrimSpace(after)
		}
		if i := strings.IndexAny(name, "<>[:` \n"); i >= 0 { // a mark, an index or an id
			if y.Behind == "" || !strings.HasSuffix(name, y.Behind) {
				return nil, errForm
			}
			name = name[:i]
		}
		var raw json.RawMessage
		d := json.NewDecoder(strings.NewReader(text[at:]))
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		c := Call{Name: name}
		if c.Arguments, err = object(raw); err != nil {
			return nil, err
		}
		calls = append(calls, c)
		text = strings.TrimSpace(text[at+int(d.InputOffset()):])
		text = strings.TrimSpace(strings.TrimPrefix(text, y.Tail))
		text = strings.TrimSpace(strings.TrimPrefix(text, begin))
	}
	return calls, nil
}

// parameters makes an object of names and values as a model wrote them.
type parameters struct {
	strings map[string]bool
	b       bytes.Buffer
	seen    map[string]bool
}

// add takes a value that is JSON, or a text.
func (p *parameters) add(name, value string, text bool) error {
	raw, err := literal(value, text || p.strings[name])
	if err != nil {
		return err
	}
	return p.set(name, raw)
}

// literal is a value as JSON, whether a model wrote JSON or a text.
func literal(value string, text bool) ([]byte, error) {
	if raw := strings.TrimSpace(value); !text && json.Valid([]byte(raw)) {
		return []byte(raw), nil
	}
	return json.Marshal(value)
}

func (p *parameters) set(name string, raw []byte) error {
	if p.seen[name] || name == "" {
		return errForm
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[name] = true
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

// parseQuoted turns the names and strings of the form Quoted into JSON's.
func (y *Style) parseQuoted(text string) ([]Call, error) {
	text, ok := strings.CutPrefix(text, y.Name)
	at := strings.IndexByte(text, '{')
	if !ok || at < 0 {
		return nil, errForm
	}
	var b strings.Builder
	for i, part := range strings.Split(text[at:], Quote) {
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
	return []Call{{Name: strings.TrimSpace(text[:at]), Arguments: arguments}}, err
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
