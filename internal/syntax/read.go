package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// reading says what a look at the beginning of a text found.
type reading int

const (
	no    reading = iota // something else
	short                // the text ends too early to say
	yes
)

// reader reads calls at the beginning of a text, of which more may come. What it says of a text it says of every longer
// one.
type reader struct {
	y       *Style
	marks   Marks
	tools   Tools
	s       string
	control map[int]int // lengths of the control tokens in s, by where they begin
	at      int
	final   bool     // nothing follows
	begun   bool     // the first mark was there, or a head that only calls have
	alone   bool     // a call without marks may end the answer
	loose   bool     // a value ends at the first mark that may end it, whatever calls are within the value
	first   bool     // s is short
	stops   []string // marks that may follow calls whose last mark is missing
	calls   []Call
}

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

// next reports whether a mark comes next, and stays where it is.
func (r *reader) next(mark string) reading {
	at := r.at
	defer func() { r.at = at }()
	return r.mark(mark)
}

// plain returns a piece of the text without its control tokens.
func (r *reader) plain(from, to int) string {
	if len(r.control) == 0 {
		return r.s[from:to]
	}
	var b strings.Builder
	for from < to {
		if n := r.control[from]; n > 0 {
			from += n
			continue
		}
		b.WriteByte(r.s[from])
		from++
	}
	return b.String()
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

// end reads the end of calls: the last mark, or, where that is missing, text that may follow.
func (r *reader) end() reading {
	if r.marks.End != "" {
		if x := r.mark(r.marks.End); x != no {
			return x
		}
	}
	if r.begun && (r.marks.End == "" || r.marks.Last) {
		return yes
	}
	at := r.at
	if r.space(); r.at == len(r.s) {
		r.at = at
		// arguments may be missing
		if r.final && (!r.begun && !r.alone || !r.loose && r.y.Form == Tagged && r.y.After == "") {
			return no
		}
		if r.final {
			return yes
		}
		return short
	}
	x := no
	for _, m := range r.stops {
		x = max(x, r.next(m))
	}
	r.at = at
	if x == yes && !r.begun {
		return no
	}
	return x
}

func (r *reader) call(name, arguments string) bool {
	if _, ok := r.tools[name]; !ok {
		return false
	}
	r.calls = append(r.calls, Call{Name: name, Arguments: arguments})
	return true
}

// objects reads JSON objects: one, a list, or several as models that were taught no list write them: {…}; {…}
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

// firstKeys are keys with which the object of a call may begin.
var firstKeys = []string{"name", "tool_name", "tool_call_id", "id", "type", "function", "arguments", "parameters"}

// mayBegin reports whether an object, or a list of some, may be calls, as far as it has come.
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
	if r.first { // the longer it is, the likelier the rest is right
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

// nameOf finds the name in the text before arguments, which may go on unless it is whole.
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

// quoted reads the form Quoted, whose names and strings become JSON's.
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

// quoteEnd finds the Quote that ends a string: what may follow a value comes behind it. -1 is none.
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
