package syntax

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Call is a call of a tool, or a piece of a call (Parser.Held): the first piece has the name, and later pieces have
// none.
type Call struct {
	Name      string
	Arguments string // a JSON object
	More      bool   // a piece follows
}

var errForm = errors.New("no call")

// maxDepth bounds values within values.
const maxDepth = 64

// Tools holds the available tools: by name, the types of their parameters.
type Tools map[string]map[string]Types

// Types are the JSON types that a parameter may have; nil is all.
type Types []string

// Add adds a tool with the JSON schema of its arguments.
func (t *Tools) Add(name string, parameters []byte) {
	var schema struct{ Properties map[string]schema }
	_ = json.Unmarshal(parameters, &schema) // parts of another form allow all types
	of := map[string]Types{}
	for name, p := range schema.Properties {
		of[name] = p.types()
	}
	if *t == nil {
		*t = Tools{}
	}
	(*t)[name] = of
}

// schema is what a JSON schema says of the type of a value.
type schema struct {
	Type         any
	Enum         []any
	Const        any
	AnyOf, OneOf []schema
}

// types returns the types that the schema allows.
func (s *schema) types() (all Types) {
	switch t := s.Type.(type) {
	case string:
		return Types{t}
	case []any:
		for _, name := range t {
			all = append(all, fmt.Sprint(name))
		}
		return all
	}
	values := s.Enum
	if s.Const != nil {
		values = append(values, s.Const)
	}
	for _, v := range values {
		b, _ := json.Marshal(v) // a value from JSON has JSON
		all = append(all, typesOf[b[0]]...)
	}
	for _, sub := range append(s.AnyOf, s.OneOf...) {
		of := sub.types()
		if of == nil {
			return nil
		}
		all = append(all, of...)
	}
	return all
}

// typesOf are the types of a JSON value with a first character. Digits are as minus.
var typesOf = map[byte]Types{'"': {"string"}, '{': {"object"}, '[': {"array"}, 't': {"boolean"}, 'f': {"boolean"},
	'n': {"null"}, '-': {"number", "integer"}}

func init() {
	for c := byte('0'); c <= '9'; c++ {
		typesOf[c] = typesOf['-']
	}
}

// parseObjects reads the calls in a JSON object, or in a list of objects.
func parseObjects(raw []byte, keyed bool) (calls []Call, err error) {
	all := []json.RawMessage{raw}
	if raw[0] == '[' {
		if err := json.Unmarshal(raw, &all); err != nil {
			return nil, err
		}
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
		Function   json.RawMessage `json:"function"`
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return c, err
	}
	if o.Name == "" && o.ToolName == "" && len(o.Function) > 0 && o.Function[0] == '{' { // as messages have calls
		return parseObject(o.Function)
	}
	c.Name = cmp.Or(o.Name, o.ToolName)
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

// object returns a JSON object without spaces around its parts; empty input gives {}.
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

// parameters makes an object of names and values written by a model.
type parameters struct {
	types map[string]Types
	b     bytes.Buffer
	seen  map[string]bool
}

// add adds a value, in JSON or as text.
func (p *parameters) add(name, value string, text bool) error {
	types := p.types[name]
	if text {
		types = Types{"string"}
	}
	return p.set(name, literal(value, types))
}

// literal returns a value as JSON, whether a model wrote JSON, Python or a text. Where a text may be, every value that
// is of no other possible type is a text.
func literal(value string, types Types) []byte {
	raw := []byte(strings.TrimSpace(value))
	if !json.Valid(raw) && types != nil {
		p := python{s: string(raw), r: &reader{}}
		if raw = nil; p.value() && p.s == "" {
			raw = p.b.Bytes()
		}
	}
	if json.Valid(raw) {
		is := func(name string) bool { return name != "string" && slices.Contains(typesOf[raw[0]], name) }
		if !slices.Contains(types, "string") || slices.ContainsFunc(types, is) {
			return raw
		}
	}
	raw, _ = json.Marshal(value) // a string has JSON
	return raw
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

// Text returns calls in the syntax of the model, or false if a call is not JSON.
func (s *Syntax) Text(calls ...Call) (text string, ok bool) {
	y := &s.Style
	if len(s.Calls) == 0 || y.Form != Object && y.Form != Named && y.Form != Python {
		return "", false
	}
	var all []string
	for _, c := range calls {
		name, arguments := c.Name, c.Arguments
		if y.Form == Python {
			arguments = keywords(arguments)
		} else if strings.HasSuffix(y.Name, `"`) {
			b, _ := json.Marshal(name) // a string has JSON
			name = string(b[1 : len(b)-1])
		}
		one := y.Name + name + y.Then + arguments + y.After
		if y.Each {
			one = s.Calls[0].Begin + one + s.Calls[0].End
		}
		all = append(all, one)
	}
	text = y.First + strings.Join(all, y.Between) + y.Last
	if !y.Each {
		text = s.Calls[0].Begin + text + s.Calls[0].End
	}
	return text, true
}

// keywords returns a JSON object as Python's arguments: {"a": 1} is a=1.
func keywords(object string) string {
	d := json.NewDecoder(strings.NewReader(object))
	_, err := d.Token()
	var all []string
	for err == nil && d.More() {
		var name json.Token
		var value json.RawMessage
		if name, err = d.Token(); err == nil {
			err = d.Decode(&value)
		}
		all = append(all, fmt.Sprintf("%v=%s", name, value))
	}
	return strings.Join(all, ", ")
}

// quoteNames writes a piece of an object whose names have no quotes.
func quoteNames(b *strings.Builder, text string) {
	for text != "" {
		at := strings.IndexAny(text, "{,[]}:")
		if at < 0 {
			b.WriteString(cmp.Or(pythonWords[text], text))
			return
		}
		if word := strings.TrimSpace(text[:at]); text[at] == ':' && word != "" {
			name, _ := json.Marshal(word) // a string has JSON
			b.Write(name)
		} else {
			b.WriteString(cmp.Or(pythonWords[word], word))
		}
		b.WriteByte(text[at])
		text = text[at+1:]
	}
}
