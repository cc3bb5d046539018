package grammar

import (
	"fmt"
	"maps"
	"slices"
)

// simplify returns a schema in fewer keywords: allOf, and a reference beside other keywords, are merged; oneOf
// becomes anyOf if no value fits two of its schemas.
func simplify(s *schema, v *value, path string) *value {
	if one := v.fields["oneOf"]; one != nil {
		if v.fields["anyOf"] != nil {
			s.fail(path, "oneOf beside anyOf is not supported")
		}
		if one.kind != '[' || len(one.list) == 0 {
			s.fail(path+"/oneOf", "want an array of schemas")
		}
		if len(one.list) > 256 {
			s.fail(path+"/oneOf", "more than 256 schemas")
		}
		var sketches []*sketch
		for i, a := range one.list {
			x := newSketch(s, a, fmt.Sprintf("%s/oneOf/%d", path, i))
			for j, y := range sketches {
				if s.at(path+"/oneOf", 0); !areApart(s, x, y) {
					s.fail(path+"/oneOf",
						"schemas %d and %d may fit the same value: use anyOf, or give them different types, or a "+
							"required property of different constants", j, i)
				}
			}
			sketches = append(sketches, x)
		}
		v = dropKeyword(v, "oneOf")
		v.names, v.fields["anyOf"] = append(v.names, "anyOf"), one
	}
	if ref := v.fields["$ref"]; ref != nil && says(dropKeyword(v, "$ref")) {
		target, at := s.target(ref, path)
		if target.kind != '{' {
			s.fail(path+"/$ref", "%s is no schema that others can be beside", at)
		}
		s.checkKnown(target, at)
		v = mergeSchemas(s, dropKeyword(v, "$ref"), target, path, nil)
	}
	all := v.fields["allOf"]
	if all == nil {
		return v
	}
	if all.kind != '[' || len(all.list) == 0 {
		s.fail(path+"/allOf", "want an array of schemas")
	}
	v = dropKeyword(v, "allOf")
	own := owned{v: true}
	for i, x := range all.list {
		at := fmt.Sprintf("%s/allOf/%d", path, i)
		if x.kind != '{' {
			s.fail(at, "it is of type %s, want an object", x.kindName())
		}
		s.checkKnown(x, at)
		v = mergeSchemas(s, v, x, at, own)
	}
	return v
}

// owned holds schemas made by a merge of several and seen by nobody else. They are changed in place, so that a merge of
// n takes n steps.
type owned map[*value]bool

// ownCopy returns v if owned, or an owned copy.
func ownCopy(s *schema, v *value, own owned) *value {
	if own[v] {
		return v
	}
	s.b.t.burn(len(v.names) + len(v.list))
	v = &value{kind: v.kind, names: slices.Clone(v.names), list: slices.Clone(v.list), fields: maps.Clone(v.fields)}
	if own != nil {
		own[v] = true
	}
	return v
}

// mergeSchemas returns a schema of the values that fit both schemas.
func mergeSchemas(s *schema, a, b *value, path string, own owned) *value {
	s.at(path, 0)
	if s.count++; s.count > maxSchemas {
		s.fail(path, "more than %d schemas", maxSchemas)
	}
	switch {
	case a.kind == 't' || b.kind == 'f':
		return b
	case b.kind == 't' || a.kind == 'f':
		return a
	case a.kind != '{' || b.kind != '{':
		s.fail(path, "it is no schema")
	}
	a, b = simplifyRef(s, a, path), simplifyRef(s, b, path)
	mergeProperties(s, a, b, path)
	out := ownCopy(s, a, own)
	for _, name := range b.names {
		x, y := out.fields[name], b.fields[name]
		switch {
		case x == nil:
			out.names, out.fields[name] = append(out.names, name), y
		case annotates(name):
		default:
			out.fields[name] = mergeKeyword(s, name, x, y, path, own)
		}
	}
	return out
}

// simplifyRef returns a reference or an allOf in plain keywords, ready for merging, and other schemas unchanged.
func simplifyRef(s *schema, v *value, path string) *value {
	for n := 0; v.fields["$ref"] != nil && n < maxNested; n++ {
		target, at := s.target(v.fields["$ref"], path)
		if target.kind != '{' {
			s.fail(path, "%s is no schema that others can be beside", at)
		}
		s.checkKnown(target, at)
		if rest := dropKeyword(v, "$ref"); says(rest) {
			return mergeSchemas(s, rest, target, path, nil)
		}
		v = target
	}
	if v.fields["allOf"] != nil || v.fields["oneOf"] != nil {
		return simplify(s, v, path)
	}
	return v
}

// mergeProperties fails if a schema has properties that the other closes out.
func mergeProperties(s *schema, a, b *value, path string) {
	for _, p := range [][2]*value{{a, b}, {b, a}} {
		x := p[0].fields["additionalProperties"]
		y := p[1].fields["properties"]
		if x == nil || x.kind == 't' || y == nil {
			continue
		}
		own := p[0].fields["properties"]
		s.b.t.burn(len(y.names))
		for _, name := range y.names {
			if own == nil || own.fields[name] == nil {
				s.fail(path, "additionalProperties of one schema closes out the property %q of another", name)
			}
		}
	}
}

// mergeKeyword returns a keyword's value if both schemas have the keyword.
func mergeKeyword(s *schema, name string, x, y *value, path string, own owned) *value {
	if x == y {
		return x
	}
	switch name {
	case "required":
		if x.kind == '[' && y.kind == '[' {
			return unite(s, x, y, own)
		}
	case "properties":
		if x.kind == '{' && y.kind == '{' {
			out := ownCopy(s, x, own)
			s.b.t.burn(len(y.names))
			for _, p := range y.names {
				if out.fields[p] == nil {
					out.names, out.fields[p] = append(out.names, p), y.fields[p]
				} else {
					out.fields[p] = mergeSchemas(s, out.fields[p], y.fields[p], path+"/properties/"+p, own)
				}
			}
			return out
		}
	case "items", "additionalProperties":
		if x.kind != '[' && y.kind != '[' {
			return mergeSchemas(s, x, y, path+"/"+name, own)
		}
	case "type":
		if out := commonTypes(s, x, y, path); len(out.list) > 0 {
			return out
		}
	case "enum":
		if out := commonValues(s, x, y); len(out.list) > 0 {
			return out
		}
	case "minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum", "maxLength", "maxItems",
		"maxProperties", "maximum", "exclusiveMaximum":
		a, errA := ratOf(x.text)
		b, errB := ratOf(y.text)
		if x.kind == 0 && y.kind == 0 && errA == nil && errB == nil {
			if (a.Cmp(b) < 0) == (name[:3] == "min" || name == "exclusiveMinimum") {
				return y
			}
			return x
		}
	}
	if s.isEqual(x, y) {
		return x
	}
	s.fail(path, "%q of two schemas cannot be combined", name)
	return nil
}

// unite returns an array of the values of both arrays, each once. An owned array knows its values by their canonical
// texts.
func unite(s *schema, x, y *value, own owned) *value {
	out := ownCopy(s, x, own)
	if out.fields == nil {
		out.fields = map[string]*value{}
		for _, z := range out.list {
			out.fields[z.canonical(&s.b.t.work)] = z
		}
	}
	s.b.t.burn(len(y.list))
	for _, z := range y.list {
		if name := z.canonical(&s.b.t.work); out.fields[name] == nil {
			out.list, out.fields[name] = append(out.list, z), z
		}
	}
	return out
}

// commonTypes returns the types that fit both type keywords.
func commonTypes(s *schema, x, y *value, path string) *value {
	s.b.t.burn(len(x.list) + len(y.list))
	out := &value{kind: '['}
	others := s.typeNames(y, path)
	for _, name := range s.typeNames(x, path) {
		switch {
		case slices.Contains(others, name):
		case name == "number" && slices.Contains(others, "integer"):
			name = "integer"
		case name != "integer" || !slices.Contains(others, "number"):
			continue
		}
		out.list = append(out.list, &value{kind: '"', text: name})
	}
	return out
}

// commonValues returns the values of two enums.
func commonValues(s *schema, x, y *value) *value {
	out, in := &value{kind: '['}, canonicals(s, y.list)
	for _, z := range x.list {
		if in[z.canonical(&s.b.t.work)] {
			out.list = append(out.list, z)
		}
	}
	if len(out.list) == len(x.list) {
		return x
	}
	return out
}

// canonicals returns the canonical texts of values.
func canonicals(s *schema, list []*value) map[string]bool {
	s.b.t.burn(4 * len(list))
	all := make(map[string]bool, len(list))
	for _, x := range list {
		all[x.canonical(&s.b.t.work)] = true
	}
	return all
}

// sketch holds the facts that show that no value fits two schemas.
type sketch struct {
	never     bool // no value fits
	object    bool // not a boolean schema
	kinds     []string
	constants map[string]bool            // canonical texts; nil if unrestricted
	names     []string                   // required properties with constants
	required  map[string]map[string]bool // constants of required properties
}

// newSketch reads a schema's types and constants.
func newSketch(s *schema, v *value, path string) *sketch {
	if v.kind != '{' {
		return &sketch{never: v.kind == 'f'}
	}
	v = simplifyRef(s, v, path)
	x := &sketch{object: true, kinds: kindsOf(s, v, path), required: map[string]map[string]bool{}}
	x.constants = constantsOf(s, v)
	if p := v.fields["properties"]; p != nil {
		names, _ := requiredNames(s, v, path)
		for _, name := range names {
			if y := p.fields[name]; y != nil {
				if of := constantsOf(s, y); of != nil {
					x.names, x.required[name] = append(x.names, name), of
				}
			}
		}
	}
	return x
}

func constantsOf(s *schema, v *value) map[string]bool {
	if list := constants(v); list != nil {
		return canonicals(s, list)
	}
	return nil
}

// areApart reports whether types and constants show that no value fits both schemas.
func areApart(s *schema, a, b *sketch) bool {
	if !a.object || !b.object {
		return a.never || b.never
	}
	if a.kinds != nil && b.kinds != nil && !slices.ContainsFunc(a.kinds, func(k string) bool {
		return slices.Contains(b.kinds, k)
	}) {
		return true
	}
	if a.constants != nil && b.constants != nil && !haveCommon(s, a.constants, b.constants) {
		return true
	}
	for _, name := range a.names {
		if s.b.t.burn(1); b.required[name] != nil && !haveCommon(s, a.required[name], b.required[name]) {
			return true
		}
	}
	return false
}

// kindsOf returns the types of a schema's values, nil if unrestricted.
func kindsOf(s *schema, v *value, path string) (all []string) {
	for _, name := range s.types(v, path) {
		if name == "integer" {
			name = "number"
		}
		all = append(all, name)
	}
	for _, c := range constants(v) {
		if name := c.kindName(); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// constants returns the values of enum or const.
func constants(v *value) []*value {
	if c := v.fields["const"]; c != nil {
		return []*value{c}
	}
	if e := v.fields["enum"]; e != nil {
		return e.list
	}
	return nil
}

// haveCommon reports whether two sets have a text in common.
func haveCommon(s *schema, a, b map[string]bool) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	s.b.t.burn(len(a))
	for text := range a {
		if b[text] {
			return true
		}
	}
	return false
}
