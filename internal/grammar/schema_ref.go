package grammar

import (
	"net/url"
	"strings"
)

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
