// Package receipt defines receipts of answers: what an answer was made from, and a hash of the logits of each of its
// tokens, signed. Karat's bits are the same on every machine, so anybody with the model can compute an answer again and
// compare it with its receipt.
//
// Files in reading order: receipt.go, root.go.
package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/jsonerr"
)

// Version is the version of receipts written here.
const Version = 1

// MaxBytes bounds a receipt's text.
const MaxBytes = 64 << 20

// MaxDistance bounds Distance. (docs/webgpu.md: KL at most 1e-6)
const MaxDistance = 1e-2

// Receipt says how one answer was made. All hashes are SHA-256.
type Receipt struct {
	Version  int      `json:"receipt"`
	Program  string   `json:"program"` // name and version
	Model    Model    `json:"model"`
	Numerics Numerics `json:"numerics"`

	Adapters     map[string]float64 `json:"adapters,omitempty"`     // factors by name
	AdaptersHash Hash               `json:"adapters_hash,omitzero"` // of weights and factors
	TemplateHash Hash               `json:"template_hash,omitzero"` // of the chat template; absent for a raw text

	Sampling Sampling `json:"sampling"`
	Form     *Form    `json:"form,omitempty"` // form of the text; absent for any text
	Ends     []int32  `json:"ends,omitempty"` // tokens that end the answer, beside the model's own

	Prompt []int32 `json:"prompt"`
	Answer []int32 `json:"answer"`
	End    string  `json:"end"`    // reason of the answer's end: end, stop, length, or "" for an answer left early
	Logits []byte  `json:"logits"` // of each token of Answer the Digest of the logits behind its choice

	// Logprobs are natural logarithms of the tokens' probabilities, where other machines may have other bits: on GPUs.
	// They may be off by Distance.
	Logprobs []float64 `json:"logprobs,omitempty"`
	Distance float64   `json:"distance,omitempty"`

	Key       []byte `json:"key,omitempty"`       // public key, ed25519
	Signature []byte `json:"signature,omitempty"` // of all other fields
}

// Model names a model's parts.
type Model struct {
	Name     string         `json:"name"`     // file or folder, without the path: a hint
	Types    map[string]int `json:"types"`    // number of tensors by type
	Weights  Hash           `json:"weights"`  // Root of the tensors
	Settings Hash           `json:"settings"` // of [family, configuration] as JSON, keys in order
	Tokens   Hash           `json:"tokens"`   // vocabulary
}

// Numerics is the arithmetic of the answer.
type Numerics struct {
	Precision string `json:"precision"`
	KV        string `json:"kv"`
	GPU       bool   `json:"gpu,omitempty"`
}

// Sampling is the choice of tokens, with the seed of its draws. The fields are package sample's.
type Sampling struct {
	Temperature      float64           `json:"temperature,omitempty"`
	TopK             int               `json:"top_k,omitempty"`
	TopP             float64           `json:"top_p,omitempty"`
	MinP             float64           `json:"min_p,omitempty"`
	RepeatPenalty    float64           `json:"repeat_penalty,omitempty"`
	RepeatLast       int               `json:"repeat_last,omitempty"`
	PresencePenalty  float64           `json:"presence_penalty,omitempty"`
	FrequencyPenalty float64           `json:"frequency_penalty,omitempty"`
	Seed             uint64            `json:"seed,string"`
	Bias             map[int32]float64 `json:"logit_bias,omitempty"`
	Banned           []int32           `json:"banned,omitempty"` // tokens with a bias of minus infinity
}

// Form is the form of an answer: a source by its kind, or a kind alone without a source.
type Form struct {
	Kind   string `json:"kind"` // schema, json, regexp, gbnf, lark, or other
	Source string `json:"source,omitempty"`
}

// Hash is a SHA-256, written in hexadecimal digits.
type Hash [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) {
	if h == (Hash{}) {
		return nil, nil
	}
	return hex.AppendEncode(nil, h[:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(text []byte) error {
	*h = Hash{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != 2*len(h) || strings.ToLower(string(text)) != string(text) {
		return fmt.Errorf("a hash of %d characters, want %d hexadecimal digits in lower case", len(text), 2*len(h))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// DigestSize is the number of bytes of a Digest.
const DigestSize = 8

// Digest returns the first bytes of the SHA-256 of logits as little-endian float32 numbers.
func Digest(logits []float32) [DigestSize]byte {
	h := sha256.New()
	var b [4096]byte
	for len(logits) > 0 {
		n := min(len(logits), len(b)/4)
		for i, v := range logits[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
		}
		h.Write(b[:4*n])
		logits = logits[n:]
	}
	return [DigestSize]byte(h.Sum(nil))
}

// Add adds a token to the answer, chosen by logits.
func (r *Receipt) Add(id int, logits []float32) {
	d := Digest(logits)
	r.Answer, r.Logits = append(r.Answer, int32(id)), append(r.Logits, d[:]...)
}

// DigestAt returns the digest of the logits behind token i of the answer.
func (r *Receipt) DigestAt(i int) [DigestSize]byte {
	return [DigestSize]byte(r.Logits[i*DigestSize:])
}

// Sign sets Key and Signature.
func (r *Receipt) Sign(key ed25519.PrivateKey) error {
	r.Key = key.Public().(ed25519.PublicKey)
	b, err := r.signed()
	if err == nil {
		r.Signature = ed25519.Sign(key, b)
	}
	return err
}

// signed returns the signed text: a word for the purpose, and the receipt without Signature.
func (r *Receipt) signed() ([]byte, error) {
	all := *r
	all.Signature = nil
	b, err := json.Marshal(&all)
	return append([]byte("karat receipt\n"), b...), err
}

// Errors of CheckSignature.
var (
	ErrUnsigned = errors.New("the receipt has no signature")
	ErrTampered = errors.New("the signature does not belong to the receipt: it was changed after signing")
)

// CheckSignature returns nil if Key signed the receipt as it is, ErrUnsigned or ErrTampered.
func (r *Receipt) CheckSignature() error {
	if len(r.Key) == 0 && len(r.Signature) == 0 {
		return ErrUnsigned
	}
	b, err := r.signed()
	if err != nil {
		return err
	}
	if len(r.Key) != ed25519.PublicKeySize || !ed25519.Verify(r.Key, b, r.Signature) {
		return ErrTampered
	}
	return nil
}

// Bytes returns the receipt's text: JSON, with a line end.
func (r *Receipt) Bytes() ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

// Read reads a receipt's text. Whether the receipt is true is for CheckSignature and for a model.
func Read(from io.Reader) (*Receipt, error) {
	b, err := io.ReadAll(io.LimitReader(from, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("more than %d bytes", MaxBytes)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	r := new(Receipt)
	switch err := d.Decode(r); {
	case err == io.EOF:
		return nil, errors.New("an empty file")
	case err == io.ErrUnexpectedEOF:
		return nil, errors.New("the file ends early")
	case err != nil:
		return nil, jsonerr.Plain(err, "")
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text behind the receipt")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, r.named(b)
}

// named returns an error unless r's text has the fields that Bytes writes. Go's decoder also takes other cases
// of letters, and the last of two fields: another reader of such a text would see another receipt than the signed one.
func (r *Receipt) named(text []byte) error {
	own, err := r.Bytes()
	if err != nil {
		return err
	}
	got, want := fields(text), fields(own)
	for i, name := range got {
		if _, ok := slices.BinarySearch(want, name); !ok || i > 0 && name == got[i-1] {
			return fmt.Errorf("field %s: empty, written twice or in other letters", name)
		}
	}
	return nil
}

// fields returns the paths of the fields in a receipt's text, sorted.
func fields(text []byte) (all []string) {
	d := json.NewDecoder(bytes.NewReader(text))
	var walk func(path string)
	walk = func(path string) { // no deeper than Receipt
		switch t, _ := d.Token(); t {
		case json.Delim('{'):
			for d.More() {
				name, _ := d.Token()
				all = append(all, fmt.Sprintf("%s/%q", path, name))
				walk(all[len(all)-1])
			}
			d.Token()
		case json.Delim('['):
			for d.More() {
				walk(path)
			}
			d.Token()
		}
	}
	walk("")
	slices.Sort(all)
	return all
}

// check returns an error unless the parts fit each other.
func (r *Receipt) check() error {
	switch n := len(r.Answer); {
	case r.Version != Version:
		return fmt.Errorf("receipt %d: this program reads receipts of version %d", r.Version, Version)
	case len(r.Prompt) == 0:
		return errors.New("prompt: no tokens")
	case n == 0:
		return errors.New("answer: no tokens")
	case slices.Min(r.Prompt) < 0 || slices.Min(r.Answer) < 0:
		return errors.New("prompt or answer: a negative token")
	case !slices.Contains([]string{"", "end", "stop", "length"}, r.End):
		return fmt.Errorf("end: %q is not known", r.End)
	case len(r.Logits) != n*DigestSize:
		return fmt.Errorf("logits: %d bytes for %d tokens, want %d each", len(r.Logits), n, DigestSize)
	case !slices.Contains([]string{"fast", "f32", "f64"}, r.Numerics.Precision):
		return fmt.Errorf("numerics: precision %q is not known", r.Numerics.Precision)
	case !r.Numerics.GPU && !slices.Contains([]string{"f16", "q8_0", "f32", "f64"}, r.Numerics.KV):
		return fmt.Errorf("numerics: keys and values as %q are not known", r.Numerics.KV)
	case !r.Numerics.GPU && len(r.Logprobs) > 0:
		return errors.New("logprobs: an answer of a CPU has none")
	case r.Numerics.GPU && len(r.Logprobs) != n:
		return fmt.Errorf("logprobs: %d for %d tokens of a GPU", len(r.Logprobs), n)
	case !(r.Distance >= 0 && r.Distance <= MaxDistance):
		return fmt.Errorf("distance: %v is not from 0 to %g", r.Distance, MaxDistance)
	}
	return nil
}
