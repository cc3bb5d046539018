package packing

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
)

// pattern is a Python pattern, matched from the start of a name. Patterns that begin with a negative look ahead, as
// ^(?!.*experts).*, are read as two.
type pattern struct {
	is  *regexp.Regexp
	not []*regexp.Regexp
}

// parsePattern reads a pattern. Looks is set for an error about other ways to look around.
func parsePattern(text string) (p *pattern, looks bool, err error) {
	compile := func(text string) (re *regexp.Regexp) {
		if err == nil {
			re, err = regexp.Compile("^(?:" + text + ")")
		}
		return re
	}
	p = &pattern{}
	for rest := text; ; {
		look, after, ok := cutLook(rest)
		if !ok {
			p.is = compile(rest)
			break
		}
		p.not, rest = append(p.not, compile(look)), after
	}
	e := (*syntax.Error)(nil)
	looks = errors.As(err, &e) && (e.Code == syntax.ErrInvalidPerlOp || e.Code == syntax.ErrInvalidNamedCapture)
	return p, looks, err
}

// cutLook cuts a negative look ahead from the start of a pattern without alternatives.
func cutLook(text string) (look, rest string, ok bool) {
	body, ok := strings.CutPrefix(strings.TrimPrefix(text, "^"), "(?!")
	end, depth, class := -1, 1, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			for _, first := range "^]" { // a bracket that comes first is in the class
				if i+1 < len(body) && body[i+1] == byte(first) {
					i++
				}
			}
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 && end < 0 {
				end = i
			}
		case c == '|' && end >= 0 && depth == 0:
			return "", "", false
		}
	}
	if !ok || end < 0 {
		return "", "", false
	}
	return body[:end], body[end+1:], true
}

// matches reports whether a name begins as the pattern says.
func (p *pattern) matches(name string) bool {
	for _, not := range p.not {
		if not.MatchString(name) {
			return false
		}
	}
	return p.is.MatchString(name)
}
