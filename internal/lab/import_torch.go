//go:build !karat_wasmsimd

package lab

import (
	"archive/zip"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/tensor"
)

// importTorch reads what torch.save wrote: tensors by their names in a dict, or a folder of such files as SGLang's
// dumper writes them, a file for each value.
func importTorch(path string) (*Import, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	t := torchDump{record: &Record{Path: path}}
	if st.IsDir() {
		err = t.folder(path)
	} else {
		err = t.add(path, strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), 0)
	}
	if err == nil && len(t.infos) == 0 {
		err = fmt.Errorf("no tensors of floats or ids%s", t.left("; "))
	}
	if err != nil {
		return nil, err
	}
	r, err := t.record.arrays(t.infos, t.arrays)
	if err != nil {
		return nil, err
	}
	if note := t.left(""); note != "" {
		t.notes = append(t.notes, note)
	}
	return &Import{Form: FormTorch, Notes: append(t.notes, steps(r)...), count: len(r.Prompts), file: r,
		prompt: func(n int) (*Prompt, error) { return r.Prompts[n], nil }}, nil
}

// torchDump gathers the tensors of files.
type torchDump struct {
	record *Record
	infos  []arrayInfo
	arrays []*npy.Array
	notes  []string
	size   int // bytes of arrays
	visits int // of values, of which some may be in several places

	unread int    // values left out, though they may be tensors
	first  string // one of them
}

// left returns a sentence on the values left out, with something before it, or "".
func (t *torchDump) left(before string) string {
	if t.unread == 0 {
		return ""
	}
	return fmt.Sprintf("%svalues that are not read: %d, the first is %s", before, t.unread, t.first)
}

func (t *torchDump) leave(format string, args ...any) {
	if t.unread++; t.unread == 1 {
		t.first = fmt.Sprintf(format, args...)
	}
}

// folder reads files named KEY=VALUE___KEY=VALUE.pt: name is the tap's, layer_id its layer, and each forward_pass_id is
// a prompt. Of a name's values in a pass the first by dump_index counts, and of several ranks rank 0.
func (t *torchDump) folder(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return patherr.Plain(err)
	}
	type dumped struct {
		file, name  string
		pass, index int
	}
	var all []dumped
	ranks := false
	for _, f := range files {
		base, ok := strings.CutSuffix(f.Name(), ".pt")
		facts := map[string]string{}
		for part := range strings.SplitSeq(base, "___") {
			key, value, _ := strings.Cut(part, "=")
			facts[key] = value
		}
		if !ok || facts["name"] == "" {
			continue
		}
		if rank := cmp.Or(facts["rank"], "0"); rank != "0" {
			ranks = true
			continue
		}
		name := facts["name"]
		if layer := facts["layer_id"]; layer != "" {
			name += "." + layer
		}
		pass, _ := strconv.Atoi(facts["forward_pass_id"]) // None is the first
		index, _ := strconv.Atoi(facts["dump_index"])
		all = append(all, dumped{filepath.Join(dir, f.Name()), name, pass, index})
	}
	if ranks {
		t.notes = append(t.notes, "files of other ranks than 0 are left out: values that ranks share are parts")
	}
	slices.SortStableFunc(all, func(a, b dumped) int {
		return cmp.Or(cmp.Compare(a.pass, b.pass), cmp.Compare(a.index, b.index))
	})
	prompt, seen := -1, map[string]bool{}
	for i, d := range all {
		if i == 0 || d.pass != all[i-1].pass {
			prompt, seen = prompt+1, map[string]bool{}
		}
		if seen[d.name] {
			continue
		}
		seen[d.name] = true
		if err := t.add(d.file, d.name, prompt); err != nil {
			return err
		}
	}
	return nil
}

// add reads a file. A tensor alone has the given name.
func (t *torchDump) add(path, name string, prompt int) error {
	f, err := mmap.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return mmap.Guard(func() error {
		v, err := readTorch(f.Data())
		if err == nil {
			err = t.take(f.Data(), v, "", name, prompt)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
}

// take adds the tensors of a value. Of a list, such as the results of a module, the first tensor counts; of SGLang's
// {"value": tensor, "meta": ...} the value.
func (t *torchDump) take(archive []byte, v any, name, alone string, prompt int) error {
	if t.visits++; t.visits > maxArrays || strings.Count(name, ".") > 64 {
		return errors.New("more values than a dump has, or values inside themselves")
	}
	switch v := v.(type) {
	case *torchTensor:
		x, bf16, err := v.array(archive, maxUnpacked-t.size)
		if err != nil {
			return fmt.Errorf("%q: %w", cmp.Or(name, alone), err)
		}
		if x == nil || len(t.infos) == maxArrays {
			return nil
		}
		info := arrayInfo{Name: cmp.Or(name, alone), Prompt: &prompt}
		if bf16 {
			info.DType = "bf16"
		}
		t.size += len(x.Data)
		t.infos, t.arrays = append(t.infos, info), append(t.arrays, x)
	case *pickleCall:
		t.leave("%q, made by %.80q", cmp.Or(name, alone), string(v.name))
	case *pickleList:
		for _, x := range v.items {
			switch x.(type) {
			case *torchTensor:
				return t.take(archive, x, name, alone, prompt)
			case *pickleCall:
				t.take(archive, x, name, alone, prompt)
			}
		}
	case *pickleDict:
		if x, ok := v.find("value").(*torchTensor); ok && v.find("meta") != nil {
			return t.take(archive, x, name, alone, prompt)
		}
		for i, key := range v.keys {
			key, ok := key.(string)
			if !ok {
				t.leave("number %d of %q: its key is no text", i, cmp.Or(name, alone))
				continue
			}
			if name != "" {
				key = name + "." + key
			}
			if err := t.take(archive, v.values[i], key, alone, prompt); err != nil {
				return err
			}
		}
	}
	return nil
}

// torchTensor is a view of a storage.
type torchTensor struct {
	kind, key     string // of the storage: FloatStorage, and the name of its file
	offset        int
	shape, stride []int
}

// torchTypes are the types of storages that are read: NumPy's, and their sizes.
var torchTypes = map[string]struct {
	npy  string
	size int
}{"FloatStorage": {"f4", 4}, "DoubleStorage": {"f8", 8}, "HalfStorage": {"f2", 2}, "BFloat16Storage": {"u2", 2},
	"IntStorage": {"i4", 4}, "LongStorage": {"i8", 8}}

// array copies a tensor's elements, of at most so many bytes. The result is nil for other types.
func (v *torchTensor) array(archive []byte, most int) (x *npy.Array, bf16 bool, err error) {
	kind, ok := torchTypes[v.kind]
	if !ok {
		return nil, false, nil
	}
	data, err := torchFile(archive, "/data/"+v.key)
	if err != nil {
		return nil, false, err
	}
	size, err := tensor.Bytes(tensor.F32, v.shape)
	if err != nil || size/4*kind.size > most || len(v.shape) != len(v.stride) {
		return nil, false, fmt.Errorf("shape %v, strides %v: larger than %d bytes, or not of one tensor", v.shape,
			v.stride, most)
	}
	last := v.offset
	for i, n := range v.shape {
		if v.stride[i] < 0 || v.stride[i] > len(data) || n > 0 && (n-1)*v.stride[i] > len(data) {
			return nil, false, fmt.Errorf("strides %v", v.stride)
		}
		last += max(n-1, 0) * v.stride[i]
	}
	if size > 0 && (v.offset < 0 || v.offset > len(data) || (last+1)*kind.size > len(data)) {
		return nil, false, fmt.Errorf("element %d of a storage of %d bytes", last, len(data))
	}
	x = &npy.Array{Type: kind.npy, Shape: slices.Clone(v.shape), Data: make([]byte, 0, size/4*kind.size)}
	at := make([]int, len(v.shape))
	for range size / 4 {
		from := v.offset
		for i := range at {
			from += at[i] * v.stride[i]
		}
		x.Data = append(x.Data, data[from*kind.size:(from+1)*kind.size]...)
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < v.shape[i] {
				break
			}
			at[i] = 0
		}
	}
	return x, v.kind == "BFloat16Storage", nil
}

// torchFile returns the bytes of a file of the archive, by the end of its name.
func torchFile(archive []byte, end string) ([]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, errors.New("not what torch.save writes since version 1.6, a zip archive")
	}
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, end) {
			continue
		}
		at, err := f.DataOffset()
		size := f.UncompressedSize64
		if err != nil || f.Method != zip.Store || size > uint64(len(archive)) ||
			uint64(at) > uint64(len(archive))-size {
			return nil, errors.Join(fmt.Errorf("%s: packed, or past the end of the archive", f.Name), err)
		}
		return archive[at : uint64(at)+size], nil
	}
	return nil, fmt.Errorf("no file %s in the archive", end)
}

// readTorch returns the value of an archive: tensors, dicts, lists, texts and numbers.
func readTorch(archive []byte) (any, error) {
	data, err := torchFile(archive, "/data.pkl")
	if err != nil {
		return nil, err
	}
	if order, err := torchFile(archive, "/byteorder"); err == nil && string(order) != "little" {
		return nil, fmt.Errorf("the numbers are of byteorder %.20q, want little", order)
	}
	return unpickle(data)
}
