package parity

import (
	"cmp"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
)

// example is one engine to be run.
type example struct {
	model     *Model
	condition Condition
	faults    []mistake.Fault
	class     round.Class
	said      bool // the dump tells its class
	taps      Taps
	own       own
	seed      uint64
	longest   int // tokens of a prompt, 0 is no limit
}

// name is the faults, or the kind of right engine.
func (c *example) name() string {
	var names []string
	for _, f := range c.faults {
		names = append(names, f.String())
	}
	if len(names) > 0 {
		return strings.Join(names, "; ")
	}
	name := cmp.Or(c.class.String(), "exact")
	if c.own != (own{}) {
		name = c.own.String()
	}
	if c.said {
		name += " declared"
	}
	if c.condition == Right {
		name += " through " + string(c.taps)
	}
	return name
}

// plan makes the cases of all models, in a random order, and takes one in o.Every, and no more than o.Most of a
// condition.
func plan(o *Options) (cases []*example) {
	for _, m := range o.Models {
		for _, condition := range Conditions {
			if len(o.Conditions) > 0 && !slices.Contains(o.Conditions, condition) {
				continue
			}
			list := slices.DeleteFunc(m.examples(condition, o), func(c *example) bool {
				return !strings.Contains(c.name(), o.Match)
			})
			r := random(o.Seed, m.Name+string(condition))
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			n := max(o.Every, 1)
			list = list[:(len(list)+n-1)/n]
			if o.Most > 0 {
				list = list[:min(len(list), o.Most)]
			}
			cases = append(cases, list...)
		}
	}
	for _, c := range cases {
		c.seed, c.longest = o.Seed, o.Longest
	}
	r := random(o.Seed, "order")
	r.Shuffle(len(cases), func(i, j int) { cases[i], cases[j] = cases[j], cases[i] })
	return cases
}

func (m *Model) examples(condition Condition, o *Options) (list []*example) {
	taps := map[Condition]Taps{Coarse: Outputs, Logits: NoTaps, Within: Modules}[condition]
	add := func(faults ...mistake.Fault) {
		list = append(list, &example{model: m, condition: condition, faults: faults, class: o.Class,
			taps: cmp.Or(taps, AllTaps)})
	}
	wrong, same := m.applicable()
	switch condition {
	case Single:
		if m.Eye == nil {
			wrong = append(wrong, inputs()...)
		}
		for _, f := range wrong {
			add(f)
		}
	case Pictures:
		for _, f := range m.pictured() {
			add(f)
		}
	case Coarse, Logits:
		for _, f := range wrong {
			add(f)
		}
	case Multi:
		r := random(o.Seed, m.Name+"sets")
		for range o.Sets {
			add(m.draw(wrong, 2+r.IntN(4), r)...)
		}
	case Within:
		for _, set := range m.within(wrong, o) {
			add(set...)
		}
	case Probe:
		for _, f := range m.probes() {
			add(f)
		}
	case Clean:
		for _, c := range m.classes() {
			for _, said := range []bool{false, true} {
				list = append(list, &example{model: m, condition: condition, class: c, said: said, taps: AllTaps})
			}
		}
		for _, f := range same {
			add(f)
		}
	case Right:
		list = m.right()
	}
	return list
}

// applicable are the faults that the model can have, and the equal functions.
func (m *Model) applicable() (wrong, same []mistake.Fault) {
	for _, f := range mistake.Applicable(m.Graph) {
		if strings.HasPrefix(f.ID, "same_") {
			same = append(same, f)
		} else {
			wrong = append(wrong, f)
		}
	}
	return wrong, same
}

// inputs are the faults of the input. Which of them a tokenizer can have shows when they run.
func inputs() []mistake.Fault {
	return []mistake.Fault{{ID: "input_bos"}, {ID: "input_bos", Value: "double"}, {ID: "input_template"},
		{ID: "input_ids"}, {ID: "input_ids", Value: "lost"}}
}

// probes break all layers' outputs, one layer's, and other taps.
func (m *Model) probes() (list []mistake.Fault) {
	for _, kind := range []mistake.Fault{{ID: "probe_dtype"}, {ID: "probe_prefix"}, {ID: "probe_stale"},
		{ID: "probe_duplicate"},
		{ID: "probe_duplicate", Value: "last"}, {ID: "probe_rows"}, {ID: "probe_rows", Value: "reverse"}} {
		for _, at := range []mistake.Fault{{}, {Layers: "1"}, {Where: "attn_v"}, {Where: "ffn_down", Layers: "0"},
			{Where: "attn_norm"}, {Where: "attn_q+attn_k", Layers: "1"}} {
			kind.Where, kind.Layers = at.Where, at.Layers
			list = append(list, kind)
		}
	}
	return list
}

// classes are the roundings that an engine of the model may have.
func (m *Model) classes() []round.Class {
	list := []round.Class{{}, {Activations: round.F32}, {Activations: round.F32, Lanes: 16}, {Activations: round.F16},
		{Activations: round.BF16},
		{Activations: round.Q8_32}, {Activations: round.F32, KV: round.F16}, {Activations: round.F32, KV: round.BF16}}
	quantized, gelu := m.has()
	if quantized { // whose rows are all that these round
		list = append(list, round.Class{Activations: round.I16_32},
			round.Class{Activations: round.I16_32, KV: round.F16}, round.Class{Activations: round.Q8, KV: round.F16})
	}
	if gelu {
		list = append(list, round.Class{Activations: round.F32, GELU: round.F16Table},
			round.Class{Activations: round.Q8_32, KV: round.F16, GELU: round.F16Table})
	}
	return list
}
