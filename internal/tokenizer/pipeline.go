package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A jsonStep is any normalizer, pre-tokenizer, post-processor or decoder of tokenizer.json: the fields of all known
// kinds.
type jsonStep struct {
	Type string `json:"type"`

	Normalizers   []jsonStep `json:"normalizers"`   // Sequence
	PreTokenizers []jsonStep `json:"pretokenizers"` // Sequence
	Processors    []jsonStep `json:"processors"`    // Sequence
	Decoders      []jsonStep `json:"decoders"`      // Sequence

	Pattern struct { // Replace, Split
		String *string
		Regex  *string
	} `json:"pattern"`
	Content          string `json:"content"`              // Replace, Strip
	Prepend          string `json:"prepend"`              // Prepend
	Behavior         string `json:"behavior"`             // Split
	Invert           bool   `json:"invert"`               // Split
	AddPrefixSpace   *bool  `json:"add_prefix_space"`     // ByteLevel, Metaspace
	UseRegex         *bool  `json:"use_regex"`            // ByteLevel
	IndividualDigits bool   `json:"individual_digits"`    // Digits
	Replacement      string `json:"replacement"`          // Metaspace
	PrependScheme    string `json:"prepend_scheme"`       // Metaspace
	Split            *bool  `json:"split"`                // Metaspace
	Start            int    `json:"start"`                // Strip, of a decoder
	Stop             int    `json:"stop"`                 // Strip, of a decoder
	StripLeft        bool   `json:"strip_left"`           // Strip, of a normalizer
	StripRight       bool   `json:"strip_right"`          // Strip, of a normalizer
	CharsMap         []byte `json:"precompiled_charsmap"` // Precompiled, in base64

	CleanText    *bool `json:"clean_text"`           // BertNormalizer
	Chinese      *bool `json:"handle_chinese_chars"` // BertNormalizer
	StripAccents *bool `json:"strip_accents"`        // BertNormalizer; null is Lowercase
	Lowercase    *bool `json:"lowercase"`            // BertNormalizer

	Single        []jsonTemplatePart `json:"single"` // TemplateProcessing
	Pair          []jsonTemplatePart `json:"pair"`   // TemplateProcessing
	SpecialTokens map[string]struct {
		IDs []int `json:"ids"`
	} `json:"special_tokens"` // TemplateProcessing
	Sep *jsonNamed `json:"sep"` // BertProcessing, RobertaProcessing
	Cls *jsonNamed `json:"cls"`
}

// A jsonNamed is a token and its id: ["</s>", 2].
type jsonNamed struct {
	text string
	id   int
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *jsonNamed) UnmarshalJSON(b []byte) error {
	pair := []any{&n.text, &n.id}
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("%s is no token and its id", b)
	}
	return nil
}

type jsonTemplatePart struct {
	SpecialToken *jsonTemplateName
	Sequence     *jsonTemplateName
}

type jsonTemplateName struct {
	ID   string
	Kind uint8 `json:"type_id"`
}

// A pipeline is the result of the steps of a tokenizer.json.
type pipeline struct {
	norm      normalizer
	byteLevel bool
	spaced    bool     // white space is dropped
	patterns  []string // of the pre-tokenizer
	stages    []splitter
	cut       bool
}

// flatten returns the steps of a step: of a Sequence its steps, recursively.
func flatten(s *jsonStep, list func(*jsonStep) []jsonStep) (steps []jsonStep) {
	var walk func(s *jsonStep)
	walk = func(s *jsonStep) {
		if s.Type != "Sequence" {
			steps = append(steps, *s)
			return
		}
		inner := list(s)
		for i := range inner {
			walk(&inner[i])
		}
	}
	if s != nil {
		walk(s)
	}
	return steps
}

func (f *jsonFile) pipeline() (p pipeline, err error) {
	for _, part := range []struct {
		name string
		step *jsonStep
		list func(*jsonStep) []jsonStep
		add  func(*pipeline, *jsonStep) error
	}{
		{"normalizer", f.Normalizer, func(s *jsonStep) []jsonStep { return s.Normalizers }, (*pipeline).normalizer},
		{"pre_tokenizer", f.PreTokenizer, func(s *jsonStep) []jsonStep { return s.PreTokenizers },
			(*pipeline).preTokenizer},
		{"decoder", f.Decoder, func(s *jsonStep) []jsonStep { return s.Decoders }, (*pipeline).decoder},
	} {
		for _, s := range flatten(part.step, part.list) {
			if err := part.add(&p, &s); err != nil {
				return p, fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	switch {
	case p.byteLevel && (p.norm.escape || p.norm.prepend != prependNever && p.norm.prepend != prependSpace):
		return p, errors.New("pre_tokenizer: ByteLevel together with ▁ for spaces is not supported")
	case p.spaced && (p.byteLevel || p.norm.escape || f.Decoder != nil):
		return p, errors.New("pre_tokenizer: Whitespace together with ByteLevel, ▁ for spaces or a decoder is not " +
			"supported")
	case p.spaced:
	case !p.byteLevel && len(p.patterns) > 0:
		return p, errors.New("pre_tokenizer: Split without ByteLevel is not supported")
	case !p.byteLevel && !p.norm.escape:
		return p, errors.New("pre_tokenizer: neither ByteLevel nor ▁ for spaces: not supported")
	}
	return p, nil
}

func (p *pipeline) normalizer(s *jsonStep) error {
	switch s.Type {
	case "NFC", "NFKC":
		if p.norm.escape || p.norm.prepend != prependNever || p.norm.nfc || p.norm.nfkc {
			return fmt.Errorf("type %s after other steps is not supported", s.Type)
		}
		p.norm.nfc, p.norm.nfkc = s.Type == "NFC", s.Type == "NFKC"
	case "Prepend":
		if s.Prepend != space && !(s.Prepend == " " && !p.norm.escape) {
			return fmt.Errorf("a Prepend of %q is not supported", s.Prepend)
		}
		p.norm.prepend = prependSegment
	case "Replace":
		if s.Pattern.String == nil || *s.Pattern.String != " " || s.Content != space {
			return fmt.Errorf("a Replace of %s by %q is not supported", s.pattern(), s.Content)
		}
		p.norm.escape = true
	default:
		return fmt.Errorf("type %q is not supported", s.Type)
	}
	return nil
}

// pattern shows the pattern of a Replace or Split.
func (s *jsonStep) pattern() string {
	switch {
	case s.Pattern.Regex != nil:
		return fmt.Sprintf("the regular expression %q", *s.Pattern.Regex)
	case s.Pattern.String != nil:
		return fmt.Sprintf("%q", *s.Pattern.String)
	}
	return "no pattern"
}

func (p *pipeline) preTokenizer(s *jsonStep) error {
	switch s.Type {
	case "Split":
		return p.split(s)
	case "Digits":
		p.digits(s.IndividualDigits)
		return nil
	}
	if p.byteLevel {
		return fmt.Errorf("type %s after ByteLevel is not supported", s.Type)
	}
	switch s.Type {
	case "Punctuation":
		switch s.Behavior {
		case "", "Isolated":
			p.add("Punctuation", splitEachPunct)
		case "Contiguous":
			p.add("quotedPunct", splitQuotedPunct)
		default:
			return fmt.Errorf("type Punctuation with behavior %q is not supported", s.Behavior)
		}
	case "ByteLevel":
		if flagOr(s.AddPrefixSpace, true) {
			if len(p.patterns) > 0 || p.norm.prepend != prependNever {
				return errors.New("type ByteLevel with add_prefix_space after other steps is not supported")
			}
			p.norm.prepend = prependSpace
		}
		if flagOr(s.UseRegex, true) {
			p.add("plainWords", splitPlainWords)
		}
		p.byteLevel = true
	case "Metaspace":
		return p.metaspace(s)
	case "Whitespace":
		p.spaced = true
		p.add(s.Type, splitWordsAndSigns)
	case "WhitespaceSplit":
		p.spaced = true
		p.add(s.Type, splitBlank)
	default:
		return fmt.Errorf("type %q is not supported", s.Type)
	}
	return nil
}

// split adds a Split. A pattern that matches all text may also be spelled as the removal of everything else.
func (p *pipeline) split(s *jsonStep) error {
	if s.Pattern.String != nil && *s.Pattern.String == " " && p.norm.escape {
		return nil // Gemma's: there are no spaces by now
	}
	if s.Pattern.Regex == nil {
		return p.literal(s)
	}
	pattern, ok := known().spelled[unescaped.Replace(*s.Pattern.Regex)]
	if !ok {
		return fmt.Errorf("a Split by an unknown regular expression %q", *s.Pattern.Regex)
	}
	if s.Behavior != "Isolated" && !(s.Behavior == "Removed" && s.Invert && known().Patterns[pattern].All) {
		return fmt.Errorf("a Split with behavior %q, invert %v is not supported", s.Behavior, s.Invert)
	}
	if p.byteLevel && pattern != "threeASCII" { // this pattern alone treats bytes like characters
		return fmt.Errorf("a Split by the regular expression %q after ByteLevel is not supported", *s.Pattern.Regex)
	}
	p.add(pattern, stagesOf(pattern)...)
	return nil
}

// add adds splitters with their pattern, or with words for a splitter beyond regular expressions.
func (p *pipeline) add(pattern string, cut ...splitter) {
	p.patterns, p.stages = append(p.patterns, pattern), append(p.stages, cut...)
}

// digits adds a Digits. After ByteLevel each byte is a character.
func (p *pipeline) digits(each bool) {
	switch {
	case p.byteLevel && each:
		p.add("each digit after ByteLevel", splitByteDigit)
	case p.byteLevel:
		p.add("digits after ByteLevel", splitByteNumbers)
	case each:
		p.add("digit", splitDigit)
	default:
		p.add("numbers", splitNumbers)
	}
}

// literal adds a Split at a string, even a string that looks like a regular expression.
func (p *pipeline) literal(s *jsonStep) error {
	cut := literalSplitter(s.Behavior, s.Pattern.String)
	if cut == nil || s.Invert || p.byteLevel {
		return fmt.Errorf("a Split at %s with behavior %q, invert %v is not supported here", s.pattern(), s.Behavior,
			s.Invert)
	}
	p.add(s.Behavior+" "+s.pattern(), cut)
	return nil
}

func (p *pipeline) metaspace(s *jsonStep) error {
	if s.Replacement != space || p.norm.prepend != prependNever {
		return fmt.Errorf("type Metaspace with %q is not supported", s.Replacement)
	}
	p.norm.escape, p.cut = true, flagOr(s.Split, true)
	switch {
	case s.AddPrefixSpace != nil && !*s.AddPrefixSpace, s.PrependScheme == "never":
		p.norm.prepend = prependNever
	case s.PrependScheme == "first":
		p.norm.prepend = prependFirst
	case s.PrependScheme == "always", s.PrependScheme == "":
		p.norm.prepend = prependPiece
	default:
		return fmt.Errorf("type Metaspace with prepend_scheme %q is not supported", s.PrependScheme)
	}
	return nil
}

// decoder only checks a step: how to decode follows from the other steps.
func (p *pipeline) decoder(s *jsonStep) error {
	switch s.Type {
	case "ByteLevel", "ByteFallback", "Fuse", "Metaspace":
		return nil
	case "Replace":
		if s.Pattern.String != nil && *s.Pattern.String == space && s.Content == " " {
			return nil
		}
		return fmt.Errorf("a Replace of %s by %q is not supported", s.pattern(), s.Content)
	case "Strip":
		if s.Content == " " && s.Start <= 1 && s.Stop == 0 {
			return nil
		}
		return fmt.Errorf("a Strip of %q, %d and %d is not supported", s.Content, s.Start, s.Stop)
	}
	return fmt.Errorf("type %q is not supported", s.Type)
}

// template sets the tokens that the post-processor puts around a text.
func (f *jsonFile) template(t *Tokenizer) error {
	for _, s := range flatten(f.PostProcessor, func(s *jsonStep) []jsonStep { return s.Processors }) {
		switch s.Type {
		case "ByteLevel": // moves offsets only
		case "TemplateProcessing":
			if err := s.template(t); err != nil {
				return err
			}
			if err := s.pairTemplate(t); err != nil {
				return err
			}
		case "BertProcessing", "RobertaProcessing":
			if err := s.setClassified(t); err != nil {
				return err
			}
		default:
			return fmt.Errorf("type %q is not supported", s.Type)
		}
	}
	return nil
}

func (s *jsonStep) template(t *Tokenizer) error {
	ids := &t.special.prefix
	for _, part := range s.Single {
		if part.Sequence != nil {
			if ids == &t.special.suffix || part.Sequence.ID != "A" {
				return errors.New("a template with more than the sequence A")
			}
			ids = &t.special.suffix
			continue
		}
		special, err := s.special(t, part)
		if err != nil {
			return err
		}
		*ids = append(*ids, special...)
	}
	if ids == &t.special.prefix {
		return errors.New("a template without the sequence")
	}
	if t.special.bos < 0 && len(t.special.prefix) > 0 {
		t.special.bos = t.special.prefix[0]
	}
	return nil
}

// A part is an element of a pair of texts: a special token, or a text.
type part struct {
	id   int // -1 of a text
	text int // 0 or 1, of the pair
	kind uint8
}

// textPart returns the part of a text.
func textPart(text int, kind uint8) part { return part{id: -1, text: text, kind: kind} }

// Pair returns the ids of two texts in a single input of the model, with special tokens, and the kind of each id, for
// which a BERT has an embedding (token_type_ids).
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

// pairTemplate sets the form of a pair by TemplateProcessing.
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

// setClassified sets the tokens of BertProcessing and RobertaProcessing around a text and a pair: [CLS] A [SEP] B
// [SEP], and with two separators between the texts of RoBERTa, whose texts have a single kind.
func (s *jsonStep) setClassified(t *Tokenizer) error {
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
