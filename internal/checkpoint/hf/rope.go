package hf

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/karat-run/karat/internal/checkpoint/settings"
	"github.com/karat-run/karat/internal/family"
)

// rope makes rotary settings canonical. The spellings are rope_theta with rope_scaling (and an older key for sliding
// layers), rope_parameters for all layers, and rope_parameters by kind of layer.
func (r *reader) rope() {
	s, out := r.Values, family.Settings{}
	if r.Family.Lacks("rope_parameters") {
		return
	}
	base, part := s.Take("rope_theta"), s.Take("partial_rotary_factor")
	if !r.ropeForm(out, base) {
		return
	}
	s["rope_parameters"] = out
	for _, key := range r.Family.Rope.With {
		if p := r.ropeOf(out, family.FullAttention); p[key] != nil {
			s.Fill(key, p.Take(key))
			r.Spelling[key] = r.Key("rope_parameters." + family.FullAttention + "." + key)
		}
	}
	const original = "original_max_position_embeddings"
	for _, kind := range settings.Kinds {
		p := r.ropeOf(out, kind)
		if p == nil {
			continue
		}
		if local := r.Family.Rope.Local; local != "" && kind == family.SlidingAttention {
			r.ropeFill(p, kind, "rope_theta", local, s.Take(local))
		} else {
			if kind == family.SlidingAttention && r.Family.Rope.OneBase && base == nil {
				base = r.ropeOf(out, family.FullAttention)["rope_theta"]
			}
			r.ropeFill(p, kind, "rope_theta", "rope_theta", base)
		}
		r.ropeFill(p, kind, "partial_rotary_factor", "partial_rotary_factor", part)
		typ := p["rope_type"]
		if p[original] != nil || typ == "yarn" || typ == "longrope" || typ == "llama3" {
			r.ropeFill(p, kind, original, original, s[original])
		}
		if !r.Family.Rope.ByKind { // else the library has no base
			for key, v := range r.ropeDefault(kind) {
				p.Fill(key, v)
			}
		}
	}
	if v, ok := out[family.SlidingAttention]; ok && r.Family.Rope.Sliding == nil &&
		!reflect.DeepEqual(v, out[family.FullAttention]) {
		r.errorf("rope_parameters", "differs between kinds of layers, which architecture %s does not support", r.Arch)
	}
}

// ropeForm reads the file's spelling into out. The result is false after an error.
func (r *reader) ropeForm(out family.Settings, base any) bool {
	scaling, params := r.object("rope_scaling"), r.object("rope_parameters")
	switch nested := params[family.FullAttention] != nil || params[family.SlidingAttention] != nil; {
	case len(scaling) > 0 && len(params) > 0 && !repeats(params, scaling):
		r.errorf("rope_scaling", "says something else than rope_parameters")
		return false
	case nested:
		r.nestedRope(out, params)
	case r.Family.Rope.ByKind && base == nil && len(scaling)+len(params) == 0: // the library's default
		out[family.FullAttention], out[family.SlidingAttention] = maps.Clone(r.ropeDefault(family.FullAttention)),
			maps.Clone(r.ropeDefault(family.SlidingAttention))
	case r.Family.Rope.ByKind:
		r.errorf("rope_parameters", "is %s, expected an object with %s and %s", family.Show(params),
			family.FullAttention, family.SlidingAttention)
		return false
	case len(params) > 0:
		out[family.FullAttention] = r.ropeKind(family.FullAttention, "rope_parameters.", params)
	default:
		out[family.FullAttention] = r.ropeKind(family.FullAttention, "rope_scaling.", scaling)
	}
	return true
}

// ropeDefault returns the library's assumptions for a kind of layer.
func (r *reader) ropeDefault(kind string) family.Settings {
	if kind == family.SlidingAttention && r.Family.Rope.Sliding != nil {
		return r.Family.Rope.Sliding
	}
	return r.Family.Rope.Full
}

// repeats reports whether params include all of scaling.
func repeats(params, scaling map[string]any) bool {
	for k, v := range scaling {
		if k == "type" && params[k] == nil {
			k = "rope_type"
		}
		if v != nil && !reflect.DeepEqual(params[k], v) {
			return false
		}
	}
	return true
}

// nestedRope reads rope_parameters by kind of layer.
func (r *reader) nestedRope(out family.Settings, params map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(params)) {
		v := params[k]
		m, ok := family.Object(v)
		switch {
		case v == nil || k == "rope_type" && v == "default":
		case k != family.FullAttention && k != family.SlidingAttention:
			r.Ignored = append(r.Ignored,
				fmt.Sprintf("rope setting %s = %s beside those of kinds of layers is not read", k, family.Show(v)))
		case !ok:
			r.errorf("rope_parameters."+k, "is %s, expected an object", family.Show(v))
		default:
			out[k] = r.ropeKind(k, "rope_parameters."+k+".", m)
		}
	}
}

// ropeKind copies settings, except nulls, and remembers their places. Sections of pictures' positions are left out: the
// parts of a text's positions are equal.
func (r *reader) ropeKind(kind, from string, params map[string]any) family.Settings {
	p := family.Settings{}
	for k, v := range params {
		if k == "mrope_section" || k == "mrope_interleaved" {
			continue
		}
		own := k
		if k == "type" { // an older name
			if k = "rope_type"; params[k] != nil {
				if params[k] != v && v != "mrope" && v != "su" { // older names
					r.Ignored = append(r.Ignored, fmt.Sprintf("%stype = %s is not read: rope_type is %s", from,
						family.Show(v), family.Show(params[k])))
				}
				continue
			}
		}
		switch {
		case v == "mrope":
			v = "default"
		case v == "" && k == "rope_type":
			r.errorf(from+own, "is \"\", expected default or the name of a scaling")
		}
		if n, ok := v.(float64); ok && k == "original_max_position_embeddings" && n != float64(int(n)) {
			r.errorf(from+own, "is %s, expected a whole number", family.Show(v))
		}
		p.Fill(k, v)
		r.Spelling["rope_parameters."+kind+"."+k] = from + own
	}
	for _, k := range []string{"factor", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor",
		"attention_factor"} {
		if p[k] != nil && p["rope_type"] == nil {
			r.errorf(from+"rope_type", "is missing, but %s is %s", k, family.Show(p[k]))
			break
		}
	}
	if len(p) > 0 && r.ropeDefault(kind)["rope_type"] != nil { // assumed where the file says nothing at all
		p.Fill("rope_type", "default")
	}
	return p
}

// ropeOf returns the settings, perhaps empty, of a kind of layer; nil where the family rotates all kinds alike.
func (r *reader) ropeOf(out family.Settings, kind string) family.Settings {
	p, ok := out[kind].(family.Settings)
	switch {
	case ok:
	case r.Family.Rope.ByKind:
		r.errorf("rope_parameters."+kind, "is missing")
	case r.Family.Rope.Sliding != nil, kind == family.FullAttention:
		p = family.Settings{}
		out[kind] = p
	}
	return p
}

// ropeFill sets an absent setting from the file's key own. A setting that is present must agree with the key.
func (r *reader) ropeFill(p family.Settings, kind, key, own string, v any) {
	switch path := "rope_parameters." + kind + "." + key; {
	case v == nil:
	case p[key] == nil:
		p[key], r.Spelling[path] = v, own
	case !reflect.DeepEqual(p[key], v):
		r.errorf(own, "is %s, but %s is %s", family.Show(v), r.Key(path), family.Show(p[key]))
	}
}
