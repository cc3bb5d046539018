package lab

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// Writer writes a record, prompt by prompt. A safetensors file begins with where all of its
// tensors lie, so until Commit they wait in a file beside it, not in memory.
type Writer struct {
	Names string // whose names the taps have; "" is NamesHF

	path    string
	record  Record // the parts added so far, without tensors
	waiting *atomicfile.File
	size    int             // of waiting
	tensors []tensor.Tensor // in the order of waiting, without data
	failed  error           // of an Add
	closed  bool
}

// Create begins a record at path, with its JSON file beside it. Nothing appears there
// before Commit. An existing file that is not regular is an error.
func Create(path string) (*Writer, error) {
	if infoPath(path) == path {
		return nil, fmt.Errorf("write: %s is where the record's JSON file would lie", path)
	}
	for _, p := range []string{path, infoPath(path)} {
		if err := atomicfile.Check(p); err != nil {
			return nil, err
		}
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{path: path, waiting: f}, nil
}

// Add writes a prompt; after an error there is only Close. Its index is new, and its tensors are as ReadRecord
// wants them, whatever their names; IDs are written if there are any. The
// tensors may change after Add, the rest may not.
func (w *Writer) Add(p *Prompt) error {
	if w.failed == nil {
		if err := w.add(p); err != nil {
			w.failed = fmt.Errorf("write: prompt %d: %w", p.Index, err)
		}
	}
	return w.failed
}

func (w *Writer) add(p *Prompt) error {
	i, ok := w.record.find(p.Index)
	switch {
	case w.closed:
		return errors.New("the writer is closed")
	case ok:
		return errors.New("it was added before")
	case len(w.record.Prompts) == maxPrompts:
		return fmt.Errorf("a record has at most %d prompts", maxPrompts)
	}
	// The check is the reader's, so that every written file can be read.
	var read Record
	for _, t := range p.tensors() {
		if err := read.add(&t); err != nil {
			return err
		}
		if _, err := w.waiting.Write(t.Data); err != nil {
			return err
		}
		w.size += len(t.Data)
		t.Data = nil
		w.tensors = append(w.tensors, t)
	}
	info := *p
	info.Logits, info.Hidden, info.Taps = nil, nil, nil
	w.record.Prompts = slices.Insert(w.record.Prompts, i, &info)
	return p.check()
}

// tensors returns the prompt's tensors under their names in a record.
func (p *Prompt) tensors() []tensor.Tensor {
	var all []tensor.Tensor
	add := func(name string, t *tensor.Tensor) {
		if t != nil {
			all = append(all, tensor.Tensor{Name: fmt.Sprintf("%d.%s", p.Index, name), DType: t.DType,
				Shape: slices.Clone(t.Shape), Data: t.Data})
		}
	}
	if p.IDs != nil {
		var data []byte
		for _, id := range p.IDs {
			data = binary.LittleEndian.AppendUint32(data, uint32(id))
		}
		add("ids", &tensor.Tensor{DType: tensor.I32, Shape: tensor.Shape{len(p.IDs)}, Data: data})
	}
	add("logits", p.Logits)
	add("hidden", p.Hidden)
	for _, name := range slices.Sorted(maps.Keys(p.Taps)) {
		add("tap."+name, p.Taps[name])
	}
	return all
}

// Commit writes the record's two files, in place of others or not at all, and closes the
// writer; numerics is marshaled to a JSON object, or nil.
func (w *Writer) Commit(numerics any) error {
	if w.failed != nil {
		return errors.Join(w.failed, w.Close())
	}
	return errors.Join(w.commit(numerics), w.Close())
}

func (w *Writer) commit(numerics any) error {
	if w.closed {
		return errors.New("the writer is closed")
	}
	info, err := w.info(numerics)
	if err != nil {
		return err
	}
	m, err := mmap.Open(w.waiting.Name())
	if err != nil {
		return err
	}
	data := m.Data()
	if len(data) != w.size {
		return errors.Join(fmt.Errorf("%s: %d bytes, but %d were written", w.waiting.Name(), len(data), w.size),
			m.Close())
	}
	for i := range w.tensors {
		t := &w.tensors[i]
		n := t.DType.RowBytes(t.Shape.Size())
		t.Data, data = data[:n], data[n:]
	}
	err = w.files(info)
	w.tensors = nil
	return errors.Join(err, m.Close())
}

// files writes and commits the two files.
func (w *Writer) files(info []byte) error {
	tensors, err := atomicfile.Create(w.path)
	if err != nil {
		return err
	}
	defer tensors.Close()
	if err := mmap.Guard(func() error { return safetensors.Write(tensors, w.tensors, nil) }); err != nil {
		return err
	}
	beside, err := atomicfile.Create(infoPath(w.path))
	if err != nil {
		return err
	}
	defer beside.Close()
	if _, err := beside.Write(info); err != nil {
		return err
	}
	return atomicfile.CommitAll(tensors, beside)
}

// info returns the text of the JSON file.
func (w *Writer) info(numerics any) ([]byte, error) {
	type info struct {
		Prompts  []*Prompt `json:"prompts"`
		Names    string    `json:"names"`
		Numerics any       `json:"numerics,omitempty"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(info{w.record.Prompts, cmp.Or(w.Names, NamesHF), numerics}); err != nil {
		return nil, err
	}
	if b.Len() > maxJSON {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read", infoPath(w.path), b.Len(), maxJSON)
	}
	return b.Bytes(), nil
}

// Close gives up the record unless it was committed. A second Close does nothing.
func (w *Writer) Close() error {
	w.closed = true
	return w.waiting.Close()
}
