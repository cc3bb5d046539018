package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// The keys of a split model, in each part (gguf-split in llama.cpp).
const (
	splitNo      = "split.no"            // the part's number, from 0
	splitCount   = "split.count"         // how many parts there are
	splitTensors = "split.tensors.count" // tensors in all parts together
)

// splitName takes apart the path of part no, from 1, of count: PREFIX-00001-of-0000N.gguf.
func splitName(path string) (prefix string, no, count int, ok bool) {
	end := len(path) - len("-00001-of-00002.gguf")
	if end < 0 {
		return "", 0, 0, false
	}
	digits, of, _ := strings.Cut(strings.TrimSuffix(path[end+1:], ".gguf"), "-of-")
	no, _ = strconv.Atoi(digits) // fmt.Sscanf would cost every program 40 kB
	count, _ = strconv.Atoi(of)
	prefix = path[:end]
	return prefix, no, count, partPath(prefix, no, count) == path // five digits each, no signs
}

// PartPath returns the path of part no, from 1, of count parts of a split model.
func PartPath(path string, no, count int) string {
	if prefix, _, _, ok := splitName(path); ok {
		path = prefix
	}
	return partPath(strings.TrimSuffix(path, ".gguf"), no, count)
}

// IsPart reports whether a file's name has the form of a part's.
func IsPart(path string) bool {
	_, _, _, ok := splitName(path)
	return ok
}

// PartKeys returns the keys of a part of a split model; tensors is the number in all parts. In the first part they
// follow the model's metadata, and other parts have no further keys (gguf-split in llama.cpp).
func PartKeys(no, count, tensors int) []KeyValue {
	return []KeyValue{{splitNo, uint16(no - 1)}, {splitCount, uint16(count)}, {splitTensors, int32(tensors)}}
}

// IsPartKey reports whether a key is among PartKeys.
func IsPartKey(key string) bool { return key == splitNo || key == splitCount || key == splitTensors }

func partPath(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no, count)
}

// opener opens the file at path without looking at its place in a split model. In errors what names the part.
type opener func(path, what string) (*File, error)

// openSplit opens all parts. Their names come from the caller's path: no text of a file ever chooses another file.
func openSplit(prefix string, count int, open opener) (*File, error) {
	f := &File{}
	for no := 1; no <= count; no++ {
		if err := f.openNext(partPath(prefix, no, count), no, count, open); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if err := f.checkKey(splitTensors, len(f.tensors), count == 1); err != nil {
		return nil, errors.Join(withPath(err, f.parts[0].path), f.Close())
	}
	return f, nil
}

// openNext opens part no and adds it to f, which has the parts before no.
func (f *File) openNext(path string, no, count int, open opener) error {
	p, err := open(path, fmt.Sprintf("part %d of %d: ", no, count))
	if err != nil {
		return err
	}
	err = p.checkKey(splitCount, count, count == 1)
	if err == nil {
		err = p.checkKey(splitNo, no-1, count == 1)
	}
	if err == nil && no > 1 {
		err = f.join(p)
	}
	if err != nil {
		return errors.Join(withPath(err, path), p.Close())
	}
	if no == 1 {
		*f = *p
	}
	return nil
}

// join appends the tensors of the next part. Metadata of later parts, besides the keys of the split, is dropped: the
// first part has all.
func (f *File) join(p *File) error {
	if n := len(f.tensors) + len(p.tensors); n > maxTensors {
		return &Error{Name: "header", Offset: 8, What: "too many tensors in all parts",
			Declared: fmt.Sprint(n), Allowed: fmt.Sprintf("at most %d", maxTensors)}
	}
	for i, t := range p.tensors {
		at := p.places[i].offset
		if old, ok := f.index[t.Name]; ok {
			first := filepath.Base(f.parts[f.places[old].part].path)
			return &Error{Name: subject{kind: "tensor", name: t.Name}.String(), Offset: at,
				What: "the tensor is also in " + first}
		}
		f.index[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
		f.places = append(f.places, place{len(f.parts), at})
	}
	f.parts = append(f.parts, p.parts...)
	return nil
}

// checkKey compares an integer among the split's keys with the expected value.
func (f *File) checkKey(key string, want int, optional bool) error {
	n, err := f.Metadata.Uint(key)
	switch {
	case errors.Is(err, ErrNoKey) && optional:
		return nil
	case errors.Is(err, ErrNoKey):
		return &Error{Name: keySubject(key).String(), What: "a part of a split model lacks the key",
			Allowed: fmt.Sprint(want)}
	case err != nil:
		return err
	case n != uint64(want):
		return f.Metadata.values[key].problem("the parts are not those of one model, in order", fmt.Sprint(n),
			fmt.Sprint(want))
	}
	return nil
}

// checkAlone refuses a part whose other parts cannot be found.
func (f *File) checkAlone() error {
	n, err := f.Metadata.Uint(splitCount)
	if errors.Is(err, ErrNoKey) || err == nil && n <= 1 {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Metadata.values[splitCount].problem(
		"one part of a split model, whose name does not tell where the others are", fmt.Sprint(n),
		"1, or the name NAME-00001-of-0000N.gguf")
}
