package grammar

import (
	"fmt"
	"slices"
)

// plain is a schema in the words of a few: allOf, and a reference beside other keywords, are merged; oneOf is
// anyOf where no value fits two of its schemas.
func (s *schema) plain(v *value, path string) *value {
	if one := v.fields["oneOf"]; one != nil {
		if v.fields["anyOf"] != nil {
			s.fail(path, "oneOf beside anyOf is not supported")
		}
		if one.kind != '[' || len(one.list) == 0 {
			s.fail(path+"/oneOf", "want an array of schemas")
		}
		for i, a := range one.list {
			for j, b := range one.list[:i] {
				if !s.apart(a, b, path) {
					s.fail(path+"/oneOf", "schemas %d and %d may fit the same value: use anyOf, or give them different types, or a required property of different constants", j, i)
				}
			}
			if i > 256 {
				s.fail(path+"/oneOf", "more than 256 schemas")
			}
		}
		v = without(v, "oneOf")
		v.names, v.fields["anyOf"] = append(v.names, "anyOf"), one
	}
	if ref := v.fields["$ref"]; ref != nil && says(without(v, "$ref")) {
		target, at := s.target(ref, path)
		if target.kind != '{' {
			s.fail(path+"/$ref", "%s is no schema that others can be beside", at)
		}
		s.known(target, at)
		v = s.merged(without(v, "$ref"), target, path)
	}
	all := v.fields["allOf"]
	if all == nil {
		return v
	}
	if all.kind != '[' || len(all.list) == 0 {
		s.fail(path+"/allOf", "want an array of schemas")
	}
	v = without(v, "allOf")
	for i, x := range all.list {
		at := fmt.Sprintf("%s/allOf/%d", path, i)
		if x.kind != '{' {
			s.fail(at, "it is of type %s, want an object", x.kindName())
		}
		s.known(x, at)
		v = s.merged(v, x, at)
	}
	return v
}

// merged is a schema of values that fit two.
func (s *schema) merged(a, b *value, path string) *value {
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
	a, b = s.plainRef(a, path), s.plainRef(b, path)
	s.closedBoth(a, b, path)
	out := without(a, "")
	for _, name := range b.names {
		x, y := a.fields[name], b.fields[name]
		switch {
		case x == nil:
			out.names, out.fields[name] = append(out.names, name), y
		case equal(x, y) || slices.Contains(annotations, name):
		default:
			out.fields[name] = s.both(name, x, y, path)
		}
	}
	return out
}

// plainRef is plain where a schema is a reference or an allOf, so that it can be merged.
func (s *schema) plainRef(v *value, path string) *value {
	for n := 0; v.fields["$ref"] != nil && n < maxNested; n++ {
		target, at := s.target(v.fields["$ref"], path)
		if target.kind != '{' {
			s.fail(path, "%s is no schema that others can be beside", at)
		}
		s.known(target, at)
		if rest := without(v, "$ref"); says(rest) {
			return s.merged(rest, target, path)
		}
		v = target
	}
	if v.fields["allOf"] != nil || v.fields["oneOf"] != nil {
		return s.plain(v, path)
	}
	return v
}

// closedBoth fails where one schema has properties that the other closes out.
func (s *schema) closedBoth(a, b *value, path string) {
	for _, p := range [][2]*value{{a, b}, {b, a}} {
		x := p[0].fields["additionalProperties"]
		y := p[1].fields["properties"]
		if x == nil || x.kind == 't' || y == nil {
			continue
		}
		own := p[0].fields["properties"]
		for _, name := range y.names {
			if own == nil || own.fields[name] == nil {
				s.fail(path, "additionalProperties of one schema closes out the property %q of another", name)
			}
		}
	}
}

// both is a keyword's value where two schemas have it.
func (s *schema) both(name string, x, y *value, path string) *value {
	switch name {
	case "required":
		out := &value{kind: '[', list: slices.Clone(x.list)}
		for _, z := range y.list {
			if !slices.ContainsFunc(out.list, func(w *value) bool { return equal(w, z) }) {
				out.list = append(out.list, z)
			}
		}
		return out
	case "properties":
		if x.kind == '{' && y.kind == '{' {
			out := without(x, "")
			for _, p := range y.names {
				if out.fields[p] == nil {
					out.names, out.fields[p] = append(out.names, p), y.fields[p]
				} else {
					out.fields[p] = s.merged(x.fields[p], y.fields[p], path+"/properties/"+p)
				}
			}
			return out
		}
	case "items":
		return s.merged(x, y, path+"/items")
	case "additionalProperties":
		return s.merged(x, y, path+"/additionalProperties")
	case "type":
		list := func(v *value) []*value {
			if v.kind == '[' {
				return v.list
			}
			return []*value{v}
		}
		out := &value{kind: '['}
		for _, z := range list(x) {
			for _, w := range list(y) {
				if z.text == w.text || z.text == "number" && w.text == "integer" {
					out.list = append(out.list, w)
				} else if z.text == "integer" && w.text == "number" {
					out.list = append(out.list, z)
				}
			}
		}
		if len(out.list) > 0 {
			return out
		}
	case "minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum", "maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum":
		if x.kind == 0 && y.kind == 0 {
			if less := lower(x, y); less == (name[:3] == "min" || name == "exclusiveMinimum") {
				return y
			}
			return x
		}
	}
	s.fail(path, "%q of two schemas cannot be combined", name)
	return nil
}

// lower reports whether number x is below y.
func lower(x, y *value) bool {
	a, errA := ratOf(x.text)
	b, errB := ratOf(y.text)
	return errA == nil && errB == nil && a.Cmp(b) < 0
}

// apart reports whether no value fits both schemas, as far as their types and constants say it.
func (s *schema) apart(a, b *value, path string) bool {
	if a.kind != '{' || b.kind != '{' {
		return a.kind == 'f' || b.kind == 'f'
	}
	a, b = s.plainRef(a, path), s.plainRef(b, path)
	if x, y := s.kinds(a, path), s.kinds(b, path); x != nil && y != nil && !slices.ContainsFunc(x, func(k string) bool { return slices.Contains(y, k) }) {
		return true
	}
	if x, y := constants(a), constants(b); x != nil && y != nil && !common(x, y) {
		return true
	}
	if a.fields["properties"] == nil || b.fields["properties"] == nil {
		return false
	}
	inB := s.required(b, path)
	for _, name := range s.required(a, path) {
		x, y := a.fields["properties"].fields[name], b.fields["properties"].fields[name]
		if x == nil || y == nil || !slices.Contains(inB, name) {
			continue
		}
		if x, y := constants(x), constants(y); x != nil && y != nil && !common(x, y) {
			return true
		}
	}
	return false
}

// kinds are the types of a schema's values, nil if it does not say.
func (s *schema) kinds(v *value, path string) (all []string) {
	for _, name := range s.types(v, path) {
		if name == "integer" {
			name = "number"
		}
		all = append(all, name)
	}
	for _, c := range constants(v) {
		all = append(all, c.kindName())
	}
	return all
}

// constants are the values of enum or const.
func constants(v *value) []*value {
	if c := v.fields["const"]; c != nil {
		return []*value{c}
	}
	if e := v.fields["enum"]; e != nil {
		return e.list
	}
	return nil
}

func common(a, b []*value) bool {
	return slices.ContainsFunc(a, func(x *value) bool {
		return slices.ContainsFunc(b, func(y *value) bool { return same(x, y) })
	})
}

// same reports whether two values are one in JSON: 1 and 1.0 are.
func same(a, b *value) bool {
	if a.kind == 0 && b.kind == 0 {
		x, errX := ratOf(a.text)
		y, errY := ratOf(b.text)
		return errX != nil || errY != nil || x.Cmp(y) == 0
	}
	return equal(a, b)
}
