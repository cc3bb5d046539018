//go:build !karat_wasmsimd

package lab

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/mmap"
	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/tensor"
)

// What files are that are taken for records.
const (
	kindNumpy   = "a NumPy array (.npy)"
	kindZip     = "a zip archive (.npz, or what torch.save writes)"
	kindGGUF    = "a GGUF file"
	kindHDF5    = "an HDF5 file"
	kindPickle  = "a Python pickle"
	kindPicture = "a picture"
	kindGzip    = "a gzip archive"
	kindJSON    = "a JSON file"
	kindText    = "a text file"
)

// kindOf says what the file at path is by its first bytes, "" if these say nothing.
func kindOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	data := make([]byte, 256)
	n, _ := io.ReadFull(f, data)
	head := string(data[:n])
	for _, k := range []struct{ magic, kind string }{{"\x93NUMPY", kindNumpy}, {"PK\x03\x04", kindZip},
		{"PK\x05\x06", kindZip}, {"GGUF", kindGGUF}, {"\x89HDF", kindHDF5},
		{"\x1f\x8b", kindGzip}, {"\x80\x02", kindPickle}, {"\x80\x03", kindPickle}, {"\x80\x04", kindPickle},
		{"\x80\x05", kindPickle}, {"\x89PNG", kindPicture}, {"\xff\xd8\xff", kindPicture}} {
		// also a possible beginning of a safetensors header's length
		if strings.HasPrefix(head, k.magic) && !strings.HasPrefix(head[min(8, n):], "{") {
			return k.kind
		}
	}
	for range utf8.UTFMax - 1 { // of the last character, which may be cut
		if n == len(data) && !utf8.ValidString(head) {
			head = head[:len(head)-1]
		}
	}
	switch text := strings.TrimSpace(head); {
	case !utf8.ValidString(head) || strings.ContainsFunc(head, func(c rune) bool {
		return unicode.IsControl(c) && !strings.ContainsRune("\t\n\r", c)
	}) || text == "":
		return "" // not the bytes of text, as a safetensors header's length is not
	case text[0] == '{' || text[0] == '[':
		return kindJSON
	}
	return kindText
}

// OpenArray opens a file of one array as a prompt's: a NumPy file or, with a shape, float32 numbers and nothing
// else. name is that of the record's tensor or tap; without it the file's says it.
func OpenArray(path, name string, shape []int) (*Import, error) {
	r, err := openArray(path, name, shape)
	if err != nil {
		return nil, fmt.Errorf("import: %s: %w", path, err)
	}
	return &Import{Form: FormDump, count: len(r.Prompts), file: r,
		prompt: func(n int) (*Prompt, error) { return r.Prompts[n], nil }}, nil
}

func openArray(path, name string, shape []int) (*Record, error) {
	if shape == nil {
		if kind := kindOf(path); kind != kindNumpy && kind != kindZip {
			return nil, errors.New("not a NumPy file: a file of numbers alone needs --shape")
		}
		return readNumpy(path, name)
	}
	if kind := kindOf(path); kind == kindNumpy || kind == kindZip {
		return nil, fmt.Errorf("it is %s, which says its shape itself", kind)
	}
	size, err := tensor.Bytes(tensor.F32, shape)
	if err != nil {
		return nil, fmt.Errorf("shape %v: %w", shape, err)
	}
	f, err := mmap.Open(path)
	if err != nil {
		return nil, err
	}
	if len(f.Data()) != size {
		return nil, errors.Join(fmt.Errorf("%d bytes: shape %v of float32 has %d", len(f.Data()), shape, size),
			f.Close())
	}
	r := &Record{Path: path, file: f}
	return r.arrays([]arrayInfo{arrayOf(path, name)}, []*npy.Array{{Type: "f4", Shape: shape, Data: f.Data()}})
}

// arrayOf names the array of a file.
func arrayOf(path, name string) arrayInfo {
	if name == "" {
		name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return arrayInfo{Name: name, File: path, Prompt: new(int)}
}

// arrays fills r with arrays, or closes it.
func (r *Record) arrays(infos []arrayInfo, all []*npy.Array) (*Record, error) {
	err := mmap.Guard(func() error {
		var tensors []tensor.Tensor
		seen := map[string]string{}
		for i, a := range infos {
			t, err := a.tensor(all[i])
			if err != nil {
				return fmt.Errorf("%q: %w", a.Name, err)
			}
			t.Name = a.tensorName()
			if before, ok := seen[t.Name]; ok {
				return fmt.Errorf("%q: %q, which %q is as well", a.Name, t.Name, before)
			}
			seen[t.Name] = a.Name
			tensors = append(tensors, t)
		}
		return r.fill(tensors)
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// readNumpy reads a .npy or .npz file; name is that of the first's array, "" for the file's.
func readNumpy(path, name string) (*Record, error) {
	if kindOf(path) == kindZip {
		if name != "" {
			return nil, errors.New("an .npz file names its arrays itself")
		}
		return readZip(path)
	}
	f, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	var x *npy.Array
	err = mmap.Guard(func() (err error) {
		x, err = npy.Parse(f.Data())
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dump: %s: %w", path, err), f.Close())
	}
	return (&Record{Path: path, file: f}).arrays([]arrayInfo{arrayOf(path, name)}, []*npy.Array{x})
}

// Bounds of the arrays an archive packs, unpacked into memory. Arrays that are stored unpacked are
// mapped.
const (
	maxUnpacked = 768 << 20
	maxRatio    = 100      // unpacked bytes to packed ones. Numbers seldom reach 10
	anyRatio    = 16 << 20 // unpacked bytes that may have any ratio, as those of masks
)

// readZip reads an .npz file, and the JSON file beside it if there is one.
func readZip(path string) (*Record, error) {
	f, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	var infos []arrayInfo
	var all []*npy.Array
	err = mmap.Guard(func() (err error) {
		infos, all, err = zipped(f.Data())
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dump: %s: %w", path, err), f.Close())
	}
	r := &Record{Path: path, file: f}
	if err := readJSON(infoPath(path), r.addInfo); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("dump: %s: %w", path, err), f.Close())
	}
	return r.arrays(infos, all)
}

// zipped reads the arrays of an archive.
func zipped(data []byte) (infos []arrayInfo, all []*npy.Array, err error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, nil, err
	}
	if len(z.File) > maxArrays {
		return nil, nil, fmt.Errorf("%d arrays, at most %d", len(z.File), maxArrays)
	}
	left := uint64(maxUnpacked)
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if !ok {
			return nil, nil, fmt.Errorf("%q: not a NumPy array: it is no .npz file (one of torch.save: save "+
				"numpy arrays instead)", f.Name)
		}
		x, err := readEntry(data, f, &left)
		if err != nil {
			return nil, nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		infos, all = append(infos, arrayInfo{Name: name, File: f.Name, Prompt: new(int)}), append(all, x)
	}
	return infos, all, nil
}

// readEntry reads an array. One that is packed takes of left. Its size is compared with the packed one before there
// is memory for it.
func readEntry(archive []byte, f *zip.File, left *uint64) (*npy.Array, error) {
	size, packed := f.UncompressedSize64, f.CompressedSize64
	if f.Method == zip.Store {
		at, err := f.DataOffset()
		if err != nil || size != packed || size > uint64(len(archive)) || uint64(at) > uint64(len(archive))-size {
			return nil, errors.Join(errors.New("it runs past the end of the archive"), err)
		}
		data := archive[at : uint64(at)+size]
		if crc32.ChecksumIEEE(data) != f.CRC32 {
			return nil, zip.ErrChecksum
		}
		return npy.Parse(data)
	}
	switch {
	case packed > uint64(len(archive)) || size > anyRatio && size/maxRatio > packed:
		return nil, fmt.Errorf("%d bytes are packed into %d, as numbers never are; numpy.savez writes arrays "+
			"as they are", size, packed)
	case size > *left:
		return nil, fmt.Errorf("the packed arrays have more than %d MiB; numpy.savez writes them as they are, "+
			"which are mapped", maxUnpacked>>20)
	}
	*left -= size
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	if n, err := r.Read(make([]byte, 1)); n > 0 || err != io.EOF { // where the checksum is compared
		return nil, errors.Join(errors.New("it has another size than it says"), err)
	}
	return npy.Parse(data)
}

// numpyTypes are the types of the elements that are written.
var numpyTypes = map[tensor.DType]string{tensor.F32: "f4", tensor.F64: "f8", tensor.F16: "f2", tensor.I32: "i4",
	tensor.I64: "i8"}

// WriteNumpy writes the record at path as a folder of NumPy files ReadDump opens: an array PROMPT.NAME.npy for
// each tensor, and the record's JSON as manifest.json. The folder is new or empty.
func WriteNumpy(dir, path string) error {
	r, err := ReadRecord(path)
	if err != nil {
		return err
	}
	defer r.Close()
	info, err := os.ReadFile(infoPath(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("numpy: %w", err)
	}
	err = atomicfile.WriteFolder(dir, func(dir string) error {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		defer root.Close()
		if info != nil {
			if err := root.WriteFile("manifest.json", info, 0o666); err != nil {
				return err
			}
		}
		for _, p := range r.Prompts {
			for _, t := range p.tensors() {
				if err := writeArray(root, &t); err != nil {
					return fmt.Errorf("%s: %w", t.Name, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("numpy: %w", err)
	}
	return nil
}

func writeArray(root *os.Root, t *tensor.Tensor) error {
	kind, ok := numpyTypes[t.DType]
	if !ok {
		return fmt.Errorf("NumPy has no elements of type %v", t.DType)
	}
	f, err := root.Create(t.Name + ".npy")
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = mmap.Guard(func() error { return npy.Write(b, &npy.Array{Type: kind, Shape: t.Shape, Data: t.Data}) })
	if err == nil {
		err = b.Flush()
	}
	return errors.Join(err, f.Close())
}
