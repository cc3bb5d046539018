package tokenizer

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"
)

// FromSentencePiece makes the tokenizer of a tokenizer.model file, a ModelProto
// of SentencePiece (sentencepiece_model.proto). config is the
// tokenizer_config.json beside it, or nil. Only BPE models with byte fallback and
// without normalization rules are supported: those of Llama 2, Mistral and Gemma.
func FromSentencePiece(model, config []byte) (*Tokenizer, error) {
	m, err := parseSentencePiece(model)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.model: %w", err)
	}
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	extra, err := c.appendTokens(&m.tokens)
	if err != nil {
		return nil, err
	}
	for range len(m.tokens) - len(m.scores) {
		m.scores = append(m.scores, 0)
	}
	t, err := newTokenizer(m.tokens, false)
	if err != nil {
		return nil, err
	}
	t.norm.escape = true
	if m.dummyPrefix {
		t.norm.prepend = prependSegment
	}
	if err := t.setScores(m.scores); err != nil {
		return nil, err
	}
	for i, k := range m.tokens {
		special := k.kind == Control || k.kind == Unknown
		if _, done := extra[i]; !done && (special || k.kind == UserDefined) {
			extra[i] = addedToken{content: k.text, id: int32(i), special: special, normalized: !special}
		}
	}
	if err := t.setAdded(sorted(extra)); err != nil {
		return nil, err
	}
	for _, k := range []struct {
		id   int
		to   *int
		name string
	}{{m.bos, &t.bos, "bos_id"}, {m.eos, &t.eos, "eos_id"}} {
		if k.id < 0 {
			continue // SentencePiece's way to say that there is none
		}
		if err := t.setID(k.to, k.id, "tokenizer.model: "+k.name); err != nil {
			return nil, err
		}
	}
	if err := c.setNames(t); err != nil {
		return nil, err
	}
	if t.bos >= 0 {
		t.prefix = []int{t.bos} // what transformers does with these models
	}
	t.findEndOfTurn()
	return t, c.surround(t)
}

// A spModel is what a ModelProto tells.
type spModel struct {
	tokens      []token
	scores      []float32
	dummyPrefix bool
	bos, eos    int
}

// Values of TrainerSpec.ModelType.
var spModelTypes = map[uint64]string{1: "UNIGRAM", 2: "BPE", 3: "WORD", 4: "CHAR"}

func parseSentencePiece(b []byte) (m spModel, err error) {
	m.dummyPrefix, m.bos, m.eos = true, 1, 2 // the defaults of the format
	modelType, byteFallback := uint64(1), false
	extraSpaces, escape, rules := true, true, 0
	err = protoFields(b, 0, func(f protoField) error {
		switch f.number {
		case 1:
			return m.addPiece(f)
		case 2: // TrainerSpec
			return protoFields(f.bytes, f.offset, func(f protoField) error {
				switch f.number {
				case 3:
					modelType = f.value
				case 24:
					if f.value != 0 {
						return fmt.Errorf("offset %d: treat_whitespace_as_suffix is not supported", f.offset)
					}
				case 35:
					byteFallback = f.value != 0
				case 41:
					m.bos = int(int32(f.value))
				case 42:
					m.eos = int(int32(f.value))
				}
				return nil
			})
		case 3: // NormalizerSpec
			return protoFields(f.bytes, f.offset, func(f protoField) error {
				switch f.number {
				case 2:
					rules = len(f.bytes)
				case 3:
					m.dummyPrefix = f.value != 0
				case 4:
					extraSpaces = f.value != 0
				case 5:
					escape = f.value != 0
				}
				return nil
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return m, err
	case len(m.tokens) == 0:
		return m, fmt.Errorf("no pieces")
	case modelType != 2:
		return m, fmt.Errorf("model_type %s is not supported, only BPE is", orNumber(spModelTypes[modelType], modelType))
	case !byteFallback:
		return m, fmt.Errorf("a model without byte_fallback is not supported")
	case rules > 0:
		return m, fmt.Errorf("normalizer_spec: a precompiled_charsmap (%d bytes) is not supported", rules)
	case extraSpaces:
		return m, fmt.Errorf("normalizer_spec: remove_extra_whitespaces is not supported")
	case !escape:
		return m, fmt.Errorf("normalizer_spec: escape_whitespaces false is not supported")
	}
	return m, nil
}

func orNumber(name string, n uint64) string {
	if name == "" {
		return fmt.Sprint(n)
	}
	return name
}

// addPiece reads a SentencePiece: piece 1, score 2, type 3.
func (m *spModel) addPiece(f protoField) error {
	k, score := token{kind: Normal}, float32(0)
	err := protoFields(f.bytes, f.offset, func(f protoField) error {
		switch f.number {
		case 1:
			k.text = string(f.bytes)
		case 2:
			score = math.Float32frombits(uint32(f.value))
		case 3:
			if f.value < 1 || f.value > uint64(Byte) {
				return fmt.Errorf("offset %d: piece %d: unknown type %d", f.offset, len(m.tokens), f.value)
			}
			k.kind = Kind(f.value)
		}
		return nil
	})
	if err == nil && (k.text == "" || !utf8.ValidString(k.text)) {
		err = fmt.Errorf("offset %d: piece %d: %q is no text", f.offset, len(m.tokens), k.text)
	}
	m.tokens, m.scores = append(m.tokens, k), append(m.scores, score)
	return err
}

// A protoField is a field of a protobuf message: bytes for the wire type of
// strings and messages, value for the numbers.
type protoField struct {
	number uint64
	value  uint64
	bytes  []byte
	offset int // of its content, from the beginning of the file
}

// protoFields calls yield for each field of a message that begins at offset base
// (protobuf.dev/programming-guides/encoding).
func protoFields(b []byte, base int, yield func(protoField) error) error {
	for i := 0; i < len(b); {
		at := base + i
		tag, n := binary.Uvarint(b[i:])
		if n <= 0 || tag>>3 == 0 {
			return fmt.Errorf("offset %d: no protobuf field", at)
		}
		i += n
		f := protoField{number: tag >> 3, offset: base + i}
		switch wire := tag & 7; wire {
		case 0:
			if f.value, n = binary.Uvarint(b[i:]); n <= 0 {
				return fmt.Errorf("offset %d: no varint", at)
			}
			i += n
		case 1, 5:
			n = 8
			if wire == 5 {
				n = 4
			}
			if len(b)-i < n {
				return fmt.Errorf("offset %d: a number of %d bytes, %d are left", at, n, len(b)-i)
			}
			for k := range n {
				f.value |= uint64(b[i+k]) << (8 * k)
			}
			i += n
		case 2:
			size, n := binary.Uvarint(b[i:])
			if n <= 0 || size > uint64(len(b)-i-n) {
				return fmt.Errorf("offset %d: a field of %d bytes, %d are left", at, size, len(b)-i)
			}
			i += n
			f.offset, f.bytes = base+i, b[i:i+int(size)]
			i += int(size)
		default:
			return fmt.Errorf("offset %d: wire type %d", at, wire)
		}
		if err := yield(f); err != nil {
			return err
		}
	}
	return nil
}
