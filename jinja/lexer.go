package jinja

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Token types beside the operators, which are their own.
const (
	tokData     = "data"
	tokVarBegin = "begin of print statement"
	tokVarEnd   = "end of print statement"
	tokBegin    = "begin of statement block"
	tokEnd      = "end of statement block"
	tokName     = "name"
	tokString   = "string"
	tokInteger  = "integer"
	tokFloat    = "float"
	tokEOF      = "end of template"
)

type token struct {
	kind string
	text string // of names, data and strings
	num  Value  // of integers and floats
	line int
}

// A lexer cuts a template into tokens, with trim_blocks and lstrip_blocks on.
// It follows the rules of Jinja2's lexer (jinja2/lexer.py), which are a list of
// regular expressions: the first that matches wins.
type lexer struct {
	src       string
	pos, line int
	queue     []token // read, but not yet asked for
	lineStart bool
	tagEnd    func(string) int // in a tag: the length of its end
	endKind   string           // of the token that ends the tag
	braces    []byte           // closing brackets to come
}

func syntaxError(line int, format string, a ...any) error {
	return &Error{Kind: KindSyntax, Line: line, Message: fmt.Sprintf(format, a...)}
}

func newLexer(src string) *lexer {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	return &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
}

// next is the next token, at the end tokEOF again and again.
func (l *lexer) next() (token, error) {
	for len(l.queue) == 0 {
		var err error
		switch {
		case l.pos == len(l.src):
			l.emit(token{kind: tokEOF})
		case l.tagEnd != nil:
			err = l.tag()
		default:
			err = l.root()
		}
		if err != nil {
			return token{}, err
		}
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	return t, nil
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.queue = append(l.queue, t)
}

// rest is the unread source.
func (l *lexer) rest() string { return l.src[l.pos:] }

// take moves past n bytes and counts their lines.
func (l *lexer) take(n int) string {
	s := l.src[l.pos : l.pos+n]
	l.pos += n
	l.line += strings.Count(s, "\n")
	if n > 0 {
		l.lineStart = s[n-1] == '\n'
	}
	return s
}

// root reads data up to a tag, and the tag.
func (l *lexer) root() error {
	rest := l.rest()
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 == len(rest) {
			l.data(len(rest), 0, false)
			return nil
		}
		if at += i; strings.IndexByte("%{#", rest[at+1]) >= 0 {
			break
		}
		at++
	}
	tag := rest[at+1]
	sign := byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	raw := 0
	if tag == '%' {
		raw = rawBegin(rest[at:], sign)
	}
	l.data(at, sign, tag != '{')
	open := 2
	if sign != 0 {
		open++
	}
	switch {
	case raw > 0:
		l.take(raw)
		return l.raw()
	case tag == '#':
		l.take(open)
		return l.comment()
	case tag == '{':
		l.take(open)
		l.emit(token{kind: tokVarBegin})
		l.tagEnd, l.endKind = variableEnd, tokVarEnd
	default:
		l.take(open)
		l.emit(token{kind: tokBegin})
		l.tagEnd, l.endKind = blockEnd, tokEnd
	}
	return nil
}

// data emits the next n bytes as data, stripped as the tag after them asks.
func (l *lexer) data(n int, sign byte, lstrip bool) {
	s := l.src[l.pos : l.pos+n]
	lineStart := l.lineStart
	keep := s
	switch {
	case sign == '-':
		keep = strings.TrimRightFunc(s, isSpace)
	case sign == 0 && lstrip:
		from := strings.LastIndexByte(s, '\n') + 1
		if (from > 0 || lineStart) && strings.TrimLeftFunc(s[from:], isSpace) == "" {
			keep = s[:from]
		}
	}
	if keep != "" {
		l.emit(token{kind: tokData, text: keep})
	}
	l.take(n)
}

// rawBegin is the length of {% raw %} at the start of s, or 0.
func rawBegin(s string, sign byte) int {
	at := 2
	if sign != 0 {
		at++
	}
	at += spaces(s[at:])
	if !strings.HasPrefix(s[at:], "raw") {
		return 0
	}
	at += 3
	at += spaces(s[at:])
	switch {
	case strings.HasPrefix(s[at:], "-%}"):
		return at + 3 + spaces(s[at+3:])
	case strings.HasPrefix(s[at:], "%}"):
		return at + 2
	}
	return 0
}

// raw reads data up to {% endraw %}.
func (l *lexer) raw() error {
	rest := l.rest()
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			return syntaxError(l.line, "Missing end of raw directive")
		}
		at += i
		end := at + 2
		sign := byte(0)
		if end < len(rest) && (rest[end] == '-' || rest[end] == '+') {
			sign = rest[end]
			end++
		}
		end += spaces(rest[end:])
		if !strings.HasPrefix(rest[end:], "endraw") {
			continue
		}
		end += 6
		end += spaces(rest[end:])
		if n := blockEnd(rest[end:]); n > 0 {
			l.data(at, sign, true)
			l.take(end + n - at)
			return nil
		}
	}
}

// comment skips to the end of a comment.
func (l *lexer) comment() error {
	rest := l.rest()
	i := strings.Index(rest, "#}")
	if rest == "" { // Jinja2 does not miss the end where nothing follows the begin
		return nil
	}
	if i < 0 {
		return syntaxError(l.line, "Missing end of comment tag")
	}
	end := i + 2
	switch {
	case i > 0 && rest[i-1] == '-':
		end += spaces(rest[end:])
	case i > 0 && rest[i-1] == '+':
	case strings.HasPrefix(rest[end:], "\n"):
		end++
	}
	l.take(end)
	return nil
}

// blockEnd is the length of %} at the start of s, with what it trims, or 0.
func blockEnd(s string) int {
	switch {
	case strings.HasPrefix(s, "+%}"):
		return 3
	case strings.HasPrefix(s, "-%}"):
		return 3 + spaces(s[3:])
	case strings.HasPrefix(s, "%}\n"):
		return 3
	case strings.HasPrefix(s, "%}"):
		return 2
	}
	return 0
}

// variableEnd is the length of }} at the start of s, with what it trims, or 0.
func variableEnd(s string) int {
	switch {
	case strings.HasPrefix(s, "-}}"):
		return 3 + spaces(s[3:])
	case strings.HasPrefix(s, "}}"):
		return 2
	}
	return 0
}

// tag reads a part of an expression, or the tag's end, which counts only where
// all brackets are closed.
func (l *lexer) tag() error {
	if len(l.braces) == 0 {
		if n := l.tagEnd(l.rest()); n > 0 {
			l.emit(token{kind: l.endKind})
			l.take(n)
			l.tagEnd = nil
			return nil
		}
	}
	if n := spaces(l.rest()); n > 0 {
		l.take(n)
		return nil
	}
	return l.expression()
}

// operators, the longer first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
	"[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

func (l *lexer) expression() error {
	rest := l.rest()
	if n := floatLength(rest); n > 0 && l.src[l.pos-1] != '.' {
		return l.number(tokFloat, n)
	}
	if n := integerLength(rest); n > 0 {
		return l.number(tokInteger, n)
	}
	if n := wordLength(rest); n > 0 {
		if !isIdentifier(rest[:n]) {
			return syntaxError(l.line, "Invalid character in identifier")
		}
		l.emit(token{kind: tokName, text: rest[:n]})
		l.take(n)
		return nil
	}
	if n := stringLength(rest); n > 0 {
		s, err := unescape(rest[1 : n-1])
		if err != nil {
			return syntaxError(l.line, "%v", err)
		}
		l.emit(token{kind: tokString, text: s})
		l.take(n)
		return nil
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			return l.operator(op)
		}
	}
	r, n := utf8.DecodeRuneInString(rest)
	return syntaxError(l.line, "unexpected char %s at %d", quote(string(r), false), utf8.RuneCountInString(l.src[:l.pos+n])-1)
}

func (l *lexer) operator(op string) error {
	switch op {
	case "{":
		l.braces = append(l.braces, '}')
	case "(":
		l.braces = append(l.braces, ')')
	case "[":
		l.braces = append(l.braces, ']')
	case "}", ")", "]":
		n := len(l.braces)
		if n == 0 {
			return syntaxError(l.line, "unexpected '%s'", op)
		}
		if want := l.braces[n-1]; want != op[0] {
			return syntaxError(l.line, "unexpected '%s', expected '%c'", op, want)
		}
		l.braces = l.braces[:n-1]
	}
	l.emit(token{kind: op})
	l.take(len(op))
	return nil
}

// number reads a number of n bytes.
func (l *lexer) number(kind string, n int) error {
	s := strings.ReplaceAll(l.src[l.pos:l.pos+n], "_", "")
	var v Value
	if kind == tokFloat {
		f, ok := parseFloat(s)
		if !ok || strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return syntaxError(l.line, "invalid decimal literal")
		}
		v = float(f)
	} else {
		i, err := parseInt(s, 0)
		if err != nil {
			return syntaxError(l.line, "%s", err.(*Error).Message)
		}
		v = i
	}
	l.emit(token{kind: kind, num: v})
	l.take(n)
	return nil
}

// spaces is the length of the white space at the start of s.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// digitsLength is the length of digits at the start of s, single underscores
// between them.
func digitsLength(s string, digit func(rune) bool) int {
	n := 0
	for n < len(s) {
		from := n
		if n > 0 && s[n] == '_' {
			from++
		}
		r, w := utf8.DecodeRuneInString(s[from:])
		if from == len(s) || !digit(r) {
			break
		}
		n = from + w
	}
	return n
}

func isDigit(r rune) bool { return unicode.Is(unicode.Nd, r) }

// floatLength is the length of a float, which has a fraction or an exponent, at
// the start of s, or 0.
func floatLength(s string) int {
	n := digitsLength(s, isDigit)
	if n == 0 {
		return 0
	}
	end := 0
	if n < len(s) && s[n] == '.' {
		if d := digitsLength(s[n+1:], isDigit); d > 0 {
			n += 1 + d
			end = n
		}
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		from := n + 1
		if from < len(s) && (s[from] == '+' || s[from] == '-') {
			from++
		}
		if d := digitsLength(s[from:], isDigit); d > 0 {
			return from + d
		}
	}
	return end
}

var integerBases = []struct {
	prefix byte
	digit  func(rune) bool
}{
	{'b', func(r rune) bool { return r == '0' || r == '1' }},
	{'o', func(r rune) bool { return r >= '0' && r <= '7' }},
	{'x', func(r rune) bool { return isDigit(r) || r|0x20 >= 'a' && r|0x20 <= 'f' }},
}

// integerLength is the length of an integer at the start of s, or 0.
func integerLength(s string) int {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0
	}
	if s[0] != '0' {
		return digitsLength(s, isDigit)
	}
	for _, b := range integerBases {
		if len(s) > 2 && s[1]|0x20 == b.prefix {
			from := 2
			if s[2] == '_' {
				from++
			}
			if n := digitsLength(s[from:], b.digit); n > 0 {
				return from + n
			}
		}
	}
	return digitsLength(s, func(r rune) bool { return r == '0' })
}

func wordLength(s string) int {
	return len(s) - len(strings.TrimLeftFunc(s, func(r rune) bool { return r == '_' || isAlnum(r) }))
}

// stringLength is the length of a quoted string at the start of s, or 0.
func stringLength(s string) int {
	if s[0] != '\'' && s[0] != '"' {
		return 0
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case s[0]:
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}
