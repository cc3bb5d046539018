package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A jsonVocab is the object of token: id, in the order of the file. encoding/json would take the last of two equal keys
// and a second for a large vocabulary.
type jsonVocab []jsonToken

type jsonToken struct {
	text   string
	id     int
	score  float64
	scored bool // as all tokens of Unigram, whose vocabulary is a list
}

// scored reports whether tokens have scores.
func (v jsonVocab) scored() bool { return len(v) > 0 && v[0].scored }

func (v *jsonVocab) UnmarshalJSON(b []byte) error {
	s := jsonScanner{rest: b}
	if !s.skip('{') {
		*v = nil
		return v.list(&s)
	}
	*v = jsonVocab{}
	if s.skip('}') {
		return nil
	}
	for {
		text, err := s.string()
		if err != nil {
			return fmt.Errorf("vocab: %w", err)
		}
		if !s.skip(':') {
			return errors.New("vocab: no id")
		}
		id, err := strconv.Atoi(s.number())
		if err != nil || id < 0 {
			return fmt.Errorf("vocab: %q: no valid id", text)
		}
		*v = append(*v, jsonToken{text: text, id: id})
		if !s.skip(',') {
			return nil
		}
	}
}

// list reads a list of tokens and their scores, [["<s>", 0.0], ...].
func (v *jsonVocab) list(s *jsonScanner) error {
	if !s.skip('[') || s.skip(']') {
		return nil
	}
	for {
		id := len(*v)
		if !s.skip('[') {
			return fmt.Errorf("vocab: token %d is no list of a text and a score", id)
		}
		text, err := s.string()
		if err != nil {
			return fmt.Errorf("vocab: token %d: %w", id, err)
		}
		if !s.skip(',') {
			return fmt.Errorf("vocab: token %d: %q has no score", id, text)
		}
		score, err := strconv.ParseFloat(s.number(), 64)
		if err != nil || !s.skip(']') {
			return fmt.Errorf("vocab: token %d: %q has no valid score", id, text)
		}
		*v = append(*v, jsonToken{text: text, id: id, score: score, scored: true})
		if !s.skip(',') {
			return nil
		}
	}
}

// jsonMerges holds the merges, spelled "left right" or ["left", "right"]. The first spelling has all in left: only used
// merges are split.
type jsonMerges []jsonMerge

type jsonMerge struct{ left, right string }

func (m *jsonMerges) UnmarshalJSON(b []byte) error {
	s := jsonScanner{rest: b}
	*m = nil
	if !s.skip('[') {
		return errors.New("merges: no list")
	}
	if s.skip(']') {
		return nil
	}
	for {
		pair := s.skip('[')
		left, err := s.string()
		right := ""
		if err == nil && pair {
			if !s.skip(',') {
				return fmt.Errorf("merges: merge %d is not two tokens", len(*m))
			}
			right, err = s.string()
		}
		if err != nil {
			return fmt.Errorf("merges: merge %d: %w", len(*m), err)
		}
		if left == "" || pair && (right == "" || !s.skip(']')) {
			return fmt.Errorf("merges: merge %d is not two tokens", len(*m))
		}
		*m = append(*m, jsonMerge{left, right})
		if !s.skip(',') {
			return nil
		}
	}
}

// A jsonScanner reads JSON already validated by encoding/json.
type jsonScanner struct{ rest []byte }

// skip skips white space, then c if present.
func (s *jsonScanner) skip(c byte) bool {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// string reads a string.
func (s *jsonScanner) string() (string, error) {
	if !s.skip('"') {
		return "", errors.New("no string")
	}
	plain, i := true, 0
	for ; i < len(s.rest) && s.rest[i] != '"'; i++ {
		if s.rest[i] == '\\' {
			plain = false
			i++
		}
	}
	if i >= len(s.rest) {
		return "", errors.New("no string")
	}
	raw := s.rest[:i]
	s.rest = s.rest[i+1:]
	if !utf8.Valid(raw) {
		return "", fmt.Errorf("%q is not UTF-8", raw)
	}
	if plain {
		return string(raw), nil
	}
	var text string
	quoted := make([]byte, 0, len(raw)+2)
	quoted = append(append(append(quoted, '"'), raw...), '"')
	err := json.Unmarshal(quoted, &text)
	return text, err
}

// number reads the digits of a number.
func (s *jsonScanner) number() string {
	s.skip(0)
	i := 0
	for i < len(s.rest) && s.rest[i] != ',' && s.rest[i] != '}' && s.rest[i] != ']' && s.rest[i] > ' ' {
		i++
	}
	digits := string(s.rest[:i])
	s.rest = s.rest[i:]
	return digits
}
