//go:build !karat_wasmsimd

// The page's program reads records in memory alone: archive/zip would bring compressors along.

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// maxArrays is the number of files of a dump. Each is a mapping of its own, of which Linux
// gives a process 65530.
const maxArrays = 1 << 15

// ReadRecord opens the record at path, a safetensors file, and reads the JSON file beside path if there is one,
// both as the same commit left them. The tensors stay in the file, so Close the record.
func ReadRecord(path string) (*Record, error) {
	if infoPath(path) == path {
		return readRecord(path)
	}
	return atomicfile.Open([]string{path, infoPath(path)}, func() (*Record, error) { return readRecord(path) })
}

func readRecord(path string) (*Record, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		if kind := kindOf(path); kind != "" {
			return nil, fmt.Errorf("record: %s: it is %s, not safetensors%s", path, kind, instead(kind))
		}
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Record{Path: path, file: f}
	if err := r.read(f); err != nil {
		return nil, errors.Join(fmt.Errorf("record: %s: %w", path, err), f.Close())
	}
	return r, nil
}

// instead says what to do with a file of a kind.
func instead(kind string) string {
	switch kind {
	case kindJSON:
		return ": if it lies beside a record, or in a folder of arrays, name these"
	case kindNumpy, kindZip, kindText:
		return ": karat lab import makes a record of some others"
	}
	return ""
}

func (r *Record) read(f *safetensors.File) error {
	if err := readJSON(infoPath(r.Path), r.addInfo); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return mmap.Guard(func() error { return r.fill(f.Tensors) })
}

// ReadDump opens an engine's dump: a record; a folder of NumPy files, each an array named like a record's tensor;
// or a single NumPy file, .npy or .npz. An array's name is the file's name without .npy, or the name in
// manifest.json (see manifest). ids, token_ids, logits and names of taps without "PROMPT.tap." belong to the only
// prompt. Close the record.
func ReadDump(path string) (*Record, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", patherr.Plain(err))
	}
	if !st.IsDir() {
		switch kindOf(path) {
		case kindNumpy, kindZip:
			return readNumpy(path, "")
		}
		return ReadRecord(path)
	}
	r, maps := &Record{Path: path}, mappings{}
	if err := r.readFolder(&maps); err != nil {
		return nil, errors.Join(fmt.Errorf("dump: %s: %w", path, err), maps.Close())
	}
	r.file = &maps
	return r, nil
}

// mappings are the files of a folder's record, by name.
type mappings map[string]*mmap.File

func (m *mappings) Close() error {
	var errs []error
	for _, f := range *m {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

func (r *Record) readFolder(maps *mappings) error {
	root, err := os.OpenRoot(r.Path)
	if err != nil {
		return err
	}
	defer root.Close()
	m := &manifest{}
	if _, err := root.Stat("manifest.json"); err == nil {
		if err := readJSON(filepath.Join(r.Path, "manifest.json"), m.parse); err != nil {
			return err
		}
		if err := r.addInfo(m.info); err != nil {
			return fmt.Errorf("manifest.json: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.addFiles(root); err != nil {
		return err
	}
	prompt := 0
	if len(r.Prompts) == 1 {
		prompt = r.Prompts[0].Index
	}
	var all []tensor.Tensor
	seen := map[string]string{}
	for _, a := range m.arrays {
		if a.Prompt == nil {
			a.Prompt = &prompt
		}
		name := a.tensorName()
		if before, ok := seen[name]; ok {
			return fmt.Errorf("%q: %q, which %q is, too", a.File, name, before)
		}
		seen[name] = a.File
		t, err := a.read(root, r.Path, maps)
		if err != nil {
			return fmt.Errorf("%q: %w", a.File, err)
		}
		t.Name = name
		all = append(all, t)
	}
	return mmap.Guard(func() error { return r.fill(all) })
}

// addFiles adds the folder's NumPy files the manifest does not name.
func (m *manifest) addFiles(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	named := map[string]bool{}
	for _, a := range m.arrays {
		named[filepath.Clean(a.File)] = true
	}
	files, err := dir.ReadDir(0)
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, f := range files {
		if name, ok := strings.CutSuffix(f.Name(), ".npy"); ok && !named[f.Name()] {
			m.arrays = append(m.arrays, arrayInfo{Name: name, File: f.Name()})
		}
	}
	if len(m.arrays) > maxArrays {
		return fmt.Errorf("%d arrays, at most %d", len(m.arrays), maxArrays)
	}
	return nil
}

// tensorName returns the array's name in a record.
func (a *arrayInfo) tensorName() string {
	name := strings.TrimSuffix(a.Name, ".npy")
	if number, rest, ok := strings.Cut(name, "."); ok {
		kind, _, _ := strings.Cut(rest, ".")
		if _, err := strconv.Atoi(number); err == nil &&
			slices.Contains([]string{"ids", "logits", "hidden", "tap"}, kind) {
			return name
		}
	}
	switch name {
	case "ids", "token_ids", "input_ids", "tokens":
		name = "ids"
	case "logits", "hidden":
	default:
		name = "tap." + strings.TrimPrefix(name, "tap.")
	}
	return fmt.Sprintf("%d.%s", *a.Prompt, name)
}

// read maps the array's file, which lies in root, the folder at dir.
func (a *arrayInfo) read(root *os.Root, dir string, maps *mappings) (t tensor.Tensor, err error) {
	f := (*maps)[a.File]
	if f == nil {
		if _, err := root.Stat(a.File); err != nil { // which is where a path that leads out of the folder ends
			return t, err
		}
		if f, err = mmap.Open(filepath.Join(dir, a.File)); err != nil {
			return t, err
		}
		(*maps)[a.File] = f
	}
	err = mmap.Guard(func() error {
		x, err := npy.Parse(f.Data())
		if err != nil {
			return err
		}
		t, err = a.tensor(x)
		return err
	})
	return t, err
}

// tensor returns x as a record has the array, without leading dimensions of 1
// where the number of dimensions is fixed.
func (a *arrayInfo) tensor(x *npy.Array) (tensor.Tensor, error) {
	t := tensor.Tensor{Shape: x.Shape, Data: x.Data}
	switch dtype := strings.ToLower(a.DType); x.Type {
	case "f2":
		t.DType = tensor.F16
	case "f4":
		t.DType = tensor.F32
	case "f8":
		t.DType = tensor.F64
	case "u2":
		if !strings.HasSuffix(dtype, "bf16") && !strings.HasSuffix(dtype, "bfloat16") {
			return t, fmt.Errorf("16-bit integers that the manifest has as %q; bfloat16 is read", a.DType)
		}
		t.DType = tensor.BF16
	case "i4":
		t.DType = tensor.I32
	case "i8":
		t.DType = tensor.I64
	}
	kind := a.tensorName()
	dims := map[string]int{"ids": 1, "logits": 2, "hidden": 3}[kind[strings.IndexByte(kind, '.')+1:]]
	for dims > 0 && len(t.Shape) > dims && t.Shape[0] == 1 {
		t.Shape = t.Shape[1:]
	}
	for len(t.Shape) < dims {
		t.Shape = append(tensor.Shape{1}, t.Shape...)
	}
	return t, nil
}
