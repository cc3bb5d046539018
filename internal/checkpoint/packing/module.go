package packing

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// kind is the role of a module's part.
type kind uint8

const (
	codesPart     kind = iota + 1 // the weight, or its codes
	ofCodes                       // tells how codes are read
	ofActivations                 // would round activations
	ofCache                       // would round keys and values
)

// kinds has the endings of parts' names.
var kinds = map[string]kind{
	"weight": codesPart, "weight_packed": codesPart, "qweight": codesPart,

	"weight_scale": ofCodes, "weight_scale_inv": ofCodes, "weight_scale_2": ofCodes, "weight_global_scale": ofCodes,
	"weight_zero_point": ofCodes, "weight_g_idx": ofCodes, "weight_shape": ofCodes,
	"scales": ofCodes, "qzeros": ofCodes, "g_idx": ofCodes, "biases": ofCodes,
	"pre_quant_scale": ofCodes,

	"input_scale": ofActivations, "input_zero_point": ofActivations, "input_global_scale": ofActivations,
	"activation_scale": ofActivations, "input_scale_ub": ofActivations,

	"k_scale": ofCache, "v_scale": ofCache, "q_scale": ofCache, "prob_scale": ofCache, "output_scale": ofCache,
}

// split cuts the name of a part into its module and its ending; for other tensors the ending is "".
func split(name string) (module, ending string) {
	if i := strings.LastIndexByte(name, '.'); i > 0 && kinds[name[i+1:]] > 0 {
		return name[:i], name[i+1:]
	}
	return name, ""
}

// bare has the endings of scales beside a tensor of codes outside modules, as of fused experts: FP8Experts and
// FbgemmFp8Llama4TextExperts in transformers, quantizer_attr_names in ModelOpt.
var bare = map[string]string{"_scale": "weight_scale", "_weight_scale": "weight_scale",
	"_scale_inv": "weight_scale_inv", "_weight_scale_inv": "weight_scale_inv", "_weight_scale_2": "weight_scale_2",
	"_weight_global_scale": "weight_global_scale", "_input_scale": "input_scale",
	"_activation_scale": "activation_scale", "_input_global_scale": "input_global_scale"}

// splitter returns split for the tensors of a folder. A tensor of codes outside modules, beside scales with endings of
// bare, is a module of its own.
func splitter(all []tensor.Tensor) func(name string) (module, ending string) {
	codes, scales := map[string]bool{}, map[string]string{}
	for _, t := range all {
		_, ending := split(t.Name)
		codes[t.Name] = ending == "" && !t.DType.Float()
	}
	for _, t := range all {
		for ending := range bare {
			of, ok := strings.CutSuffix(t.Name, ending)
			if before := scales[t.Name]; ok && codes[of] && (before == "" || len(ending) < len(before)) {
				scales[t.Name], scales[of] = ending, "" // of two tensors of codes, the one with the longer name
			}
		}
	}
	return func(name string) (module, ending string) {
		if ending, ok := scales[name]; !ok {
			return split(name)
		} else if ending != "" {
			return strings.TrimSuffix(name, ending), bare[ending]
		}
		return name, "weight"
	}
}

// module holds the parts of a weight by their endings.
type module struct {
	name   string
	parts  map[string]tensor.Tensor
	read   map[string]bool
	scales []Scales
	bare   bool // outside modules: the weight's name has no ending
	turned bool // matrices lie as [in, out]
	signed bool // scales may be negative: AutoRound's of whole numbers are (quant_tensor_sym in data_type/int.py)
	failed bool // its weight is an error
}

// part returns a part, and notes that the part was read.
func (m *module) part(ending string) (tensor.Tensor, bool) {
	t, ok := m.parts[ending]
	m.read[ending] = true
	return t, ok
}

// first returns the first part present, and its ending.
func (m *module) first(endings ...string) (t tensor.Tensor, ending string) {
	for _, ending := range endings {
		if t, ok := m.part(ending); ok {
			return t, ending
		}
	}
	return t, ""
}

// need returns a required part, in any of the shapes.
func (m *module) need(ending string, types []tensor.DType, shapes ...tensor.Shape) (tensor.Tensor, error) {
	t, ok := m.part(ending)
	if !ok {
		return t, fmt.Errorf("%s is missing", ending)
	}
	return t, wants(ending, t, types, shapes...)
}

// scale returns finite required scales.
func (m *module) scale(ending string, types []tensor.DType, shapes ...tensor.Shape) (tensor.Tensor, error) {
	t, err := m.need(ending, types, shapes...)
	if err == nil {
		err = checkFinite(ending, t)
	}
	m.scales = append(m.scales, Scales{t, m.signed})
	return t, err
}

// wants returns an error where t has none of the types or none of the shapes.
func wants(ending string, t tensor.Tensor, types []tensor.DType, shapes ...tensor.Shape) error {
	if !slices.Contains(types, t.DType) {
		return fmt.Errorf("%s has type %v, expected %s", ending, t.DType, join(types))
	}
	if !slices.ContainsFunc(shapes, func(s tensor.Shape) bool { return slices.Equal(s, t.Shape) }) {
		return fmt.Errorf("%s has shape %v, expected %s", ending, []int(t.Shape), join(shapes))
	}
	return nil
}

func join[T any](all []T) string {
	var words []string
	for _, v := range all {
		words = append(words, fmt.Sprint(v))
	}
	return strings.Join(words, " or ")
}

// packed reports whether m has a weight with codes.
func (m *module) packed() bool { return !m.plain() && m.codes() != "" }

// plain reports whether m has a weight of floats.
func (m *module) plain() bool { return m.parts["weight"].DType.Float() }

// codes returns the ending of the part with codes, "" for none.
func (m *module) codes() string {
	for _, ending := range []string{"weight", "weight_packed", "qweight"} {
		if _, ok := m.parts[ending]; ok {
			return ending
		}
	}
	return ""
}

// guess names the packing whose parts m has, and the parts.
func (m *module) guess() string {
	has := func(endings ...string) bool {
		return !slices.ContainsFunc(endings, func(e string) bool { _, ok := m.parts[e]; return !ok })
	}
	packing, q, scales := "none that is known", m.parts["qweight"].Shape, m.parts["scales"].Shape
	switch w := m.parts["weight"]; {
	case has("qweight", "scales") && len(q) == 2 && len(scales) == 2 && scales[1] == 8*q[1]:
		packing = "AWQ"
	case has("qweight", "scales"):
		packing = "GPTQ"
	case has("weight", "scales"):
		packing = "MLX"
	case has("weight_packed"):
		packing = "compressed-tensors"
	case has("weight_scale_2"):
		packing = "ModelOpt's NVFP4"
	case w.DType == tensor.F8_E4M3, w.DType == tensor.F8_E5M2:
		packing = "FP8"
	case w.DType == tensor.I8:
		packing = "compressed-tensors' int-quantized"
	case has("weight_scale"):
		packing = "ModelOpt"
	}
	return fmt.Sprintf("%s (its parts are %s)", packing, strings.Join(slices.Sorted(maps.Keys(m.parts)), ", "))
}

// other returns the error about a module whose parts are none of a packing's.
func (m *module) other(packing string) error {
	return fmt.Errorf("it has codes of another packing than %s: of %s", packing, m.guess())
}

// unread lists the endings of parts that no weight has read.
func (m *module) unread() (endings []string) {
	for _, ending := range slices.Sorted(maps.Keys(m.parts)) {
		switch k := kinds[ending]; {
		case m.failed:
		case k == ofCodes && !m.read[ending], k == ofActivations && !m.packed(), k == codesPart && ending != m.codes():
			endings = append(endings, ending)
		}
	}
	return endings
}

// owner describes the module of an unread part.
func (m *module) owner() string {
	ending := m.codes()
	if ending == "" {
		return fmt.Sprintf(": %s has no weight", m.name)
	}
	return fmt.Sprintf(": %s is %v %v", m.parts[ending].Name, m.parts[ending].DType, []int(m.parts[ending].Shape))
}

// splitShape takes the shape of a matrix, or of several, apart. No size is 0.
func splitShape(s tensor.Shape) (matrices, rows, columns int, err error) {
	if n := len(s); (n == 2 || n == 3) && slices.Min(s) > 0 {
		return s[:n-2].Size(), s[n-2], s[n-1], nil
	}
	return 0, 0, 0, fmt.Errorf("shape %v, expected a matrix", []int(s))
}

// reshape returns the shape of so many matrices, or of a single matrix.
func reshape(like tensor.Shape, rows, columns int) tensor.Shape {
	return append(slices.Clone(like[:len(like)-2]), rows, columns)
}

// upTo returns a/b, rounded up.
func upTo(a, b int) int { return a/b + min(a%b, 1) }

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

// Reorder returns a packed weight with its columns, outer times inner runs, as inner times outer runs. The codes are
// copied and nothing is decoded. Reorder reports false where runs divide bytes or groups, and for other tensors.
func Reorder(t tensor.Tensor, outer, inner int) (tensor.Tensor, bool) {
	x, ok := t.Source.(*matrix)
	if !ok || x.groups != nil || t.At != 0 {
		return t, false
	}
	run := x.columns / (outer * inner)
	place := func(i int) int { return i%outer*inner + i/outer } // of the run that comes i-th
	y, bytes := *x, run
	var in, out []byte
	switch c := x.codes.(type) {
	case *octets:
		in, out = c.data, make([]byte, len(c.data))
		y.codes = &octets{out, c.columns}
	case *codes:
		in, out, bytes = c.data, make([]byte, len(c.data)), run/2
		own := *c
		own.data, y.codes = out, &own
		ok = c.bits == 4 && run%8 == 0 && c.word == 1 && !c.across && c.order == nil
	default:
		ok = false
	}
	if !ok || x.columns%(outer*inner) != 0 || x.group < x.columns && run%x.group != 0 {
		return t, false
	}
	row := bytes * outer * inner
	for at := 0; at < x.rows*row; at += row {
		for i := range outer * inner {
			copy(out[at+i*bytes:at+(i+1)*bytes], in[at+place(i)*bytes:])
		}
	}
	moved := func(g grid) grid {
		if g == nil || x.group == x.columns {
			return g
		}
		per := run / x.group
		return func(row, group int) float32 { return g(row, place(group/per)*per+group%per) }
	}
	y.scale, y.zero, y.bias, y.plain = moved(x.scale), moved(x.zero), moved(x.bias), moved(x.plain)
	if y.coded = nil; x.coded != nil {
		y.code()
	}
	t.Source = &y
	return t, true
}
