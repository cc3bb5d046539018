package safetensors

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/mmap"
)

// OpenIndex opens the files named in an index (model.safetensors.index.json), all in the index's folder. Index and
// files must agree: every tensor of a file is in the index under this file, and every tensor of the index is in its
// file.
func OpenIndex(path string) (*File, error) {
	f := &File{}
	if err := f.openIndex(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	return f, nil
}

func (f *File) openIndex(path string) error {
	if err := refusePickle(path); err != nil {
		return err
	}
	m, err := mmap.Open(path)
	if err != nil {
		return err
	}
	var weightMap map[string]string
	err = mmap.Guard(func() (err error) {
		weightMap, err = parseIndex(m.Data())
		return err
	})
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	return f.openShards(filepath.Dir(path), weightMap)
}

// parseIndex returns the index's weight_map, of tensors' names to files' names.
func parseIndex(text []byte) (weightMap map[string]string, err error) {
	if len(text) > maxHeader {
		return nil, fmt.Errorf("an index of %d bytes, at most %d are allowed", len(text), maxHeader)
	}
	if !utf8.Valid(text) {
		return nil, errors.New("the index is not UTF-8")
	}
	s := scanner{text: text}
	err = s.object(func(key string) error {
		if key != "weight_map" {
			return s.skip()
		}
		if weightMap != nil {
			return s.errorf("a second weight_map")
		}
		weightMap, err = s.strings(maxIndexed)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case s.peek() != 0 || s.pos < len(text):
		return nil, s.errorf("text after the index's object")
	case len(weightMap) == 0:
		return nil, errors.New("no weight_map, or an empty one")
	}
	for name, file := range weightMap {
		if err := checkShard(file); err != nil {
			return nil, fmt.Errorf("weight_map: tensor %.80q: %w", name, err)
		}
	}
	return weightMap, nil
}

// checkShard accepts the bare name of a safetensors file. Names in the index are not trusted to stay in its folder. The
// file itself may be a symbolic link, as in Hugging Face's cache; a download cannot plant a link.
func checkShard(file string) error {
	if !filepath.IsLocal(file) || strings.ContainsAny(file, "/\\:\x00") {
		return fmt.Errorf("file %.80q is not a bare file name", file)
	}
	if err := refusePickle(file); err != nil {
		return err
	}
	if !strings.HasSuffix(file, ".safetensors") {
		return fmt.Errorf("file %.80q is not a .safetensors file", file)
	}
	return nil
}

// openShards opens each file of the index once, in the order of their names, and gathers their tensors.
func (f *File) openShards(dir string, weightMap map[string]string) error {
	files := slices.Compact(slices.Sorted(maps.Values(weightMap)))
	for i, file := range files {
		shard, err := open(filepath.Join(dir, file))
		if err != nil {
			return inFile(file, err)
		}
		f.maps = append(f.maps, shard.maps...)
		f.Tensors = append(f.Tensors, shard.Tensors...)
		if i == 0 {
			f.Metadata = shard.Metadata
		}
		for _, t := range shard.Tensors {
			switch listed, ok := weightMap[t.Name]; {
			case !ok:
				return fmt.Errorf("tensor %q is in %s and not in the index", t.Name, file)
			case listed != file:
				return fmt.Errorf("tensor %q is in %s, the index says in %s", t.Name, file, listed)
			}
		}
	}
	if missing := len(weightMap) - len(f.Tensors); missing > 0 {
		for _, t := range f.Tensors {
			delete(weightMap, t.Name)
		}
		first := slices.Min(slices.Collect(maps.Keys(weightMap)))
		return fmt.Errorf("%d tensors of the index are in no file, the first is %q in %s", missing, first,
			weightMap[first])
	}
	f.files = weightMap
	return nil
}
