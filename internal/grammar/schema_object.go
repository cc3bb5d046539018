package grammar

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// member is a property of an object.
type member struct {
	node     *node // with its name, after the comma
	required bool
}

// objectNode returns an object: the properties in the schema's order, then others.
func objectNode(s *schema, v *value, path string) *node {
	fields := objectFields(s, v, "properties", path)
	if s.properties += len(fields.names); s.properties > maxProperties {
		s.fail(path, "more than %d properties", maxProperties)
	}
	required, must := requiredNames(s, v, path)
	others := readExtra(s, v, path)
	var all []member
	var least int32
	for _, name := range fields.names {
		at := path + "/properties/" + name
		x := withPatterns(s, fields.fields[name], others, name, at)
		if must[name] {
			least++
		} else if x.kind == 'f' {
			continue
		}
		if !s.b.t.matches(others.fits, string(spelledName(s, name))) {
			s.fail(path+"/propertyNames", "the property %q does not fit it", name)
		}
		all = append(all, newMember(s, name, s.node(x, at), must[name]))
	}
	for _, name := range required {
		if fields.fields[name] != nil {
			continue
		}
		x, at := others.find(name)
		if x == nil {
			s.fail(path+"/required", "%q is no property, and there are no others", name)
		}
		all, least = append(all, newMember(s, name, s.sharedNode(x, at), true)), least+1
	}
	s.at(path+"/patternProperties", 0)
	rest := others.node(append(slices.Clone(fields.names), required...))
	lo, hi := s.size(v, "minProperties", path, 0), s.size(v, "maxProperties", path, inf)
	if len(all) == 0 {
		if rest == nil && lo > 0 || lo > hi {
			s.fail(path+"/minProperties", "there are not so many properties")
		}
		if lo > 1 {
			s.fail(path+"/minProperties", "more than 1 is not supported: no grammar sees that names differ")
		}
		return membersNode(s, nil, rest, lo, hi)
	}
	most := int32(len(all))
	if rest != nil {
		most = inf
	}
	if lo > least || hi < most {
		s.fail(path,
			"minProperties and maxProperties are supported for objects without properties of fixed names alone")
	}
	return membersNode(s, all, rest, 0, inf)
}

// newMember returns a property of a name.
func newMember(s *schema, name string, value *node, required bool) member {
	key := s.b.regular(nameBefore(s, s.b.t.text(string(spelledName(s, name)))))
	return member{s.b.row(key, value), required}
}

// spelledName returns a text in the spelling between the quotes of a string.
func spelledName(s *schema, text string) []byte {
	if s.quote != nil {
		if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$") != "" {
			giveUp("the name %q: this model's calls have no way to write it", text)
		}
		return []byte(text)
	}
	b := appendString(nil, text)
	return b[1 : len(b)-1]
}

// objectFields returns a keyword's object, empty by default.
func objectFields(s *schema, v *value, name, path string) *value {
	x := v.fields[name]
	switch {
	case x == nil:
		return &value{kind: '{'}
	case x.kind != '{':
		s.fail(path+"/"+name, "it is of type %s, want an object", x.kindName())
	}
	return x
}

// requiredNames returns the names of required properties, in order and as a set.
func requiredNames(s *schema, v *value, path string) (names []string, set map[string]bool) {
	x := v.fields["required"]
	if x == nil {
		return nil, nil
	}
	if x.kind != '[' {
		s.fail(path+"/required", "it is of type %s, want an array of names", x.kindName())
	}
	set = map[string]bool{}
	for _, y := range x.list {
		if y.kind != '"' {
			s.fail(path+"/required", "it holds a %s, want names", y.kindName())
		}
		if !set[y.text] {
			names, set[y.text] = append(names, y.text), true
		}
		if len(names) > maxProperties {
			s.fail(path+"/required", "more than %d names", maxProperties)
		}
	}
	return names, set
}

// extraMembers describes the properties of an object beside its properties.
type extraMembers struct {
	s          *schema
	path       string
	fits       *term    // names
	names      []string // of patterns
	patterns   []*term
	schemas    []*value // of the patterns
	additional *value   // nil where none is said
	any        bool     // names that are not written down may occur
}

// readExtra reads a schema's rules for properties absent from properties.
func readExtra(s *schema, v *value, path string) *extraMembers {
	t := &s.b.t
	o := &extraMembers{s: s, path: path, additional: v.fields["additionalProperties"]}
	patterns, allowed := objectFields(s, v, "patternProperties", path), objectFields(s, v, "propertyNames", path)
	o.any = v.fields["properties"] == nil && len(patterns.names) == 0 || len(allowed.names) > 0
	o.fits = t.star(stringChar(s, anyRune))
	if s.quote != nil {
		o.fits = t.repeat(stringChar(s, runes{'0', '9', 'A', 'Z', '_', '_', 'a', 'z'}), 1, inf)
	}
	if len(allowed.names) > 0 {
		o.fits = stringText(s, allowed, path+"/propertyNames")
	}
	o.fits = avoidMarks(s, o.fits)
	for _, p := range patterns.names {
		o.patterns = append(o.patterns, searchPattern(s, p, path+"/patternProperties"))
		o.names, o.schemas = append(o.names, p), append(o.schemas, patterns.fields[p])
	}
	return o
}

// withPatterns returns the schema of a property merged with the schemas of all patterns that match its name.
func withPatterns(s *schema, x *value, o *extraMembers, name, at string) *value {
	for i, p := range o.patterns {
		if s.at(at, 0); s.b.t.matches(p, string(spelledName(s, name))) {
			x = mergeSchemas(s, x, o.schemas[i], at, nil)
		}
	}
	return x
}

// find returns the schema, with its path, of a required name absent from properties; nil if the name is forbidden.
func (o *extraMembers) find(name string) (x *value, at string) {
	s := o.s
	if !s.b.t.matches(o.fits, string(spelledName(s, name))) {
		return nil, ""
	}
	for i, p := range o.patterns {
		switch {
		case !s.b.t.matches(p, string(spelledName(s, name))):
		case x == nil:
			x, at = o.schemas[i], o.path+"/patternProperties/"+o.names[i]
		default:
			x = mergeSchemas(s, x, o.schemas[i], at, nil)
		}
	}
	switch {
	case x != nil:
	case o.additional == nil:
		x = s.free
	default:
		x, at = o.additional, o.path+"/additionalProperties"
	}
	if x.kind == 'f' {
		return nil, ""
	}
	return x, at
}

// node returns a property with a name outside names; nil if there may be none.
func (o *extraMembers) node(names []string) *node {
	s, t := o.s, &o.s.b.t
	fits := o.fits
	if len(names) > 0 {
		texts := make([]string, len(names))
		for i, name := range names {
			texts[i] = string(spelledName(s, name))
		}
		fits = t.and(fits, t.not(t.oneOf(texts)))
	}
	var list []*node
	not := make([]*term, len(o.patterns))
	for i, p := range o.patterns {
		not[i] = t.not(p)
	}
	for i, p := range o.patterns { // a name that fits two would need a value that fits both
		x := t.and(append(append([]*term{fits, p}, not[:i]...), not[i+1:]...)...)
		list = append(list, s.b.row(s.b.regular(nameBefore(s, x)),
			s.sharedNode(o.schemas[i], o.path+"/patternProperties/"+o.names[i])))
	}
	x := o.additional
	if x == nil && o.any {
		x = s.free
	}
	if x != nil && x.kind != 'f' {
		fits = t.and(append([]*term{fits}, not...)...)
		list = append(list, s.b.row(s.b.regular(nameBefore(s, fits)), s.sharedNode(x, o.path+"/additionalProperties")))
	}
	if len(list) == 0 {
		return nil
	}
	return s.b.choice(list...)
}

// membersNode returns an object of properties in order, then lo to hi others.
func membersNode(s *schema, all []member, rest *node, lo, hi int32) *node {
	b := s.b
	comma := s.mark(",")
	begin, end, nothing := s.mark("{"), s.end("}"), b.row()
	after, first := nothing, nothing // the rest after a property, and after none
	if rest != nil {
		more := b.row(comma, rest)
		after = b.many(more, 0, inf)
		first = b.row(rest, b.many(more, max(lo-1, 0), decrement(hi)))
		switch {
		case hi == 0:
			first = nothing
		case lo == 0:
			first = b.choice(nothing, first)
		}
	}
	for i := len(all) - 1; i >= 0; i-- {
		m := all[i]
		next := b.row(comma, m.node, after)
		begins := b.row(m.node, after)
		if m.required {
			after, first = next, begins
			continue
		}
		after, first = b.choice(next, after), b.choice(begins, first)
	}
	return b.row(begin, first, end)
}

// decrement returns n-1; 0 and inf stay.
func decrement(n int32) int32 {
	if n == inf || n == 0 {
		return n
	}
	return n - 1
}

// arrayNode returns an array: its first items, then others.
func arrayNode(s *schema, v *value, path string) *node {
	if u := v.fields["uniqueItems"]; u != nil && u.kind != 'f' {
		s.fail(path+"/uniqueItems", "that items are different is not supported")
	}
	first, others := v.fields["prefixItems"], v.fields["items"]
	where := [2]string{"/prefixItems", "/items"}
	if others != nil && others.kind == '[' { // as in older drafts
		first, others = others, v.fields["additionalItems"]
		where = [2]string{"/items", "/additionalItems"}
	}
	if first == nil {
		first = &value{kind: '['}
	}
	if first.kind != '[' {
		s.fail(path+where[0], "it is of type %s, want an array of schemas", first.kindName())
	}
	lo, hi := s.size(v, "minItems", path, 0), s.size(v, "maxItems", path, inf)
	if lo > hi {
		s.fail(path+"/minItems", "%d is above maxItems, %d", lo, hi)
	}
	var prefix []*node
	for i, x := range first.list {
		prefix = append(prefix, s.node(x, fmt.Sprintf("%s%s/%d", path, where[0], i)))
	}
	n := int32(len(prefix))
	var rest *node
	switch {
	case hi <= n:
	case others == nil && n == 0:
		rest = s.anything()
	case others == nil && lo <= n: // other items are not written unless described
	case others == nil:
		rest = s.anything()
	case others.kind != 'f':
		rest = s.node(others, path+where[1])
	}
	if rest == nil {
		if hi = min(hi, n); lo > hi {
			s.fail(path+"/minItems", "%d, there are at most %d items", lo, hi)
		}
	}
	return listNode(s, func(i int32) *node {
		if i < n {
			return prefix[i]
		}
		return rest
	}, n, lo, hi)
}

// listNode returns an array of lo to hi items, of which the first n have separate schemas.
func listNode(s *schema, item func(i int32) *node, n, lo, hi int32) *node {
	b := s.b
	comma := s.mark(",")
	n = min(n, hi)
	tail := b.row() // rest after item i
	if hi > n {
		from := max(n, 1)
		most := hi
		if hi != inf {
			most = hi - from
		}
		tail = b.many(b.row(comma, item(n)), max(lo-from, 0), most)
	}
	for i := n - 1; i >= 1; i-- {
		x := b.row(comma, item(i), tail)
		if tail = x; i >= lo {
			tail = b.choice(b.row(), x)
		}
	}
	whole := b.row()
	if hi > 0 {
		if whole = b.row(item(0), tail); lo == 0 {
			whole = b.choice(b.row(), whole)
		}
	}
	return b.row(s.mark("["), whole, s.end("]"))
}

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
