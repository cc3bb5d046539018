package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// FromSentencePiece makes the tokenizer of a tokenizer.model file, a ModelProto of SentencePiece
// (sentencepiece_model.proto). The tokenizer_config.json beside it, or nil, is config. Only BPE models with byte
// fallback and without normalization rules are supported, as in Llama 2, Mistral and Gemma.
func FromSentencePiece(model, config []byte) (*Tokenizer, error) {
	if isTiktoken(model) {
		return nil, errors.New("a list of tiktoken, whose pattern and special tokens are in the model's Python code: " +
			"take a folder with tokenizer.json, which transformers' TikTokenConverter writes, or a GGUF file")
	}
	m := newSPModel()
	err := protoFields(model, 0, m.field)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	added, err := c.appendTokens(&m.tokens)
	if err != nil {
		return nil, err
	}
	m.scores = append(m.scores, make([]float32, len(m.tokens)-len(m.scores))...)
	t, err := newTokenizer(m.tokens, false)
	if err != nil {
		return nil, err
	}
	if err := checkBytes(t); err != nil {
		return nil, err
	}
	t.norm.escape = true
	if m.dummyPrefix {
		t.norm.prepend = prependSegment
	}
	if err := setScores(t, m.scores); err != nil {
		return nil, err
	}
	setAdded(t, m.added(added))
	if err := m.setIDs(t); err != nil {
		return nil, err
	}
	if err := c.setNames(t); err != nil {
		return nil, err
	}
	if t.special.bos >= 0 {
		t.special.prefix = []int{t.special.bos} // as transformers does with these models
	}
	findEndOfTurn(t)
	return t, c.surround(t)
}

// An spModel holds the pieces of a ModelProto, and the supported fields of TrainerSpec and NormalizerSpec.
type spModel struct {
	tokens []token
	scores []float32

	modelType    uint64
	byteFallback bool
	spaceLast    bool // treat_whitespace_as_suffix
	bos, eos     int  // -1 where there is none

	rules       int // bytes of the precompiled_charsmap
	dummyPrefix bool
	trimSpaces  bool // remove_extra_whitespaces
	escape      bool // escape_whitespaces
}

// newSPModel returns a model with the format's defaults.
func newSPModel() *spModel {
	return &spModel{modelType: 1, bos: 1, eos: 2, dummyPrefix: true, trimSpaces: true, escape: true}
}

// field reads a field of ModelProto.
func (m *spModel) field(f protoField) error {
	switch f.number {
	case 1:
		return m.addPiece(f)
	case 2:
		return protoFields(f.bytes, f.offset, m.trainer)
	case 3:
		return protoFields(f.bytes, f.offset, m.normalizer)
	}
	return nil
}

// trainer reads a field of TrainerSpec.
func (m *spModel) trainer(f protoField) error {
	switch f.number {
	case 3:
		m.modelType = f.value
	case 24:
		m.spaceLast = f.value != 0
	case 35:
		m.byteFallback = f.value != 0
	case 41:
		m.bos = int(int32(f.value))
	case 42:
		m.eos = int(int32(f.value))
	}
	return nil
}

// normalizer reads a field of NormalizerSpec.
func (m *spModel) normalizer(f protoField) error {
	switch f.number {
	case 2:
		m.rules = len(f.bytes)
	case 3:
		m.dummyPrefix = f.value != 0
	case 4:
		m.trimSpaces = f.value != 0
	case 5:
		m.escape = f.value != 0
	}
	return nil
}

// spModelTypes are the values of TrainerSpec.ModelType.
var spModelTypes = map[uint64]string{1: "UNIGRAM", 2: "BPE", 3: "WORD", 4: "CHAR"}

// check refuses unsupported models.
func (m *spModel) check() error {
	switch {
	case len(m.tokens) == 0:
		return errors.New("no pieces")
	case m.modelType != 2:
		return fmt.Errorf("model_type %d (%s) is not supported, only BPE is", m.modelType, spModelTypes[m.modelType])
	case !m.byteFallback:
		return errors.New("a model without byte_fallback is not supported")
	case m.spaceLast:
		return errors.New("trainer_spec: treat_whitespace_as_suffix is not supported")
	case m.rules > 0:
		return fmt.Errorf("normalizer_spec: a precompiled_charsmap (%d bytes) is not supported", m.rules)
	case m.trimSpaces:
		return errors.New("normalizer_spec: remove_extra_whitespaces is not supported")
	case !m.escape:
		return errors.New("normalizer_spec: escape_whitespaces false is not supported")
	}
	return nil
}

// added lists the tokens to cut out of the text: the configuration's, the special pieces, and the user-defined pieces,
// which match normalized text.
func (m *spModel) added(added map[int]addedToken) []addedToken {
	for i, k := range m.tokens {
		special := k.kind == Control || k.kind == Unknown
		if _, done := added[i]; !done && (special || k.kind == UserDefined) {
			added[i] = addedToken{content: k.text, id: int32(i), special: special, normalized: !special}
		}
	}
	return sortByID(added)
}

// setIDs sets BOS and EOS.
func (m *spModel) setIDs(t *Tokenizer) error {
	if m.bos >= 0 {
		if err := t.setID(&t.special.bos, m.bos, "bos_id"); err != nil {
			return err
		}
	}
	if m.eos >= 0 {
		return t.setID(&t.special.eos, m.eos, "eos_id")
	}
	return nil
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

// A protoField is a field of a protobuf message: bytes for the wire type of strings and messages, value for the
// numbers.
type protoField struct {
	number uint64
	value  uint64
	bytes  []byte
	offset int // of the content, from the beginning of the file
}

// protoFields calls yield for each field of a message beginning at offset base
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

// isTiktoken reports whether a file is tiktoken's: lines of a token in base64 and its rank.
func isTiktoken(b []byte) bool {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	text, rank, ok := bytes.Cut(line, []byte(" "))
	_, err := base64.StdEncoding.DecodeString(string(text))
	_, other := strconv.Atoi(string(rank))
	return ok && len(text) > 0 && err == nil && other == nil
}
