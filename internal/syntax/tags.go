package syntax

import (
	"bytes"
	"slices"
	"strings"
)

// skip cuts a mark off the beginning of a text. White space before the mark's words does not count.
func skip(text, mark string) (rest string, ok bool) {
	rest = text
	for word := range strings.FieldsSeq(mark) {
		if rest, ok = strings.CutPrefix(strings.TrimSpace(rest), word); !ok {
			return text, false
		}
	}
	return rest, true
}

// until is what comes before a mark, and after it.
func until(text, mark string) (before, after string, ok bool) {
	words := strings.Fields(mark)
	if before, after, ok = strings.Cut(text, words[0]); ok {
		after, ok = skip(after, strings.Join(words[1:], " "))
	}
	return before, after, ok
}

// parseTagged reads the calls of the forms Tagged and Nested.
func (y *Style) parseTagged(text string, tools Tools) (calls []Call, err error) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		rest, ok := skip(text, y.Name)
		if !ok {
			return nil, errForm
		}
		c := Call{}
		if c.Name, rest, err = y.name(rest); err != nil {
			return nil, err
		}
		p := parameters{strings: tools[c.Name]}
		for {
			inner, ok := skip(rest, y.Key)
			if !ok || y.Form == Nested && strings.HasPrefix(inner, "/") {
				break
			}
			if rest, err = y.argument(&p, inner); err != nil {
				return nil, err
			}
		}
		if rest, ok = skip(rest, y.After); !ok {
			return nil, errForm
		}
		if c.Arguments, err = p.object(); err != nil {
			return nil, err
		}
		calls, text = append(calls, c), rest
	}
	return calls, nil
}

// name is a tool's name. Without a mark behind it the first argument ends it, or the text.
func (y *Style) name(text string) (name, rest string, err error) {
	if strings.TrimSpace(y.Then) != "" {
		name, rest, ok := until(text, y.Then)
		if !ok {
			return "", "", errForm
		}
		return name, rest, nil
	}
	at := strings.Index(text, y.Key)
	if at < 0 {
		at = len(text)
	}
	return strings.TrimSpace(text[:at]), text[at:], nil
}

// argument reads one behind the mark before its name.
func (y *Style) argument(p *parameters, text string) (rest string, err error) {
	key, value, ok := until(text, y.Value)
	isText := y.Other != "" && ok
	if !ok && y.Other != "" {
		key, value, ok = until(text, y.Other)
	}
	if !ok {
		return "", errForm
	}
	key = strings.TrimSpace(key)
	if y.Form == Nested {
		raw, rest, err := nested(y.Key).element(key, value, p.strings[key], 0)
		if err != nil {
			return "", err
		}
		return rest, p.set(key, raw)
	}
	value, rest, ok = until(value, y.End)
	if !ok {
		return "", errForm
	}
	if strings.HasSuffix(y.Value, "\n") { // lines of their own
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
	}
	return rest, p.add(key, value, isText)
}

// nested reads values whose parts have tags: <KEY>VALUE</KEY>, and <item>VALUE</item> in lists. It is the mark before a tag's name.
type nested string

// element is the value of an element behind its opening tag, as JSON.
func (n nested) element(name, text string, isText bool, depth int) (raw []byte, rest string, err error) {
	if depth > maxDepth {
		return nil, "", errForm
	}
	var p parameters
	var names []string
	var list [][]byte
	for {
		inner, ok := skip(text, string(n))
		if !ok || strings.HasPrefix(inner, "/") {
			break
		}
		key, value, ok := strings.Cut(inner, ">")
		if !ok {
			return nil, "", errForm
		}
		if raw, text, err = n.element(key, value, false, depth+1); err != nil {
			return nil, "", err
		}
		names, list = append(names, key), append(list, raw)
	}
	value, rest, ok := strings.Cut(text, string(n)+"/"+name+">")
	switch {
	case !ok || len(list) > 0 && strings.TrimSpace(value) != "":
		return nil, "", errForm
	case len(list) == 0:
		raw, err = literal(value, isText)
		return raw, rest, err
	case !slices.ContainsFunc(names, func(name string) bool { return name != "item" }):
		return append(append([]byte{'['}, bytes.Join(list, []byte{','})...), ']'), rest, nil
	}
	for i, name := range names {
		if err := p.set(name, list[i]); err != nil {
			return nil, "", err
		}
	}
	return append(append([]byte{'{'}, p.b.Bytes()...), '}'), rest, nil
}
