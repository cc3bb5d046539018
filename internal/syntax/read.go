package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// space advances over white space.
func (r *reader) space() {
	for r.at < len(r.s) && strings.IndexByte(" \t\r\n", r.s[r.at]) >= 0 {
		r.at++
	}
}

// mark advances over a mark. White space before the mark's words does not count.
func (r *reader) mark(mark string) reading {
	from := r.at
	for word := range strings.FieldsSeq(mark) {
		r.space()
		switch rest := r.s[r.at:]; {
		case strings.HasPrefix(rest, word):
			r.at += len(word)
			continue
		case !r.final && strings.HasPrefix(word, rest):
			r.at = from
			return short
		}
		r.at = from
		return no
	}
	return yes
}

// lacks returns the reading where the text ends.
func (r *reader) lacks() reading {
	if r.final {
		return no
	}
	return short
}

// read reads calls and the mark behind them.
func (r *reader) read() reading {
	r.space()
	if r.at == len(r.s) {
		return r.lacks()
	}
	list := r.s[r.at] == '['
	if list && r.y.Form == Python {
		at := r.at
		r.at++
		r.space()
		if r.at == len(r.s) {
			return r.lacks()
		}
		list = r.s[r.at] == '{'
		r.at = at
	}
	switch {
	case list || r.s[r.at] == '{':
		return r.objects()
	case r.y.Form == Python:
		return r.python()
	case r.y.Form == Named:
		return r.named()
	case r.y.Form == Tagged || r.y.Form == Nested:
		return r.tagged()
	case r.y.Form == Quoted:
		return r.quoted()
	}
	return no
}

func (r *reader) call(name, arguments string) bool {
	if _, ok := r.tools[name]; !ok {
		return false
	}
	r.calls = append(r.calls, Call{Name: name, Arguments: arguments})
	return true
}

// objects reads JSON objects: a single object, a list, or several as written by models that were taught no list: {…};
// {…}
func (r *reader) objects() reading {
	if !r.mayBegin(r.s[r.at:]) {
		return no
	}
	for {
		raw, x := r.json()
		if x != yes {
			return x
		}
		calls, err := parseObjects(raw, r.y.Form == Keyed)
		if err != nil {
			return no
		}
		for _, c := range calls {
			if !r.call(c.Name, c.Arguments) {
				return no
			}
		}
		at := r.at
		r.space()
		if r.at < len(r.s) && (r.s[r.at] == ';' || r.s[r.at] == ',') {
			r.at++
			r.space()
		}
		if r.at < len(r.s) && r.s[r.at] == '{' {
			continue
		}
		ended := r.at == len(r.s)
		if r.at = at; ended && !r.final {
			return short
		}
		return r.end()
	}
}

// firstKeys lists keys with which the object of a call may begin.
var firstKeys = []string{"name", "tool_name", "tool_call_id", "id", "type", "function", "arguments", "parameters"}

// mayBegin reports whether the beginning of an object, or of a list, may belong to calls.
func (r *reader) mayBegin(text string) bool {
	cut := func(mark string) bool {
		rest, ok := strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), mark)
		text = rest
		return ok
	}
	is := func(word string, closed bool, name string) bool {
		return name == word || !closed && strings.HasPrefix(name, word)
	}
	tool := func(word string, closed bool) bool {
		for name := range r.tools {
			if is(word, closed, name) {
				return true
			}
		}
		return false
	}
	cut("[")
	if !cut("{") || !cut(`"`) {
		return text == ""
	}
	key, rest, closed := strings.Cut(text, `"`)
	if r.y.Form == Keyed {
		return tool(key, closed)
	}
	if text = rest; !closed || key != "name" && key != "tool_name" {
		return slices.ContainsFunc(firstKeys, func(name string) bool { return is(key, closed, name) })
	}
	if !cut(":") || !cut(`"`) {
		return text == ""
	}
	name, _, closed := strings.Cut(text, `"`)
	return tool(name, closed)
}

// json reads a JSON object or list. In strings, control tokens are left out, and control characters need no escapes.
func (r *reader) json() (raw []byte, x reading) {
	depth, quoted, escaped := 0, false, false
	i := r.at
	for ; i < len(r.s) && (depth > 0 || raw == nil); i++ {
		if n := r.control[i]; n > 0 {
			if !quoted || r.s[i:i+n] == r.marks.End {
				return nil, no
			}
			i += n - 1
			continue
		}
		c := r.s[i]
		switch {
		case quoted && c < ' ':
			raw = append(raw, escapes[c]...)
			escaped = false
			continue
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		raw = append(raw, c)
	}
	if depth == 0 && json.Valid(raw) {
		r.at = i
		return raw, yes
	}
	if depth == 0 {
		return nil, no
	}
	if r.first { // the longer the text, the likelier the rest is right
		var v json.RawMessage
		if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&v); !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, no
		}
	}
	return nil, r.lacks()
}

// escapes are JSON's for control characters.
var escapes = func() (all [' '][]byte) {
	for c := range all {
		b, _ := json.Marshal(string(rune(c))) // a string has JSON
		all[c] = b[1 : len(b)-1]
	}
	return all
}()

// named reads a name, a mark and an object.
func (r *reader) named() reading {
	i := strings.IndexByte(r.s[r.at:], '{')
	head := r.s[r.at:]
	if i >= 0 {
		head = head[:i]
	}
	if len(head) > maxBegin {
		return no
	}
	name, x := r.nameOf(head, i >= 0)
	if i < 0 && x != no {
		return r.lacks()
	}
	if x != yes {
		return no
	}
	r.at += i
	raw, x := r.json()
	if x != yes {
		return x
	}
	arguments, err := object(raw)
	if err != nil || !r.call(name, arguments) {
		return no
	}
	if x := r.mark(r.y.Tail); x == short {
		return short
	}
	return r.end()
}

// nameOf finds the name in the text before arguments; unless whole, the text may go on.
func (r *reader) nameOf(head string, whole bool) (string, reading) {
	y := r.y
	name := strings.TrimSpace(head)
	_, after, behind := strings.Cut(name, y.Before)
	if behind {
		name = strings.TrimSpace(after)
	}
	i := strings.IndexAny(name, "<>[:` \n") // a mark, an index or an id
	if i >= 0 {
		if y.Behind == "" || whole && !strings.HasSuffix(name, y.Behind) {
			return "", no
		}
		name = name[:i]
	}
	if _, ok := r.tools[name]; ok {
		return name, yes
	}
	if whole {
		return "", no
	}
	if y.Before != "" && (!behind || y.Before == "") {
		return "", short
	}
	for tool := range r.tools {
		if i < 0 && strings.HasPrefix(tool, name) {
			return "", short
		}
	}
	return "", no
}

// quoted reads the form Quoted, and turns its names and strings into JSON's.
func (r *reader) quoted() reading {
	if x := r.mark(r.y.Name); x != yes {
		return x
	}
	head, _, whole := strings.Cut(r.s[r.at:], "{")
	name, x := r.nameOf(head, whole)
	if !whole && x != no {
		return r.lacks()
	}
	if x != yes {
		return no
	}
	r.at += len(head)
	var b strings.Builder
	depth, from := 0, r.at
	for i := r.at; i < len(r.s); i++ {
		rest := r.s[i:]
		switch {
		case strings.HasPrefix(rest, Quote):
			quoteNames(&b, r.plain(from, i))
			n := quoteEnd(rest[len(Quote):])
			if n < 0 {
				return r.lacks()
			}
			begin := i + len(Quote)
			s, _ := json.Marshal(r.plain(begin, begin+n)) // a string has JSON
			b.Write(s)
			i = begin + n + len(Quote) - 1
			from = i + 1
		case !r.final && strings.HasPrefix(Quote, rest):
			return short
		case rest[0] == '{' || rest[0] == '[':
			depth++
		case rest[0] == '}' || rest[0] == ']':
			if depth--; depth == 0 {
				quoteNames(&b, r.plain(from, i+1))
				arguments, err := object([]byte(b.String()))
				if r.at = i + 1; err != nil || !r.call(name, arguments) {
					return no
				}
				return r.end()
			}
		}
	}
	return r.lacks()
}

// quoteEnd finds the Quote that ends a string, which precedes text that may follow a value; -1 for none.
func quoteEnd(text string) int {
	for from := 0; ; {
		i := strings.Index(text[from:], Quote)
		if i < 0 {
			return -1
		}
		from += i + len(Quote)
		if rest := strings.TrimLeft(text[from:], " \t\r\n"); rest == "" || strings.IndexByte(",:]}", rest[0]) >= 0 {
			return from - len(Quote)
		}
	}
}

// python reads the form Python.
func (r *reader) python() reading {
	p := python{s: r.s[r.at:], r: r}
	x := p.calls()
	if r.at = len(r.s) - len(p.s); x != yes {
		return x
	}
	for _, c := range p.all {
		if !r.call(c.Name, c.Arguments) {
			return no
		}
	}
	return r.end()
}
