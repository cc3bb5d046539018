package lab

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/npy"
	"github.com/karat-run/karat/internal/tensor"
)

// TestNumpy: a record goes through a folder of NumPy files and back; single arrays, archives and bare numbers are read.
func TestNumpy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.safetensors")
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	logits := newF32([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
	p := &Prompt{Index: 0, IDs: []int32{4, 5}, Logits: logits}
	p.Taps = map[string]*tensor.Tensor{"a.out": newF32([]float32{7, 8}, 2, 1)}
	if err := w.Add(p); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(nil); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "r")
	if err := WriteNumpy(folder, path); err != nil {
		t.Fatal(err)
	}
	check := func(r *Record, err error, taps bool) {
		t.Helper()
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		if q := r.Prompts[0]; q.Logits == nil || string(q.Logits.Data) != string(logits.Data) || taps && (q.Taps["a.out"] == nil || len(q.IDs) != 2) {
			t.Errorf("%+v", q)
		}
	}
	r, err := ReadDump(folder)
	check(r, err, true)
	r, err = ReadDump(filepath.Join(folder, "0.logits.npy"))
	check(r, err, false)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range []string{"ids", "logits", "a.out"} {
		f, _ := z.Create(name + ".npy")
		data, err := os.ReadFile(filepath.Join(folder, map[string]string{"a.out": "0.tap.a.out"}[name]+map[string]string{"ids": "0.ids", "logits": "0.logits"}[name]+".npy"))
		if err != nil {
			t.Fatal(err)
		}
		f.Write(data)
	}
	z.Close()
	npz := filepath.Join(dir, "ref.npz")
	write := func(path string, data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, data string) string {
		path := filepath.Join(dir, name)
		write(path, []byte(data))
		return path
	}
	write(npz, b.Bytes())
	r, err = ReadDump(npz)
	check(r, err, true)
	bare := filepath.Join(dir, "x.f32")
	write(bare, logits.Data)
	r, err = openArray(bare, "logits", []int{2, 3})
	check(r, err, false)

	write(filepath.Join(dir, "cut.npz"), b.Bytes()[:b.Len()/2])
	write(filepath.Join(dir, "cut.npy"), []byte("\x93NUMPY\x01\x00"))
	for _, c := range []struct {
		got func() error
		err string
	}{
		{func() error { _, err := openArray(bare, "logits", []int{2, 4}); return err }, "24 bytes: shape [2 4] of float32 has 32"},
		{func() error { _, err := openArray(bare, "logits", []int{1 << 62, 4}); return err }, "shape"},
		{func() error { _, err := openArray(bare, "logits", []int{-1, -6}); return err }, "shape"},
		{func() error { _, err := openArray(bare, "logits", nil); return err }, "needs --shape"},
		{func() error { _, err := openArray(npz, "", []int{6}); return err }, "which says its shape itself"},
		{func() error { _, err := ReadRecord(npz); return err }, "it is a zip archive"},
		{func() error { _, err := ReadRecord(filepath.Join(folder, "0.ids.npy")); return err }, "it is a NumPy array"},
		{func() error { _, err := OpenImport(file("p.json", `{"prompts": []}`), ""); return err }, "it is a JSON file, not safetensors: if it lies beside a record"},
		{func() error { _, err := OpenImport(file("p.txt", "The sky is blue.\n"), ""); return err }, "it is a text file, not safetensors"},
		{func() error { _, err := OpenImport(file("p.pkl", "\x80\x04\x95\x0b\x00\x00\x00\x00"), ""); return err }, "it is a Python pickle, not safetensors"},
		{func() error { _, err := ReadDump(filepath.Join(dir, "cut.npz")); return err }, "zip"},
		{func() error { _, err := ReadDump(filepath.Join(dir, "cut.npy")); return err }, "cut.npy: "},
		{func() error { return WriteNumpy(folder, path) }, "numpy"},
	} {
		if err := c.got(); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v; want %q", err, c.err)
		}
	}
	var out bytes.Buffer
	if err := npy.Write(&out, &npy.Array{Type: "f4", Shape: []int{2}, Data: make([]byte, 7)}); err == nil {
		t.Error("7 bytes of two float32, and no error")
	}
}

// TestKind: text is UTF-8 without control characters, whose last character may be cut. Other bytes are no text.
func TestKind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for data, want := range map[string]string{
		"naïve, 東京\r\n":                        kindText,
		strings.Repeat("a", 255) + "東京":        kindText,
		" [1]":                                 kindJSON,
		"\xc3\x28\xa0\xa1numbers":              "",
		strings.Repeat("\xbf\x3f\x80\x3e", 80): "", // float32 numbers
		"begins as text\xff\xfe":               "",
		"ends so\x7f":                          "",
		"":                                     "",
	} {
		if err := os.WriteFile(path, []byte(data), 0o666); err != nil {
			t.Fatal(err)
		}
		if got := kindOf(path); got != want {
			t.Errorf("%q is %q, want %q", data, got, want)
		}
	}
}

// npzOf writes an archive of one array of n zeros in float32, packed by a method.
func npzOf(t *testing.T, method uint16, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "logits.npy", Method: method})
	if err == nil {
		err = npy.Write(w, &npy.Array{Type: "f4", Shape: []int{1, n}, Data: make([]byte, 4*n)})
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNpzMemory: an archive whose arrays unpack to far more than numbers do is refused before there is memory for them, and arrays that are
// stored as they are take none.
func TestNpzMemory(t *testing.T) {
	allocated := func(path string) (n uint64, err error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := ReadDump(path)
		runtime.ReadMemStats(&after)
		if err == nil {
			err = r.Close()
		}
		return after.TotalAlloc - before.TotalAlloc, err
	}
	const large = 8 << 20 // 32 MiB
	if n, err := allocated(npzOf(t, zip.Deflate, large)); err == nil || !strings.Contains(err.Error(), "as numbers never are") || n > 4<<20 {
		t.Errorf("packed zeros: %d bytes, %v", n, err)
	}
	if n, err := allocated(npzOf(t, zip.Store, large)); err != nil || n > 4<<20 {
		t.Errorf("stored zeros: %d bytes, %v", n, err)
	}
	if _, err := allocated(npzOf(t, zip.Deflate, 1<<20)); err != nil {
		t.Errorf("packed zeros, as a mask is: %v", err)
	}
	path := npzOf(t, zip.Store, 100)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[200]++ // a number
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := allocated(path); !errors.Is(err, zip.ErrChecksum) {
		t.Errorf("a changed number: %v", err)
	}
}
