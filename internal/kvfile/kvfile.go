// Package kvfile reads and writes a model's memory of a prefix: keys, values and states.
//
// A file is "KARATKV1", a little-endian uint64, the length of the header; the header, a JSON object (File); the data of
// the stores, in order, then of the states; and the SHA-256 of all before. Numbers are little endian.
//
// Files are not trusted. The checksum finds accidental changes and cuts; an attacker computes a new checksum.
// So every size is checked against the file's before use, and the caller compares the rest with its model.
package kvfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	magic     = "KARATKV1"
	maxHeader = 1 << 28
	maxTokens = 1 << 24
	maxSize   = 1 << 20 // of a head, heads, a window's positions and more
	maxStores = 1 << 16
	maxState  = 1 << 24 // elements, also of a row
	maxRows   = 64      // of a state: a page
)

// File is a prefix's state.
type File struct {
	Program string     `json:"program"`
	Model   string     `json:"model_fingerprint"` // of weights, graph, vocabulary, template, adapters and numerics
	Element int        `json:"element_bytes"`     // of a key's: 2 is binary16, 4 float32
	Tokens  []int32    `json:"tokens"`            // of the prompt
	Held    int        `json:"held"`              // the number of first tokens in the state
	Stores  few[Store] `json:"stores"`
	States  few[State] `json:"states,omitempty"`
}

// few is a list of stores or states: each takes far more memory than the two bytes of an empty one in a header.
type few[T any] []T

// UnmarshalJSON refuses more than maxStores before allocation.
func (f *few[T]) UnmarshalJSON(b []byte) error {
	if *f = nil; string(b) == "null" { // a model has none
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return errors.Join(errors.New("stores and states are arrays"), err)
	}
	for d.More() {
		if len(*f) == maxStores {
			return fmt.Errorf("more than %d stores or states", maxStores)
		}
		var x T
		if err := d.Decode(&x); err != nil {
			return err
		}
		*f = append(*f, x)
	}
	return nil
}

// Store is the keys and values of a layer, for positions From to To: pages of full attention, or the window in a ring.
// A layer with older positions in 8 bits has a store for each form.
type Store struct {
	Layer  int `json:"layer"`
	Heads  int `json:"heads"`
	Dim    int `json:"dim"`
	Values int `json:"values"` // elements of a value; 0 of an indexer's keys
	Window int `json:"window"` // 0 is all positions
	From   int `json:"from"`
	To     int `json:"to,omitempty"` // 0 is File.Held

	// Narrow is whole pages of pageSize positions in 8 bits, with binary16 scales for every 32: of keys filled up to a
	// multiple of 32 elements, and of values to a multiple of 16.
	Narrow bool `json:"narrow,omitempty"`

	// [positions, heads, Dim] keys, then [positions, heads, Values] values; of narrow pages scales, and then codes
	Data []byte `json:"-"`
}

// pageSize is the number of positions of a page.
const pageSize = 64

// bytes returns the bytes of a position, of elements of some size.
func (s *Store) bytes(element int) int {
	if s.Narrow {
		return s.Heads * ((s.Dim+31)&^31 + (s.Values+15)&^15) * 17 / 16
	}
	return s.Heads * (s.Dim + s.Values) * element
}

// State is the state of a convolution or a scan at the start of the last page, and the rows from there on, in float32.
type State struct {
	Size int    `json:"size"`
	Row  int    `json:"row"` // elements of a row
	Rows int    `json:"rows"`
	Data []byte `json:"-"`
}

// Write writes f.
func (f *File) Write(w io.Writer) error {
	header, err := json.Marshal(f)
	if err != nil {
		return err
	}
	sum := sha256.New()
	to := io.MultiWriter(w, sum)
	parts := [][]byte{[]byte(magic), binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header}
	for _, s := range f.Stores {
		parts = append(parts, s.Data)
	}
	for _, s := range f.States {
		parts = append(parts, s.Data)
	}
	for _, p := range parts {
		if _, err := to.Write(p); err != nil {
			return err
		}
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// Parse reads a file's bytes, shared by the result.
func Parse(data []byte) (*File, error) {
	f, err := parse(data)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func parse(data []byte) (*File, error) {
	const front = len(magic) + 8
	if len(data) < front+sha256.Size || string(data[:len(magic)]) != magic {
		return nil, errors.New("no state of Karat's: it does not begin with " + magic + ", or is too short")
	}
	body, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("changed, or cut off: the SHA-256 of its %d bytes is %x…, the file says %x…", len(body),
			sum[:6], want[:6])
	}
	n := binary.LittleEndian.Uint64(body[len(magic):])
	if n > maxHeader || n > uint64(len(body)-front) {
		return nil, fmt.Errorf("header of %d bytes at byte %d, the file has %d", n, front, len(data))
	}
	d := json.NewDecoder(bytes.NewReader(body[front : front+int(n)]))
	d.DisallowUnknownFields()
	f := &File{}
	if err := d.Decode(f); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return f, f.place(body[front+int(n):])
}

// check refuses impossible values.
func (f *File) check() error {
	switch {
	case f.Element != 2 && f.Element != 4:
		return fmt.Errorf("element_bytes %d, want 2 or 4", f.Element)
	case len(f.Tokens) == 0 || len(f.Tokens) > maxTokens:
		return fmt.Errorf("%d tokens, want 1 to %d", len(f.Tokens), maxTokens)
	case f.Held < 1 || f.Held > len(f.Tokens):
		return fmt.Errorf("held %d of %d tokens", f.Held, len(f.Tokens))
	}
	for i, s := range f.Stores {
		if s.Heads < 1 || s.Dim < 1 || s.Values < 0 || s.Heads > maxSize || s.Dim > maxSize || s.Values > maxSize ||
			s.Window < 0 || s.Window > maxTokens || s.From < 0 || s.From > f.Held || s.To != 0 && s.To < s.From ||
			s.To > f.Held || s.Narrow && (s.From%pageSize != 0 || s.To%pageSize != 0 || s.To == 0) {
			return fmt.Errorf("store %d: %+v", i, s.shape())
		}
	}
	return nil
}

// shape returns s without its data.
func (s Store) shape() Store {
	s.Data = nil
	return s
}

// place cuts the data into the stores' and the states'.
func (f *File) place(data []byte) error {
	cut := func(what string, i, count, size int) ([]byte, error) {
		if size > 0 && count > len(data)/size {
			return nil, fmt.Errorf("%s %d: %d times %d bytes, %d are left", what, i, count, size, len(data))
		}
		some := data[: count*size : count*size]
		data = data[count*size:]
		return some, nil
	}
	var err error
	for i := range f.Stores {
		s := &f.Stores[i]
		if s.Data, err = cut("store", i, cmp.Or(s.To, f.Held)-s.From, s.bytes(f.Element)); err != nil {
			return err
		}
	}
	for i := range f.States {
		s := &f.States[i]
		if s.Row == 0 {
			return fmt.Errorf("state %d has no rows: %s wrote it, whose states are others", i, f.Program)
		}
		if min(s.Size, s.Row, s.Rows) < 1 || max(s.Size, s.Row) > maxState || s.Rows > min(f.Held, maxRows) {
			return fmt.Errorf("state %d: %d elements, and %d rows of %d", i, s.Size, s.Rows, s.Row)
		}
		if s.Data, err = cut("state", i, s.Size+s.Row*s.Rows, 4); err != nil {
			return err
		}
	}
	if len(data) > 0 {
		return fmt.Errorf("%d bytes behind the last state", len(data))
	}
	return nil
}

// Same returns an error naming a difference between the states of f and o.
func (f *File) Same(o *File) error {
	switch {
	case f.Model != o.Model:
		return fmt.Errorf("another model, or other numerics: fingerprint %s, the file's %s", f.Model, o.Model)
	case f.Held != o.Held || f.Element != o.Element || len(f.Stores) != len(o.Stores) || len(f.States) != len(o.States):
		return fmt.Errorf("%d tokens in %d stores and %d states of %d bytes, the file has %d in %d and %d of %d",
			f.Held, len(f.Stores), len(f.States), f.Element, o.Held, len(o.Stores), len(o.States), o.Element)
	}
	for i := range f.Stores {
		a, b := &f.Stores[i], &o.Stores[i]
		switch {
		case fmt.Sprint(a.shape()) != fmt.Sprint(b.shape()):
			return fmt.Errorf("store %d is %+v, the file's %+v", i, a.shape(), b.shape())
		case !bytes.Equal(a.Data, b.Data):
			return fmt.Errorf("the keys and values of layer %d differ at byte %d of %d", a.Layer,
				differ(a.Data, b.Data), len(a.Data))
		}
	}
	for i := range f.States {
		if a, b := f.States[i], o.States[i]; !bytes.Equal(a.Data, b.Data) {
			return fmt.Errorf("state %d differs at byte %d", i, differ(a.Data, b.Data))
		}
	}
	return nil
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
