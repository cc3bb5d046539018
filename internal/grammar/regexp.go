package grammar

import (
	"context"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPattern is the length of the longest regular expression, in bytes.
const maxPattern = 1 << 16

// Regexp returns the texts that a regular expression matches from their beginning to their end. The syntax is Go's, of
// package regexp, and \uXXXX.
func Regexp(pattern string) (*Grammar, error) {
	return compile(context.Background(), nil, func(b *builder) (*node, error) {
		return b.regular(patternTerm(&b.t, pattern, b.t.utf8)), nil
	})
}

// patternTerm returns a regular expression, of a whole text whose characters are spelled by char.
func patternTerm(t *termTable, pattern string, char func(runes) *term) *term {
	p := pattern2term{t: t, char: char}
	x, err := p.compile(pattern, false)
	if err != nil {
		giveUp("the regular expression: %v", err)
	}
	return x
}

// pattern2term makes a term of a regular expression.
type pattern2term struct {
	t    *termTable
	char func(runes) *term // how a character is written
	made int
}

// compile reads a pattern. With search the pattern may match anywhere in the text, as in a JSON schema.
func (p *pattern2term) compile(pattern string, search bool) (*term, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(pattern), maxPattern)
	}
	p.t.burn(parsing(pattern))
	re, err := syntax.Parse(ecma(pattern), syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return p.term(re, search, search)
}

// parsing returns the cost of parsing a pattern, in steps. Package syntax builds each class of Unicode anew, and with
// the flag i it goes through all characters of a range.
func parsing(pattern string) int {
	cost := len(pattern) + 1000*(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`))
	if !strings.Contains(pattern, "(?") || !strings.Contains(pattern, "i") {
		return cost
	}
	for i, c := range pattern {
		if c == '-' {
			lo, _ := utf8.DecodeLastRuneInString(pattern[:i])
			hi, _ := utf8.DecodeRuneInString(pattern[i+1:])
			if lo == '}' || isHex(string(lo)) && strings.Contains(pattern, `\x`) { // the end of an escape
				lo = 0
			}
			if hi == '\\' {
				hi = utf8.MaxRune
			}
			cost += max(0, int(min(hi, foldMax)-lo))
		}
	}
	return cost
}

// foldMax is the last character that has another case.
const foldMax = 0x1e943

// ecma rewrites the escapes of JavaScript in Go's form.
func ecma(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '\\' || i+1 == len(pattern) {
			b.WriteByte(pattern[i])
			continue
		}
		if i++; pattern[i] == 'u' && i+4 < len(pattern) && isHex(pattern[i+1:i+5]) {
			b.WriteString(`\x{` + pattern[i+1:i+5] + `}`)
			i += 4
			continue
		}
		b.WriteString(pattern[i-1 : i+1])
	}
	return b.String()
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// term makes a term of re. With before or after, any text may stand at that end, unless re has the mark of the end.
func (p *pattern2term) term(re *syntax.Regexp, before, after bool) (x *term, err error) {
	if p.made++; p.made > maxPattern {
		return nil, fmt.Errorf("it is too large")
	}
	switch re.Op {
	case syntax.OpCapture:
		return p.term(re.Sub[0], before, after)
	case syntax.OpAlternate:
		var list []*term
		for _, sub := range re.Sub {
			y, err := p.term(sub, before, after)
			if err != nil {
				return nil, err
			}
			list = append(list, y)
		}
		return p.t.or(list...), nil
	case syntax.OpConcat:
		return p.row(re.Sub, before, after)
	case syntax.OpBeginText:
		return p.row([]*syntax.Regexp{re}, before, after)
	case syntax.OpEndText:
		return p.row([]*syntax.Regexp{re}, before, after)
	}
	if x, err = p.plain(re); err != nil {
		return nil, err
	}
	return p.pad(x, before, after), nil
}

// pad puts any text beside x.
func (p *pattern2term) pad(x *term, before, after bool) *term {
	if !before && !after {
		return x
	}
	rest := p.t.star(p.char(anyRune))
	if before {
		x = p.t.cat(rest, x)
	}
	if after {
		x = p.t.cat(x, rest)
	}
	return x
}

func (p *pattern2term) row(list []*syntax.Regexp, before, after bool) (*term, error) {
	for len(list) > 0 && list[0].Op == syntax.OpBeginText {
		list, before = list[1:], false
	}
	for len(list) > 0 && list[len(list)-1].Op == syntax.OpEndText {
		list, after = list[:len(list)-1], false
	}
	if len(list) == 0 {
		if before || after {
			return p.t.star(p.char(anyRune)), nil
		}
		return p.t.unit, nil
	}
	x := p.t.unit
	for i, sub := range slices.Backward(list) {
		y, err := p.term(sub, before && i == 0, after && i == len(list)-1)
		if err != nil {
			return nil, err
		}
		if i > 0 && p.hasMark(sub, syntax.OpBeginText) || i < len(list)-1 && p.hasMark(sub, syntax.OpEndText) {
			return nil, fmt.Errorf("^ and $ are taken at its beginning and end alone")
		}
		x = p.t.cat(y, x)
	}
	return x, nil
}

// hasMark reports whether re has a mark of an end of the text.
func (p *pattern2term) hasMark(re *syntax.Regexp, op syntax.Op) bool {
	p.t.burn(1)
	return re.Op == op || slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return p.hasMark(sub, op) })
}

// plain makes a term of an expression without neighbours.
func (p *pattern2term) plain(re *syntax.Regexp) (*term, error) {
	lo, hi := int32(re.Min), int32(re.Max)
	switch re.Op {
	case syntax.OpNoMatch:
		return p.t.none, nil
	case syntax.OpEmptyMatch:
		return p.t.unit, nil
	case syntax.OpLiteral:
		x := p.t.unit
		for _, r := range slices.Backward(re.Rune) {
			x = p.t.cat(p.char(fold(r, re.Flags&syntax.FoldCase != 0)), x)
		}
		return x, nil
	case syntax.OpCharClass:
		return p.char(re.Rune), nil
	case syntax.OpAnyChar:
		return p.char(anyRune), nil
	case syntax.OpAnyCharNotNL:
		return p.char(anyRune.subtract('\n')), nil
	case syntax.OpStar:
		lo, hi = 0, inf
	case syntax.OpPlus:
		lo, hi = 1, inf
	case syntax.OpQuest:
		lo, hi = 0, 1
	case syntax.OpRepeat:
		if hi < 0 {
			hi = inf
		}
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return nil, fmt.Errorf(`\b and \B are not supported`)
	default:
		return nil, fmt.Errorf("^ and $ are taken at the ends of the whole text alone, not of lines")
	}
	if p.hasMark(re.Sub[0], syntax.OpBeginText) || p.hasMark(re.Sub[0], syntax.OpEndText) {
		return nil, fmt.Errorf("^ and $ are taken at its beginning and end alone")
	}
	x, err := p.term(re.Sub[0], false, false)
	if err != nil {
		return nil, err
	}
	return p.t.repeat(x, lo, hi), nil
}

// fold returns a character, with the characters that differ from it in case alone.
func fold(r rune, fold bool) runes {
	if !fold {
		return runes{r, r}
	}
	all := []rune{r}
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		all = append(all, f)
	}
	slices.Sort(all)
	var out runes
	for _, f := range all {
		out = append(out, f, f)
	}
	return out
}
