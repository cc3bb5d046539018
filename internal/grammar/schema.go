package grammar

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// The bounds of a schema.
const (
	maxProperties = 5000
	maxEnum       = 10000
	maxSchemas    = 20000 // maximum of schemas read, counting shared schemas once
)

// JSONSchema returns the JSON values that a schema describes. Unknown parts are an error with their path.
func JSONSchema(text []byte) (*Grammar, error) {
	return (&Form{Schema: append([]byte{}, text...)}).Compile(context.Background(), nil)
}

// JSONObject returns every JSON object.
func JSONObject() *Grammar {
	g, err := JSONSchema([]byte(`{"type": "object"}`))
	if err != nil {
		panic(err) // nothing inside can fail
	}
	return g
}

// schema makes nodes of a JSON schema.
type schema struct {
	b     *builder
	root  *value
	rules map[*value]*node // rules of schemas that stand in several places
	free  *value           // of any value
	index *index           // once a reference was met
	any   *node
	owner string // of the schema, for messages: a tool

	avoid []string // texts that no string contains in plain form
	quote *term    // around strings without escapes; nil is JSON

	count, properties, values int
}

// badSchema is why a schema is refused.
type badSchema struct{ path, what string }

func (e badSchema) Error() string { return e.path + ": " + e.what }

func (s *schema) fail(path, format string, args ...any) {
	panic(tooMuch{badSchema{s.owner + path, fmt.Sprintf(format, args...)}})
}

// newSchema reads a schema. The texts of avoid are in no string.
func newSchema(b *builder, text []byte, avoid []string) (*schema, error) {
	v, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	return &schema{b: b, root: v, rules: map[*value]*node{}, free: &value{kind: 't'}, avoid: avoid}, nil
}

func (s *schema) top() *node { return s.node(s.root, "#") }

// annotations say nothing of values.
var annotations = words(
	"$schema $id $anchor $comment $defs definitions title description default examples example deprecated readOnly " +
		"writeOnly discriminator contentMediaType contentEncoding")

// keywords lists the keywords that may be combined, by the type of values concerned.
var keywords = map[string][]string{
	"": words("type enum const anyOf oneOf allOf $ref nullable"),
	"object": words("properties required additionalProperties patternProperties propertyNames " +
		"minProperties maxProperties"),
	"array":   words("items prefixItems additionalItems minItems maxItems uniqueItems"),
	"string":  words("minLength maxLength pattern format lark"),
	"number":  words("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"),
	"integer": nil, "boolean": nil, "null": nil,
}

func words(s string) []string { return strings.Fields(s) }

// checkKnown fails for an unknown keyword.
func (s *schema) checkKnown(v *value, path string) {
	s.at(path, len(v.names))
	for _, name := range v.names {
		if !annotates(name) && !slices.ContainsFunc(slices.Collect(maps.Values(keywords)), func(list []string) bool {
			return slices.Contains(list, name)
		}) {
			s.fail(path, "%q is not supported", name)
		}
	}
}

// annotates reports whether a keyword says nothing of values.
func annotates(name string) bool {
	return strings.HasPrefix(name, "x-") || slices.Contains(annotations, name)
}

// at begins some steps of work at a place.
func (s *schema) at(path string, steps int) {
	s.b.t.place = s.owner + path
	s.b.t.burn(1 + steps)
}

// node makes a node of a schema.
func (s *schema) node(v *value, path string) *node {
	if s.count++; s.count > maxSchemas {
		s.fail(path, "more than %d schemas", maxSchemas)
	}
	switch v.kind {
	case 't':
		return s.anything()
	case 'f':
		return s.b.regular(s.b.t.none)
	case '{':
	default:
		s.fail(path, "it is of type %s, want a schema: an object or a boolean", v.kindName())
	}
	s.checkKnown(v, path)
	v = simplify(s, v, path)
	s.at(path, 0)
	if list := v.fields["anyOf"]; list != nil {
		return s.anyOf(v, list, path)
	}
	if ref := v.fields["$ref"]; ref != nil {
		return s.ref(ref, path)
	}
	if v.fields["enum"] != nil || v.fields["const"] != nil {
		return s.enum(v, path)
	}
	types := s.types(v, path)
	if len(types) == 0 {
		if types = s.impliedTypes(v); len(types) == 0 {
			return s.anything()
		}
	}
	var list []*node
	for _, name := range types {
		list = append(list, s.typeNode(v, name, path))
	}
	return s.b.choice(list...)
}

// typeNode returns the values of a type.
func (s *schema) typeNode(v *value, name, path string) *node {
	switch name {
	case "object":
		return objectNode(s, v, path)
	case "array":
		return arrayNode(s, v, path)
	case "string":
		if v.fields["lark"] != nil {
			return larkNodeOf(s, v, path+"/lark")
		}
		return s.b.regular(quotedText(s, stringText(s, v, path)))
	case "number", "integer":
		return s.b.regular(s.number(v, name == "integer", path))
	case "boolean":
		return s.b.regular(s.b.t.oneOf([]string{"true", "false"}))
	case "null":
		return s.b.text("null")
	}
	s.fail(path+"/type", "%q, want object, array, string, number, integer, boolean or null", name)
	return nil
}

// types returns the types named in a schema, none by default.
func (s *schema) types(v *value, path string) (types []string) {
	t := v.fields["type"]
	if t == nil {
		return nil
	}
	types = s.typeNames(t, path)
	if n := slices.Index(types, "integer"); n >= 0 && slices.Contains(types, "number") {
		types = slices.Delete(types, n, n+1)
	}
	if x := v.fields["nullable"]; x != nil && x.kind == 't' && !slices.Contains(types, "null") {
		types = append(types, "null")
	}
	return types
}

// typeNames returns the names of a type keyword, each once.
func (s *schema) typeNames(t *value, path string) (types []string) {
	list := []*value{t}
	if t.kind == '[' {
		list = t.list
	}
	for _, x := range list {
		if x.kind != '"' {
			s.fail(path+"/type", "it is of type %s, want a string or an array of strings", x.kindName())
		}
		if _, ok := keywords[x.text]; !ok || x.text == "" {
			s.fail(path+"/type", "%q, want object, array, string, number, integer, boolean or null", x.text)
		}
		if !slices.Contains(types, x.text) {
			types = append(types, x.text)
		}
	}
	if len(types) == 0 {
		s.fail(path+"/type", "it is empty")
	}
	return types
}

// impliedTypes returns the types implied by the keywords of a schema without a type.
func (s *schema) impliedTypes(v *value) (types []string) {
	for _, name := range []string{"object", "array", "string", "number"} {
		if slices.ContainsFunc(v.names, func(k string) bool { return slices.Contains(keywords[name], k) }) {
			types = append(types, name)
		}
	}
	return types
}

// enum returns the values of enum or const that fit the type.
func (s *schema) enum(v *value, path string) *node {
	for _, name := range v.names {
		if !annotates(name) && !slices.Contains([]string{"type", "enum", "const", "nullable"}, name) {
			s.fail(path, "%q is not supported beside enum and const", name)
		}
	}
	list := []*value{v.fields["const"]}
	if e := v.fields["enum"]; e != nil {
		if e.kind != '[' || len(e.list) == 0 {
			s.fail(path+"/enum", "want an array of values")
		}
		if c := v.fields["const"]; c != nil &&
			!slices.ContainsFunc(e.list, func(x *value) bool { return s.isEqual(x, c) }) {
			s.fail(path, "const is no value of enum")
		} else if c == nil {
			list = e.list
		}
	}
	if s.values += len(list); s.values > maxEnum {
		s.fail(path, "more than %d values of enums", maxEnum)
	}
	types := s.types(v, path)
	var texts []string
	for _, x := range list {
		name := x.kindName()
		if name == "number" && slices.Contains(types, "integer") {
			if d, err := decimalOf(x.text); err == nil && d.fraction == "" {
				name = "integer"
			}
		}
		if len(types) == 0 || slices.Contains(types, name) {
			texts = append(texts, string(x.append(nil, s.quote != nil)))
		}
	}
	return s.b.regular(s.textsTerm(texts))
}

// textsTerm returns any of several written texts.
func (s *schema) textsTerm(texts []string) *term {
	t := &s.b.t
	if s.quote == nil {
		return t.oneOf(texts)
	}
	var list []*term
	for _, text := range texts {
		var row []*term
		for i, part := range strings.Split(text, bareQuote) {
			if i > 0 {
				row = append(row, s.quote)
			}
			row = append(row, t.text(part))
		}
		list = append(list, t.seq(row...))
	}
	return t.or(list...)
}

// isEqual reports whether two values of the source are equal.
func (s *schema) isEqual(a, b *value) bool {
	return a == b || a.canonical(&s.b.t.work) == b.canonical(&s.b.t.work)
}

// anyOf returns the values of any of several schemas, each combined with the keywords beside the list.
func (s *schema) anyOf(v, list *value, path string) *node {
	if list.kind != '[' || len(list.list) == 0 {
		s.fail(path+"/anyOf", "want an array of schemas")
	}
	beside := dropKeyword(v, "anyOf")
	var all []*node
	for i, x := range list.list {
		at := fmt.Sprintf("%s/anyOf/%d", path, i)
		if x.kind == '{' && says(beside) {
			s.checkKnown(x, at)
			x = mergeSchemas(s, beside, x, at, nil)
		}
		all = append(all, s.node(x, at))
	}
	return s.b.choice(all...)
}

// says reports whether a schema says something of values.
func says(v *value) bool {
	return slices.ContainsFunc(v.names, func(name string) bool { return !annotates(name) })
}

// dropKeyword returns a schema without a keyword.
func dropKeyword(v *value, keyword string) *value {
	w := &value{kind: '{', fields: map[string]*value{}}
	for _, name := range v.names {
		if name != keyword {
			w.names, w.fields[name] = append(w.names, name), v.fields[name]
		}
	}
	return w
}

// whitespace may stand between the parts of objects and arrays, within bounds, so that no text is white space without
// end.
func (s *schema) whitespace() *term {
	t := &s.b.t
	if s.quote != nil {
		return t.unit
	}
	return t.or(t.unit, t.byte(' '), t.cat(t.byte('\n'), t.or(t.repeat(t.byte(' '), 0, 40),
		t.repeat(t.byte('\t'), 0, 10))))
}

// mark returns a sign between values, with white space behind.
func (s *schema) mark(sign string) *node {
	return s.b.regular(s.b.t.cat(s.b.t.text(sign), s.whitespace()))
}

// end returns the sign that ends an object or array, with white space before.
func (s *schema) end(sign string) *node {
	return s.b.regular(s.b.t.cat(s.whitespace(), s.b.t.text(sign)))
}

// anything returns every value.
func (s *schema) anything() *node {
	if s.any == nil {
		s.any = s.b.rule("any JSON value")
		t := &s.b.t
		str := quotedText(s, freeText(s, 0, inf))
		n := numbers{t: t}
		item := listNode(s, func(int32) *node { return s.any }, 0, 0, inf)
		all := readExtra(s, &value{kind: '{'}, "#")
		member := all.node(nil)
		s.any.list = []*node{s.b.choice(s.b.regular(t.or(str, n.all(), t.oneOf([]string{"true", "false", "null"}))),
			item,
			membersNode(s, nil, member, 0, inf))}
	}
	return s.any
}

// number returns a number.
func (s *schema) number(v *value, integer bool, path string) *term {
	n := numbers{&s.b.t, integer}
	read := func(name string) *decimal {
		x := v.fields[name]
		if x == nil {
			return nil
		}
		if x.kind != 0 {
			s.fail(path+"/"+name, "it is of type %s, want a number", x.kindName())
		}
		d, err := decimalOf(x.text)
		if err != nil {
			s.fail(path+"/"+name, "%v", err)
		}
		return &d
	}
	var all []*term
	for _, strict := range []bool{false, true} {
		low, high := "minimum", "maximum"
		if strict {
			low, high = "exclusiveMinimum", "exclusiveMaximum"
		}
		if b := (bounds{read(low), read(high), strict, strict}); b.low != nil || b.high != nil {
			all = append(all, n.between(&b))
		}
	}
	if d := read("multipleOf"); d != nil {
		x, err := n.multipleOf(d)
		if err != nil {
			s.fail(path+"/multipleOf", "%v", err)
		}
		all = append(all, x)
	}
	if len(all) == 0 {
		return n.all()
	}
	return s.b.t.and(all...)
}

// size reads a count, such as minLength; none is the default.
func (s *schema) size(v *value, name, path string, none int32) int32 {
	x := v.fields[name]
	if x == nil {
		return none
	}
	d, err := decimalOf(x.text)
	n, ok := number(d.whole)
	if d.whole == "" && d.fraction == "" {
		n, ok = 0, true
	}
	if x.kind != 0 || err != nil || !ok || d.fraction != "" || d.negative {
		s.fail(path+"/"+name, "want a whole number from 0 to %d", maxCount)
	}
	return n
}

// index is where references of a schema lead.
type index struct {
	bases map[*value]*url.URL // of references
	at    map[string]*value   // schemas by their URIs, ending in #NAME for an anchor
}

// Keywords with values that are schemas, arrays of schemas, or objects of schemas by names. Other values may hold
// anything, but no $id counts there.
var (
	schemaKeywords = words(
		"items additionalItems prefixItems contains additionalProperties propertyNames not if then else allOf anyOf " +
			"oneOf unevaluatedItems unevaluatedProperties")
	namedKeywords = words("properties patternProperties $defs definitions dependentSchemas")
)

// add reads the identifiers of a schema and of the schemas inside.
func (x *index) add(s *schema, v *value, base *url.URL, path string) {
	s.at(path, 0)
	for _, y := range v.list {
		x.add(s, y, base, path)
	}
	if v.kind != '{' {
		return
	}
	if id := v.fields["$id"]; id != nil && id.kind == '"' {
		u, err := base.Parse(id.text)
		if err != nil {
			s.fail(path+"/$id", "%q is no URI reference", id.text)
		}
		if strings.HasPrefix(id.text, "#") { // an anchor, as in older drafts
			x.at[u.String()] = v
		} else {
			u.Fragment, u.RawFragment = "", ""
			base = u
			x.at[base.String()] = v
		}
	}
	if name := v.fields["$anchor"]; name != nil && name.kind == '"' {
		u := *base
		u.Fragment = name.text
		x.at[u.String()] = v
	}
	if ref := v.fields["$ref"]; ref != nil {
		x.bases[ref] = base
	}
	for _, name := range schemaKeywords {
		if y := v.fields[name]; y != nil {
			x.add(s, y, base, path+"/"+name)
		}
	}
	for _, name := range namedKeywords {
		if y := v.fields[name]; y != nil && y.kind == '{' {
			for _, inner := range y.names {
				x.add(s, y.fields[inner], base, path+"/"+name+"/"+inner)
			}
		}
	}
}

// ref returns the node of a reference. The node is made once, so a schema may refer to itself.
func (s *schema) ref(ref *value, path string) *node {
	target, at := s.target(ref, path)
	return s.sharedNode(target, at)
}

// sharedNode returns the single node of a schema that stands in several places.
func (s *schema) sharedNode(v *value, path string) *node {
	r := s.rules[v]
	if r == nil {
		r = s.b.rule(path)
		s.rules[v] = r
		r.list = []*node{s.node(v, path)}
	}
	return r
}

// target finds the schema of a reference, a URI with a JSON pointer or an anchor as its fragment: #/$defs/a%20b. The
// reference is resolved within the document; nothing is fetched.
func (s *schema) target(ref *value, path string) (v *value, at string) {
	path += "/$ref"
	if ref.kind != '"' {
		s.fail(path, "it is of type %s, want a string", ref.kindName())
	}
	if s.index == nil {
		s.index = &index{map[*value]*url.URL{}, map[string]*value{"": s.root}}
		s.index.add(s, s.root, &url.URL{}, "#")
	}
	s.at(path, len(ref.text)/16)
	base := s.index.bases[ref]
	if base == nil { // for a schema at an unexpected place
		base = &url.URL{}
	}
	u, err := base.Parse(ref.text)
	if err != nil {
		s.fail(path, "%q is no URI reference: write characters such as %% and blanks as %%25 and %%20", ref.text)
	}
	pointer := u.Fragment
	if pointer == "" || pointer[0] == '/' {
		u.Fragment, u.RawFragment = "", ""
	}
	if v = s.index.at[u.String()]; v == nil {
		s.fail(path, "%q: there is no schema of that $id or $anchor in this one, and nothing is fetched", ref.text)
	}
	if u.Fragment != "" {
		return v, ref.text
	}
	at = u.String() + "#" + pointer
	if pointer == "" {
		return v, at
	}
	for _, step := range strings.Split(pointer, "/")[1:] {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		next := v.fields[step]
		if n, is := number(step); v.kind == '[' && is && int(n) < len(v.list) && (step == "0" || step[0] != '0') {
			next = v.list[n]
		}
		if next == nil {
			s.fail(path, "%q: there is no %q", ref.text, step)
		}
		v = next
	}
	return v, at
}
