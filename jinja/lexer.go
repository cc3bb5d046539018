package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
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

// A lexer cuts a template into tokens, with trim_blocks and lstrip_blocks on. The rules are Jinja2's lexer's
// (jinja2/lexer.py), a list of regular expressions: the first match wins.
type lexer struct {
	src       string
	pos, line int
	queue     []token // read, but not yet asked for
	lineStart bool
	tagEnd    func(string) int // in a tag: the length of its end
	endKind   string           // type of the token ending the tag
	braces    []byte           // closing brackets to come
}

func syntaxError(line int, format string, a ...any) *Error {
	return &Error{Kind: KindSyntax, Line: line, Message: fmt.Sprintf(format, a...)}
}

func newLexer(src string) *lexer {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	return &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
}

// next returns the next token, at the end tokEOF again and again.
func (l *lexer) next() token {
	for len(l.queue) == 0 {
		switch {
		case l.pos == len(l.src):
			l.emit(token{kind: tokEOF})
		case l.tagEnd != nil:
			l.tag()
		default:
			l.root()
		}
	}
	t := l.queue[0]
	l.queue = l.queue[1:]
	return t
}

func (l *lexer) emit(t token) {
	t.line = l.line
	l.queue = append(l.queue, t)
}

// rest returns the unread source.
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
func (l *lexer) root() {
	rest := l.rest()
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 == len(rest) {
			l.data(len(rest), 0, false)
			return
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
		l.raw()
	case tag == '#':
		l.take(open)
		l.comment()
	case tag == '{':
		l.take(open)
		l.emit(token{kind: tokVarBegin})
		l.tagEnd, l.endKind = variableEnd, tokVarEnd
	default:
		l.take(open)
		l.emit(token{kind: tokBegin})
		l.tagEnd, l.endKind = blockEnd, tokEnd
	}
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

// rawBegin returns the length of {% raw %} at the start of s, or 0.
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
func (l *lexer) raw() {
	rest := l.rest()
	for at := 0; ; at += 2 {
		i := strings.Index(rest[at:], "{%")
		if i < 0 {
			panic(syntaxError(l.line, "Missing end of raw directive"))
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
			return
		}
	}
}

// comment skips to the end of a comment.
func (l *lexer) comment() {
	rest := l.rest()
	i := strings.Index(rest, "#}")
	if rest == "" { // Jinja2 does not miss the end where nothing follows the begin
		return
	}
	if i < 0 {
		panic(syntaxError(l.line, "Missing end of comment tag"))
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
}

// blockEnd returns the length of %} at the start of s, including trimmed text, or 0.
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

// variableEnd returns the length of }} at the start of s, including trimmed text, or 0.
func variableEnd(s string) int {
	switch {
	case strings.HasPrefix(s, "-}}"):
		return 3 + spaces(s[3:])
	case strings.HasPrefix(s, "}}"):
		return 2
	}
	return 0
}

// tag reads a part of an expression, or the tag's end, which counts only if all brackets are closed.
func (l *lexer) tag() {
	if len(l.braces) == 0 {
		if n := l.tagEnd(l.rest()); n > 0 {
			l.emit(token{kind: l.endKind})
			l.take(n)
			l.tagEnd = nil
			return
		}
	}
	if n := spaces(l.rest()); n > 0 {
		l.take(n)
		return
	}
	l.expression()
}

// operators, the longer first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~",
	"[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

func (l *lexer) expression() {
	rest := l.rest()
	if rest[0] >= '0' && rest[0] <= '9' {
		if n := prefixLength(floatNumber, rest); n > 0 && l.src[l.pos-1] != '.' {
			l.number(tokFloat, n)
		} else {
			l.number(tokInteger, prefixLength(wholeNumber, rest))
		}
		return
	}
	if n := len(rest) - len(strings.TrimLeftFunc(rest, func(r rune) bool { return r == '_' || isAlnum(r) })); n > 0 {
		if !isIdentifier(rest[:n]) {
			panic(syntaxError(l.line, "Invalid character in identifier"))
		}
		l.emit(token{kind: tokName, text: rest[:n]})
		l.take(n)
		return
	}
	if n := stringLength(rest); n > 0 {
		l.emit(token{kind: tokString, text: unescape(rest[1:n-1], l.line)})
		l.take(n)
		return
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			l.operator(op)
			return
		}
	}
	r, n := utf8.DecodeRuneInString(rest)
	panic(syntaxError(l.line, "unexpected char %s at %d", quote(string(r)), utf8.RuneCountInString(l.src[:l.pos+n])-1))
}

func (l *lexer) operator(op string) {
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
			panic(syntaxError(l.line, "unexpected '%s'", op))
		}
		if want := l.braces[n-1]; want != op[0] {
			panic(syntaxError(l.line, "unexpected '%s', expected '%c'", op, want))
		}
		l.braces = l.braces[:n-1]
	}
	l.emit(token{kind: op})
	l.take(len(op))
}

// number reads a number of n bytes.
func (l *lexer) number(kind string, n int) {
	s := l.src[l.pos : l.pos+n]
	t := token{kind: kind}
	if kind == tokFloat {
		f, _ := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64) // out of range: infinite, as in Python
		t.num = float(f)
	} else {
		i, err := strconv.ParseInt(s, 0, 64)
		if err != nil {
			e := overflow()
			e.Line = l.line
			panic(e)
		}
		t.num = integer(i)
	}
	l.emit(t)
	l.take(n)
}

// spaces returns the length of the white space at the start of s.
func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// The numbers of Jinja2's lexer, at the start of the text.
const (
	floatNumber = `^(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?[eE][+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)`
	wholeNumber = `^(?:0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*)`
)

// prefixLength returns the length of a pattern's match at the start of s. A pattern is compiled at its first use:
// expressions compiled when a program starts would be linked into every program that imports this package.
func prefixLength(pattern, s string) int {
	p, ok := patterns.Load(pattern)
	if !ok {
		p, _ = patterns.LoadOrStore(pattern, regexp.MustCompile(pattern))
	}
	return len(p.(*regexp.Regexp).FindString(s))
}

var patterns sync.Map // of *regexp.Regexp, by their text

// stringLength returns the length of a quoted string at the start of s, or 0.
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

// unescape returns the result of Python's unicode-escape codec for the inside of a string literal, in which characters
// beyond ASCII stand for their own escapes. Half a surrogate pair becomes U+FFFD.
func unescape(s string, line int) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for s != "" {
		before, rest, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if s = rest; found {
			s = s[unescapeOne(&b, s, line):]
		}
	}
	return b.String()
}

const (
	simpleEscapes = "\\'\"abfnrtv"
	simpleValues  = "\\'\"\a\b\f\n\r\t\v"
)

// unescapeOne reads an escape after its backslash and returns its length.
func unescapeOne(b *strings.Builder, s string, line int) int {
	if s == "" {
		panic(syntaxError(line, `\ at end of string`))
	}
	c := s[0]
	if i := strings.IndexByte(simpleEscapes, c); i >= 0 {
		b.WriteByte(simpleValues[i])
		return 1
	}
	hexDigits := map[byte]int{'x': 2, 'u': 4, 'U': 8}
	switch {
	case c == '\n':
		return 1
	case c >= '0' && c <= '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(s[:n], 8, 32)
		b.WriteRune(rune(v))
		return n
	case hexDigits[c] > 0:
		n := 1 + hexDigits[c]
		v, err := strconv.ParseUint(s[1:min(n, len(s))], 16, 32)
		if len(s) < n || err != nil {
			panic(syntaxError(line, `truncated \%c%s escape`, c, strings.Repeat("X", n-1)))
		}
		if v > utf8.MaxRune {
			panic(syntaxError(line, "illegal Unicode character"))
		}
		b.WriteRune(rune(v)) // half a pair becomes U+FFFD
		return n
	case c == 'N':
		e := unsupported(`the escape \N{...}`)
		e.Line = line
		panic(e)
	case c >= utf8.RuneSelf:
		r, n := utf8.DecodeRuneInString(s)
		b.WriteString(escapeRune(r)) // the escape of r, whose backslash is written already
		return n
	}
	b.WriteByte('\\') // an unknown escape stays
	b.WriteByte(c)
	return 1
}
