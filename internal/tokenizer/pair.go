package tokenizer

import (
	"errors"
	"fmt"
)

// A part is one of what a pair of texts becomes: a special token, or one of the texts.
type part struct {
	id   int // -1 of a text
	text int // 0 or 1, of the pair
	kind uint8
}

// text is a text's part.
func textPart(text int, kind uint8) part { return part{id: -1, text: text, kind: kind} }

// Pair returns the ids of two texts as the model reads them together, with its special tokens, and the kind of each,
// which a BERT has an embedding for (token_type_ids).
func (t *Tokenizer) Pair(a, b []int) (ids []int, kinds []uint8) {
	parts := t.pair
	if parts == nil {
		parts = []part{textPart(0, 0), textPart(1, 1)}
	}
	for _, p := range parts {
		list := [][]int{a, b}[p.text]
		if p.id >= 0 {
			list = []int{p.id}
		}
		for _, id := range list {
			ids, kinds = append(ids, id), append(kinds, p.kind)
		}
	}
	return ids, kinds
}

// PairExtra returns how many special tokens Pair adds.
func (t *Tokenizer) PairExtra() int {
	ids, _ := t.Pair(nil, nil)
	return len(ids)
}

// pairTemplate sets what TemplateProcessing makes of a pair.
func (s *jsonStep) pairTemplate(t *Tokenizer) error {
	if len(s.Pair) == 0 {
		return nil
	}
	t.pair = []part{}
	var seen [2]int
	for _, p := range s.Pair {
		if p.Sequence != nil {
			i := 0
			if p.Sequence.ID == "B" {
				i = 1
			}
			seen[i]++
			t.pair = append(t.pair, textPart(i, p.Sequence.Kind))
			continue
		}
		ids, err := s.special(t, p)
		if err != nil {
			return err
		}
		for _, id := range ids {
			t.pair = append(t.pair, part{id: id, kind: p.SpecialToken.Kind})
		}
	}
	if seen != [2]int{1, 1} {
		return errors.New("pair: a template that does not have the sequences A and B once each")
	}
	return nil
}

// special returns the ids of a template's special token.
func (s *jsonStep) special(t *Tokenizer, p jsonTemplatePart) ([]int, error) {
	if p.SpecialToken == nil {
		return nil, errors.New("a template with neither token nor sequence")
	}
	name := p.SpecialToken.ID
	tokens, ok := s.SpecialTokens[name]
	if !ok {
		return nil, fmt.Errorf("the template names %q, which special_tokens lacks", name)
	}
	var ids []int
	for _, id := range tokens.IDs {
		var checked int
		if err := t.setID(&checked, id, fmt.Sprintf("%q", name)); err != nil {
			return nil, err
		}
		ids = append(ids, checked)
	}
	return ids, nil
}

// classified sets what BertProcessing and RobertaProcessing put around a text and a pair: [CLS] A [SEP] B [SEP], and
// with two separators between the texts of RoBERTa, whose texts are all of one kind.
func (s *jsonStep) classified(t *Tokenizer) error {
	var sep, cls int
	for _, k := range []struct {
		to   *int
		name string
		from *jsonNamed
	}{{&sep, "sep", s.Sep}, {&cls, "cls", s.Cls}} {
		if k.from == nil {
			return fmt.Errorf("type %s without %s", s.Type, k.name)
		}
		if err := t.setID(k.to, k.from.id, k.name); err != nil {
			return err
		}
	}
	t.special.prefix, t.special.suffix = append(t.special.prefix, cls), append(t.special.suffix, sep)
	setPair(t, cls, sep, s.Type == "RobertaProcessing")
	if t.special.bos < 0 {
		t.special.bos = cls
	}
	return nil
}

// setPair sets the usual pair. Ids below 0 are left out.
func setPair(t *Tokenizer, cls, sep int, two bool) {
	second := uint8(1)
	parts := []part{{id: cls}, textPart(0, 0), {id: sep}}
	if two {
		parts, second = append(parts, part{id: sep}), 0
	}
	t.pair = []part{}
	for _, p := range append(parts, textPart(1, second), part{id: sep, kind: second}) {
		if p.id >= 0 || p == textPart(0, 0) || p == textPart(1, second) {
			t.pair = append(t.pair, p)
		}
	}
}
