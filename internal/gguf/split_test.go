package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/mmap"
)

// splitPart is part no, from 0, of count, with these tensors of one number each.
func splitPart(no, count, total uint32, names ...string) spec {
	s := spec{keys: [][]byte{
		key("split.no", 2, u16(uint16(no))),
		key("split.count", 2, u16(uint16(count))),
		key("split.tensors.count", 5, u32(total)),
	}}
	if no == 0 {
		s.keys = append(s.keys, key("general.name", 8, str("whole")))
	}
	for i, name := range names {
		s.entries = append(s.entries, tensorEntry(name, 0, uint64(i)*32, 8))
		s.data = append(s.data, bytes.Repeat([]byte(name[:1]), 32)...)
	}
	return s
}

// splitParts are three correct parts, the first without tensors as gguf-split can
// make it.
func splitParts() []spec {
	return []spec{splitPart(0, 3, 3), splitPart(1, 3, 3, "b", "a"), splitPart(2, 3, 3, "c")}
}

func writeParts(t *testing.T, parts []spec) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, p := range parts {
		if p.keys == nil {
			continue // a missing part
		}
		path := filepath.Join(dir, fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, len(parts)))
		if err := os.WriteFile(path, p.bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSplit(t *testing.T) {
	dir := writeParts(t, splitParts())
	for no := 1; no <= 3; no++ {
		f, err := Open(filepath.Join(dir, fmt.Sprintf("m-%05d-of-00003.gguf", no)))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, x := range f.Tensors() {
			names = append(names, x.Name)
			if want := bytes.Repeat([]byte(x.Name), 32); !bytes.Equal(x.Data, want) {
				t.Errorf("part %d: %s = %q", no, x.Name, x.Data)
			}
		}
		if !slices.Equal(names, []string{"b", "a", "c"}) {
			t.Errorf("part %d: tensors %v", no, names)
		}
		if s, err := f.Metadata.String("general.name"); s != "whole" || err != nil {
			t.Errorf("part %d: name %q, %v", no, s, err)
		}
		path, offset, ok := f.Place("a")
		if !ok || path != filepath.Join(dir, "m-00002-of-00003.gguf") {
			t.Errorf("part %d: a is in %q, %v", no, path, ok)
		}
		if b, err := os.ReadFile(path); err != nil || b[offset] != 'a' || b[offset-1] != 'b' {
			t.Errorf("part %d: a is not at byte %d", no, offset)
		}
		if len(f.Paths()) != 3 {
			t.Errorf("part %d: paths %v", no, f.Paths())
		}
		if err := f.Close(); err != nil {
			t.Errorf("part %d: %v", no, err)
		}
	}
}

// TestSplitOne opens a file that is its only part, with and without the keys.
func TestSplitOne(t *testing.T) {
	for _, s := range []spec{splitPart(0, 1, 1, "a"), valid()} {
		f, err := Open(filepath.Join(writeParts(t, []spec{s}), "m-00001-of-00001.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testSplits is A11: parts that are missing, doubled, in the wrong place or of
// another model, and files that shrink while they are mapped.
func testSplits(t *testing.T) {
	without := func(key int) []spec {
		p := splitParts()
		p[1].keys = slices.Delete(p[1].keys, key, key+1)
		return p
	}
	part := func(i int, s spec) []spec {
		p := splitParts()
		p[i] = s
		return p
	}
	for _, c := range []struct {
		name  string
		parts []spec
		says  []string
	}{
		{"missing", part(1, spec{}), []string{"part 2 of 3", "m-00002-of-00003.gguf"}},
		{"doubled", part(2, splitParts()[1]), []string{"m-00003-of-00003.gguf", `key "split.no"`, "declared 1, allowed 2"}},
		{"reordered", []spec{splitParts()[0], splitParts()[2], splitParts()[1]}, []string{"m-00002-of-00003.gguf", `key "split.no"`, "declared 2, allowed 1"}},
		{"first is not the first", []spec{splitParts()[1], splitParts()[0], splitParts()[2]}, []string{"m-00001-of-00003.gguf", `key "split.no"`, "declared 1, allowed 0"}},
		{"of another count", part(1, splitPart(1, 4, 3, "b", "a")), []string{"m-00002-of-00003.gguf", `key "split.count"`, "declared 4, allowed 3"}},
		{"tensor twice", part(2, splitPart(2, 3, 3, "a")), []string{"m-00003-of-00003.gguf", `tensor "a"`, "also in m-00002-of-00003.gguf"}},
		{"too few tensors", part(2, splitPart(2, 3, 3)), []string{"m-00001-of-00003.gguf", `key "split.tensors.count"`, "declared 3, allowed 2"}},
		{"no number", without(0), []string{"m-00002-of-00003.gguf", `key "split.no"`, "lacks the key"}},
		{"no count", without(1), []string{"m-00002-of-00003.gguf", `key "split.count"`, "lacks the key"}},
		{"number of another type", part(1, spec{keys: [][]byte{key("split.count", 2, u16(3)), key("split.no", 8, str("1"))}}), []string{`key "split.no"`, "wrong type", "declared string"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := writeParts(t, c.parts)
			f, err := bounded(t, func() (*File, error) { return Open(filepath.Join(dir, "m-00001-of-00003.gguf")) })
			if err == nil {
				f.Close()
				t.Fatal("no error")
			}
			for _, part := range c.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			var e *Error
			if c.name == "missing" && !errors.Is(err, fs.ErrNotExist) || c.name != "missing" && !errors.As(err, &e) {
				t.Errorf("error %T %v", err, err)
			}
		})
	}
	t.Run("part alone", testPartAlone)
	t.Run("number", testPartNumber)
	t.Run("shrinks", testShrinks)
}

func testPartAlone(t *testing.T) {
	h := hostile{data: splitParts()[1].bytes(), at: 24 + 8 + 8 + 4 + 2 + 8 + 11 + 4, of: `key "split.count"`,
		says: []string{"one part of a split model", "declared 3"}}
	h.test(t)
}

func testPartNumber(t *testing.T) {
	for _, name := range []string{"m-00000-of-00003.gguf", "m-00004-of-00003.gguf", "m-00001-of-00000.gguf"} {
		if _, err := Open(filepath.Join(writeParts(t, splitParts()), name)); err == nil || !strings.Contains(err.Error(), "part ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// testShrinks truncates a mapped file under an open File.
func testShrinks(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("a mapped file cannot shrink on Windows, and is not mapped in js")
	}
	text := strings.Repeat("long ", 1<<16)
	path := filepath.Join(t.TempDir(), "m.gguf")
	file := spec{
		keys:    [][]byte{key("s", 8, str(text)), key("a", 9, array(8, 1, str(text))), key("i", 4, u32(5))},
		entries: [][]byte{tensorEntry("x", 0, 0, 1<<18)},
		data:    counting(1 << 20),
	}
	if err := os.WriteFile(path, file.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	x, _ := f.Tensor("x")
	sum := byte(0)
	errs := map[string]error{"data": mmap.Guard(func() error {
		for _, b := range x.Data {
			sum += b
		}
		return nil
	})}
	_, errs["String"] = f.Metadata.String("s")
	_, errs["Strings"] = f.Metadata.Strings("a")
	_, errs["Int"] = f.Metadata.Int("i")
	v, _ := f.Metadata.Lookup("a")
	_, errs["Any"] = v.Any()
	_, errs["write"] = NewWriter(new(bytes.Buffer), []KeyValue{{"a", v}}, nil)
	for name, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "the mapped file shrank") {
			t.Errorf("%s after the file shrank: %v", name, err)
		}
	}
}

func TestPartPath(t *testing.T) {
	for path, want := range map[string]string{"m.gguf": "m-00002-of-00012.gguf", "a/m": "a/m-00002-of-00012.gguf", "m-00001-of-00003.gguf": "m-00002-of-00012.gguf"} {
		if got := PartPath(path, 2, 12); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	for _, kv := range PartKeys(1, 2, 3) {
		if !IsPartKey(kv.Key) {
			t.Errorf("%s is no key of a part", kv.Key)
		}
	}
}

// TestReadSplit: parts that are not opened by their paths are joined, in whatever order
// they come, whether they lie in memory or are read; one too few or too many is told of.
func TestReadSplit(t *testing.T) {
	var all []Source
	for i, p := range splitParts() {
		data := p.bytes()
		s := Source{Name: fmt.Sprintf("m-%05d-of-00003.gguf", i+1), Data: data}
		if i == 1 {
			s.Data, s.At, s.Size = nil, bytes.NewReader(data), int64(len(data))
		}
		all = append(all, s)
	}
	f, err := Read(all[2], all[0], all[1])
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"b", "a", "c"} {
		if x := f.Tensors()[i]; x.Name != want || !bytes.Equal(x.Data, bytes.Repeat([]byte(want), 32)) {
			t.Errorf("tensor %d is %s, %q", i, x.Name, x.Data)
		}
	}
	if path, _, ok := f.Place("c"); !ok || path != "m-00003-of-00003.gguf" {
		t.Errorf("c is in %q", path)
	}
	renamed := all[1]
	renamed.Name = "other.gguf"
	swapped := []Source{all[0], all[1], all[2]}
	swapped[1].Name, swapped[2].Name = swapped[2].Name, swapped[1].Name
	for want, files := range map[string][]Source{
		"m: neither its Data nor At is there":        {{Name: "m", Size: 5}},
		"no files":                                   nil,
		"part 2 of 3: m-00002-of-00003.gguf is not":  {all[0], all[2]},
		"4 files, m-00001-of-00003.gguf is one of 3": {all[0], all[1], all[2], all[2]},
		"other.gguf is no part of a split model":     {renamed, all[0], all[2]},
		"one part of a split model":                  {renamed},
		"not those of one model, in order":           swapped,
		"m-00002-of-00003.gguf: header":              {all[0], {Name: all[1].Name, At: bytes.NewReader(nil), Size: 100}, all[2]},
	} {
		if f, err := Read(files...); f != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
