package grammar

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// quotedText returns a string of a text.
func quotedText(s *schema, text *term) *term {
	if s.quote != nil {
		return s.b.t.seq(s.quote, text, s.quote)
	}
	return s.b.t.seq(s.b.t.byte('"'), text, s.b.t.byte('"'))
}

// nameBefore returns the name of a property, with the colon.
func nameBefore(s *schema, text *term) *term {
	if s.quote != nil {
		return s.b.t.cat(text, s.b.t.byte(':'))
	}
	return s.b.t.seq(quotedText(s, text), s.b.t.byte(':'), s.whitespace())
}

// avoidMarks returns x without the texts forbidden in strings.
func avoidMarks(s *schema, x *term) *term {
	t := &s.b.t
	rest := t.star(t.class(span(0, 0xff)))
	for _, mark := range s.avoid {
		x = t.and(x, t.not(t.seq(rest, t.text(mark), rest)))
	}
	return x
}

// freeText returns a text of lo to hi characters.
func freeText(s *schema, lo, hi int32) *term {
	char := jsonFree(&s.b.t)
	if s.quote != nil {
		char = s.b.t.utf8(anyRune)
	}
	return avoidMarks(s, s.b.t.repeat(char, lo, hi))
}

// stringChar returns any of some characters, in a string's spelling.
func stringChar(s *schema, r runes) *term {
	if s.quote != nil {
		return s.b.t.utf8(r)
	}
	return jsonChar(&s.b.t, r)
}

// stringText returns the text between the quotes of a string.
func stringText(s *schema, v *value, path string) *term {
	t := &s.b.t
	if v.fields["lark"] != nil {
		s.fail(path+"/lark", "a property's name has no grammar")
	}
	lo, hi := s.size(v, "minLength", path, 0), s.size(v, "maxLength", path, inf)
	if lo > hi {
		s.fail(path+"/minLength", "%d is above maxLength, %d", lo, hi)
	}
	var all []*term
	if p := v.fields["pattern"]; p != nil {
		if p.kind != '"' {
			s.fail(path+"/pattern", "it is of type %s, want a string", p.kindName())
		}
		all = append(all, searchPattern(s, p.text, path+"/pattern"))
	}
	if f := v.fields["format"]; f != nil {
		if f.kind != '"' {
			s.fail(path+"/format", "it is of type %s, want a string", f.kindName())
		}
		if x := formatText(s, f.text, path+"/format"); x != nil {
			all = append(all, x)
		}
	}
	if len(all) == 0 {
		return freeText(s, lo, hi)
	}
	if lo > 0 || hi < inf {
		all = append(all, t.repeat(stringChar(s, anyRune), lo, hi))
	}
	return avoidMarks(s, t.and(all...))
}

// larkNodeOf returns the strings whose text fits a grammar in Lark's notation. Where rules meet, no text forbidden in
// strings can arise: its first character has an escape. If strings have no escapes, the grammar must lack a character
// of the text.
func larkNodeOf(s *schema, v *value, path string) *node {
	source := v.fields["lark"]
	for _, name := range keywords["string"] {
		if name != "lark" && v.fields[name] != nil {
			s.fail(path, "%s is beside it: say it in the grammar", name)
		}
	}
	if source.kind != '"' {
		s.fail(path, "it is of type %s, want a string", source.kindName())
	}
	var used, escaped runes
	for _, mark := range s.avoid {
		c, _ := utf8.DecodeRuneInString(mark)
		escaped = append(escaped, c)
	}
	body, err := func() (n *node, err error) {
		defer caught(&err)
		return larkNode(s.b, source.text, func(r runes) *term {
			used = append(used, r...)
			if s.quote != nil {
				return stringChar(s, r)
			}
			return jsonChar(&s.b.t, r, escaped...)
		}, true), nil
	}()
	if err != nil {
		s.fail(path, "%s", err.Error())
	}
	for _, mark := range s.avoid {
		if s.quote != nil && !strings.ContainsFunc(mark, func(c rune) bool { return !used.has(c) }) {
			s.fail(path, "its texts may have %s, which ends a string in this model's syntax of calls, where strings "+
				"have no escapes", mark)
		}
	}
	if s.quote != nil {
		return s.b.row(s.b.regular(s.quote), body, s.b.regular(s.quote))
	}
	return s.b.row(s.b.text(`"`), body, s.b.text(`"`))
}

// searchPattern returns the texts in which a regular expression is found.
func searchPattern(s *schema, text, path string) *term {
	p := pattern2term{t: &s.b.t, char: func(r runes) *term { return stringChar(s, r) }}
	x, err := p.compile(text, true)
	if err != nil {
		s.fail(path, "%q: %v", text, err)
	}
	return x
}

// formatsJSON has regular expressions: of the formats of strings (dates and times by RFC 3339, host names by RFC 1123,
// addresses by RFC 4291, base64 by RFC 4648), which refer to their parts as <part>, and of the terminals of Lark's
// library. Formats with equal texts are in Same. Formats of other scripts are narrowed to ASCII. Every text is of the
// formats in AnyText.
//
//go:embed formats.json
var formatsJSON []byte

type knownFormats struct {
	Parts, Formats, Same, Lark map[string]string
	AnyText                    []string
}

// known reads formatsJSON where a grammar first asks for a format.
var known = sync.OnceValue(func() (k knownFormats) {
	if err := json.Unmarshal(formatsJSON, &k); err != nil {
		panic(err) // a mistake in formats.json
	}
	k.Formats["ipv6"] = address6()
	for name, pattern := range k.Formats {
		for strings.Contains(pattern, "<") {
			for part, of := range k.Parts {
				pattern = strings.ReplaceAll(pattern, "<"+part+">", of)
			}
		}
		k.Formats[name] = pattern
	}
	return k
})

// address6 returns an address of eight groups, perhaps without a run of zeros.
func address6() string {
	all := []string{`(<hex>:){7}<hex>`}
	for before := range 8 {
		for after := range 8 - before {
			left := strings.TrimSuffix(strings.Repeat(`<hex>:`, before), `:`)
			right := strings.TrimSuffix(strings.Repeat(`<hex>:`, after), `:`)
			all = append(all, left+`::`+right)
		}
	}
	return strings.Join(all, `|`)
}

// formatText returns the texts of a format, nil for an unknown format. Unknown formats restrict nothing, by the
// specification.
func formatText(s *schema, name, path string) *term {
	pattern, ok := known().Formats[cmp.Or(known().Same[name], name)]
	if !ok {
		if !slices.Contains(known().AnyText, name) {
			s.b.ignored = append(s.b.ignored, s.owner+path)
		}
		return nil
	}
	p := pattern2term{t: &s.b.t, char: func(r runes) *term { return stringChar(s, r.within(0, utf8.RuneSelf-1)) }}
	x, err := p.compile(`^(`+pattern+`)$`, false)
	if err != nil {
		s.fail(path, "%v", err)
	}
	return x
}
