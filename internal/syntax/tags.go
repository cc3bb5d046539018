package syntax

import (
	"bytes"
	"slices"
	"strings"
)

// readUntil advances over a mark and returns the text before it, a name.
func (r *reader) readUntil(mark string) (before string, x reading) {
	words := strings.Fields(mark)
	from := r.at
	n := strings.Index(r.s[from:], words[0])
	switch {
	case n > maxBegin || n < 0 && len(r.s)-from > maxBegin:
		return "", no
	case n < 0:
		return "", r.lacks()
	}
	r.at = from + n + len(words[0])
	if x = r.mark(strings.Join(words[1:], " ")); x != yes {
		r.at = from
		return "", x
	}
	return strings.TrimSpace(r.s[from : from+n]), yes
}

// tagged reads the calls of the forms Tagged and Nested.
func (r *reader) tagged() reading {
	y := r.y
	for {
		x := r.mark(y.Name)
		if x == no && len(r.calls) > 0 {
			break
		}
		if x != yes {
			return x
		}
		name, x := r.name()
		if x != yes {
			return x
		}
		p := parameters{types: r.tools[name]}
		for {
			at := r.at
			if x = r.mark(y.Key); x == yes && y.Form == Nested && strings.HasPrefix(r.s[r.at:], "/") {
				r.at, x = at, no
			}
			if x == no {
				break
			}
			if x == yes {
				x = r.argument(&p)
			}
			if x != yes {
				return x
			}
		}
		if x := r.mark(y.After); x != yes {
			return x
		}
		arguments, err := p.object()
		if err != nil || !r.call(name, arguments) {
			return no
		}
		if y.Each {
			break
		}
	}
	return r.end()
}

// name reads a tool's name and the mark behind it. Without such a mark the name ends with its line, or at a mark.
func (r *reader) name() (name string, x reading) {
	r.space()
	from, end := r.at, 0
	rest := r.s[from:]
	for tool := range r.tools {
		if !strings.HasPrefix(rest, tool) {
			if !r.final && strings.HasPrefix(tool, rest) {
				x = short
			}
			continue
		}
		r.at = from + len(tool)
		behind := r.mark(r.y.Then)
		if strings.TrimSpace(r.y.Then) == "" && r.at < len(r.s) && strings.IndexByte(" \r\n<", r.s[r.at]) < 0 {
			behind = no
		} else if strings.TrimSpace(r.y.Then) == "" && r.at == len(r.s) {
			behind = r.lacks()
		}
		if behind == yes && len(tool) >= len(name) {
			name, end = tool, r.at
		}
		x = max(x, behind)
	}
	r.at = end
	return name, x
}

// argument reads an argument behind the mark before its name.
func (r *reader) argument(p *parameters) reading {
	y := r.y
	key, x := r.readUntil(y.Value)
	isText := y.Other != "" && x == yes
	if y.Other != "" && x != yes {
		if other, z := r.readUntil(y.Other); z > x {
			key, x = other, z
		}
	}
	if x != yes {
		return x
	}
	if y.Form == Nested {
		raw, x := r.element(key, p.types[key], 0)
		if x == yes && p.set(key, raw) != nil {
			return no
		}
		return x
	}
	value, x := r.value()
	if strings.HasSuffix(y.Value, "\n") { // lines of their own
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
	}
	if rest, quoted := strings.CutPrefix(value, "<![CDATA["); quoted {
		value, isText = strings.TrimSuffix(rest, "]]>"), true
	}
	if x == yes && p.add(key, value, isText) != nil {
		return no
	}
	return x
}

// value reads a text up to its last mark: the first mark before text that may follow. Complete calls within the text
// are part of it.
func (r *reader) value() (string, reading) {
	end, open := strings.Fields(r.y.End)[0], strings.TrimSpace(r.y.Key)
	start, depth := r.at, 0
	for from := start; ; {
		i := strings.Index(r.s[from:], end)
		if i < 0 {
			return "", r.lacks()
		}
		depth += strings.Count(r.s[from:from+i], open)
		at := from + i
		if from = at + len(end); depth > 0 && !r.loose {
			depth--
			continue
		}
		r.at = at
		x := r.mark(r.y.End)
		after := r.at
		if x == yes {
			x = r.canFollow()
		}
		switch r.at = after; x {
		case yes:
			return r.plain(start, at), yes
		case short:
			return "", short
		}
	}
}

// canFollow reports whether the text behind a value may follow a value: another value, or the end of the call, behind
// which calls may end.
func (r *reader) canFollow() reading {
	another := r.next(r.y.Key)
	if another == yes {
		return yes
	}
	if x := r.mark(r.y.After); x != yes {
		return max(x, another)
	}
	if r.y.Name != "" && !r.y.Each {
		another = max(another, r.next(r.y.Name))
	}
	x := r.end()
	if x != yes || r.loose {
		return max(x, another)
	}
	at := r.at // no mark that ends anything follows the last mark
	if r.space(); r.at == len(r.s) && !r.final {
		x = short
	}
	for _, m := range []string{r.y.End, r.y.After, r.marks.End} {
		if m = strings.TrimSpace(m); m != "" {
			switch r.next(m) {
			case yes:
				return no
			case short:
				x = short
			}
		}
	}
	r.at = at
	return x
}

// element reads the value of an element behind its opening tag, as JSON. Its parts have tags: <KEY>VALUE</KEY>, and
// <item>VALUE</item> in lists.
func (r *reader) element(name string, types Types, depth int) (raw []byte, x reading) {
	if depth > maxDepth {
		return nil, no
	}
	var p parameters
	var names []string
	var list [][]byte
	token := strings.TrimSuffix(r.y.Key, "<")
	for {
		at := r.at
		if x = r.mark(r.y.Key); x == short || x == yes && r.at == len(r.s) && !r.final {
			return nil, short
		}
		if x == no || strings.HasPrefix(r.s[r.at:], "/") {
			r.at = at
			break
		}
		key, x := r.readUntil(">")
		if x == yes {
			raw, x = r.element(key, nil, depth+1)
		}
		if x != yes {
			return nil, x
		}
		names, list = append(names, key), append(list, raw)
	}
	start, closing := r.at, token+"</"+name+">"
	for from := start; ; from = r.at {
		i := strings.Index(r.s[from:], closing)
		if i < 0 {
			return nil, r.lacks()
		}
		r.at = from + i + len(closing)
		if x = r.next(token); x == short {
			return nil, short
		}
		if x == yes {
			break
		}
	}
	value := r.plain(start, r.at-len(closing))
	switch {
	case len(list) > 0 && strings.TrimSpace(value) != "":
		return nil, no
	case len(list) == 0:
		return literal(value, types), yes
	case !slices.ContainsFunc(names, func(name string) bool { return name != "item" }):
		return append(append([]byte{'['}, bytes.Join(list, []byte{','})...), ']'), yes
	}
	for i, name := range names {
		if p.set(name, list[i]) != nil {
			return nil, no
		}
	}
	return append(append([]byte{'{'}, p.b.Bytes()...), '}'), yes
}
