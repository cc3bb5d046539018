package lab

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tensor"
)

// npyFile is a file as numpy.save writes it.
func npyFile(descr string, data []byte, shape ...int) []byte {
	dims := ""
	for _, d := range shape {
		dims += fmt.Sprintf("%d, ", d)
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", descr, strings.TrimRight(dims, " "))
	b := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	return slices.Concat(b, []byte(header), data)
}

// folder writes files into a new folder.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadDumpFolder(t *testing.T) {
	f32 := func(x ...float64) []byte { return floats(tensor.F32, tensor.Shape{len(x)}, x...).Data }
	f64 := func(x ...float64) []byte { return floats(tensor.F64, tensor.Shape{len(x)}, x...).Data }
	ids64 := npyFile("<i8", []byte{7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0}, 1, 2)
	bf16 := npyFile("<u2", floats(tensor.BF16, tensor.Shape{2}, 1, 3).Data, 2, 1)
	for name, c := range map[string]struct {
		files map[string][]byte
		index int
		want  map[string]string // of the taps: type, shape and first value
	}{
		"record's names": {map[string][]byte{
			"manifest.json":             []byte(`{"prompts": [{"index": 2, "text": "Hi", "ids": [7, 8]}], "names": "hf"}`),
			"2.ids.npy":                 npyFile("<i4", []byte{7, 0, 0, 0, 8, 0, 0, 0}, 2),
			"2.logits.npy":              npyFile("<f4", f32(1, 2, 3), 1, 3),
			"2.tap.model.norm.out.npy":  npyFile("<f8", f64(5, 6), 2, 1),
			"tap.model.layers.0.in.npy": npyFile("<f2", []byte{0, 0x3c, 0, 0}, 2, 1),
			"notes.txt":                 []byte("not read"),
		}, 2, map[string]string{"model.norm.out": "F64 [2 1] 5", "model.layers.0.in": "F16 [2 1] 1"}},
		"no manifest": {map[string][]byte{
			"token_ids.npy": ids64, "logits.npy": npyFile("<f4", f32(1, 2, 3), 1, 1, 3), "q_rope.07.npy": npyFile("<f4", f32(9, 8), 2, 1),
		}, 0, map[string]string{"q_rope.07": "F32 [2 1] 9"}},
		"names to files": {map[string][]byte{
			"manifest.json": []byte(`{"engine": "x", "token_ids": [7, 8], "rendered_prompt": "Hi", "numerics": "bf16", "ids": "a/i.npy", "logits": "l.npy",
				"taps": {"model.norm.out": {"file": "a/1.npy", "dtype": "torch.bfloat16", "shape": [2, 1]}, "Qcur-0#0.MUL_MAT": "2.npy"}}`),
			"a/i.npy": ids64, "a/1.npy": bf16, "2.npy": npyFile("<f4", f32(4, 5), 2, 1), "l.npy": npyFile("<f4", f32(1, 2, 3), 3),
		}, 0, map[string]string{"model.norm.out": "BF16 [2 1] 1", "Qcur-0#0.MUL_MAT": "F32 [2 1] 4"}},
		"files to names": {map[string][]byte{
			"manifest.json": []byte(`{"prompts": [{"input_ids": [7, 8], "prompt": "Hi", "files": {"1.npy": {"name": "a", "dtype": "bf16"}, "2.npy": "b", "l.npy": "logits"}}]}`),
			"1.npy":         bf16, "2.npy": npyFile("<f4", f32(4, 5), 2, 1), "l.npy": npyFile("<f4", f32(1, 2, 3), 3), "ids.npy": ids64,
		}, 0, map[string]string{"a": "BF16 [2 1] 1", "b": "F32 [2 1] 4"}},
		"list": {map[string][]byte{
			"manifest.json": []byte(`{"ids": [7, 8], "text": "Hi", "arrays": [{"name": "0.logits", "file": "l.npy"}, {"file": "b.npy", "prompt": 0}, {"name": "c"}]}`),
			"b.npy":         npyFile("<f4", f32(4, 5), 2, 1), "c.npy": npyFile("<f4", f32(6, 7), 2, 1), "l.npy": npyFile("<f4", f32(1, 2, 3), 3),
		}, 0, map[string]string{"b": "F32 [2 1] 4", "c": "F32 [2 1] 6"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := ReadDump(folder(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			p := r.Prompt(c.index)
			if p == nil || len(r.Prompts) != 1 || !slices.Equal(p.IDs, []int32{7, 8}) || p.Logits == nil || !slices.Equal(p.Logits.Shape, []int{1, 3}) {
				t.Fatalf("%+v", p)
			}
			if c.files["manifest.json"] != nil && p.Text != "Hi" {
				t.Errorf("text %q", p.Text)
			}
			for tap, want := range c.want {
				x := make([]float64, 1)
				if p.Taps[tap] == nil {
					t.Errorf("%s is missing", tap)
					continue
				}
				rowsOf(p.Taps[tap]).read(x, 0)
				if got := fmt.Sprint(p.Taps[tap].DType, []int(p.Taps[tap].Shape), x[0]); got != want {
					t.Errorf("%s: %s, want %s", tap, got, want)
				}
			}
			if len(p.Taps) != len(c.want) {
				t.Errorf("%d taps", len(p.Taps))
			}
		})
	}
}

func TestReadDumpRefuses(t *testing.T) {
	one := npyFile("<f4", make([]byte, 4), 1)
	secret := filepath.Join(t.TempDir(), "secret.npy")
	if err := os.WriteFile(secret, one, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files map[string][]byte
		want  string
	}{
		"empty":         {map[string][]byte{"a.txt": nil}, "no prompts"},
		"climbing path": {map[string][]byte{"manifest.json": []byte(`{"taps": {"a": "../../secret.npy"}}`)}, "escapes"},
		"absolute path": {map[string][]byte{"manifest.json": fmt.Appendf(nil, `{"taps": {"a": %q}}`, secret)}, "escapes"},
		"missing file":  {map[string][]byte{"manifest.json": []byte(`{"taps": {"a": "b.npy"}}`)}, `"b.npy"`},
		"not an array":  {map[string][]byte{"a.npy": []byte("PK")}, "does not begin"},
		"integers":      {map[string][]byte{"a.npy": npyFile("<u2", make([]byte, 2), 1)}, "16-bit integers"},
		"tap of ids":    {map[string][]byte{"a.npy": npyFile("<i4", make([]byte, 4), 1)}, "want floats"},
		"large id":      {map[string][]byte{"ids.npy": npyFile("<i8", []byte{0, 0, 0, 0, 1, 0, 0, 0}, 1)}, "position 0: id 4294967296"},
		"negative id":   {map[string][]byte{"ids.npy": npyFile("<i4", []byte{255, 255, 255, 255}, 1)}, "negative"},
		"twice":         {map[string][]byte{"a.npy": one, "0.tap.a.npy": one}, "which \"0.tap.a.npy\" is, too"},
		"other ids":     {map[string][]byte{"manifest.json": []byte(`{"ids": [1]}`), "ids.npy": npyFile("<i4", make([]byte, 4), 1)}, "not the ids"},
		"no JSON":       {map[string][]byte{"manifest.json": []byte(`{`), "a.npy": one}, "manifest.json"},
		"entry":         {map[string][]byte{"manifest.json": []byte(`{"taps": [3]}`)}, "taps: entry 0: a JSON number, want an object"},
		"nameless":      {map[string][]byte{"manifest.json": []byte(`{"taps": [{}]}`)}, "no name and no file"},
		"scalar":        {map[string][]byte{"a.npy": npyFile("<f4", make([]byte, 4))}, "shape []"},
		"tap's name":    {map[string][]byte{"manifest.json": []byte(`{"taps": {"a\u0007": "a.npy"}}`), "a.npy": one}, "not a name of a record"},
	} {
		if r, err := ReadDump(folder(t, c.files)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
			if r != nil {
				r.Close()
			}
		}
	}
	dir := folder(t, nil)
	if err := os.Symlink(secret, filepath.Join(dir, "a.npy")); err == nil {
		if _, err := ReadDump(dir); err == nil || !strings.Contains(err.Error(), "escapes") {
			t.Errorf("a link out of the folder: %v", err)
		}
	}
}

// FuzzManifest: any text gives an error, or arrays with a name and a file, and
// JSON that may be a record's.
func FuzzManifest(f *testing.F) {
	for _, s := range []string{
		`{"prompts": [{"index": 2, "text": "Hi", "ids": [7, 8], "taps": {"a": "b.npy"}}], "names": "hf", "numerics": "bf16"}`,
		`{"token_ids": [7], "rendered_prompt": "", "prompt": "x", "taps": {"model.norm.out": {"file": "a/1.npy", "dtype": "bf16"}, "q": "2.npy"}, "logits": "l.npy"}`,
		`{"arrays": [{"name": "0.logits", "file": "l.npy"}, {"file": "../b.npy", "prompt": -1}], "files": {"x.npy": null}, "tensors": []}`,
		`{"taps": [[]]}`, `{"prompts": {}}`, `null`, `{"prompts": [null]}`, `{"prompts": [{"index": "x"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m manifest
		if m.parse(b) != nil {
			return
		}
		for _, a := range m.arrays {
			if a.Name == "" || a.File == "" {
				t.Errorf("%+v", a)
			}
			if a.Prompt == nil {
				a.Prompt = new(int)
			}
			if name := a.tensorName(); !strings.Contains(name, ".") {
				t.Errorf("%+v is %s", a, name)
			}
		}
		var r Record
		if r.addInfo(m.info) != nil {
			return
		}
		if n := len(r.Prompts); n > maxPrompts {
			t.Errorf("%d prompts", n)
		}
	})
}

// TestMisspeltFields: a field that looks like a known one is an error with the known one's name, as is a prompt of the
// JSON file without any value. Other fields are notes.
func TestMisspeltFields(t *testing.T) {
	for text, want := range map[string]string{
		`{"promtps": []}`:                         `did you mean "prompts"?`,
		`{"prompts": [{"index": 0, "decod": 2}]}`: `prompts: entry 0: there is no field "decod": did you mean "decode"?`,
		`[]`:                           "the list is empty",
		`{"prompts": [{"index": 77}]}`: "prompt 77 has neither ids nor arrays",
		`{"Prompts": [{"index": 0, "ids": [1], "notes": ""}]}`:                                           "",
		`{"engine": "mine", "numerics": {"activations": "bf16"}, "prompts": [{"index": 0, "ids": [1]}]}`: "",
	} {
		r := &Record{}
		err := r.addInfo([]byte(text))
		if err == nil {
			err = r.fill(nil)
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestReadPicture says what a picture is.
func TestReadPicture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.png")
	if err := os.WriteFile(path, []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenImport(path, ""); err == nil || !strings.Contains(err.Error(), "it is a picture, not safetensors") {
		t.Error(err)
	}
	if _, err := parseInputs([]byte(" ")); err == nil || !strings.Contains(err.Error(), "the file is empty") {
		t.Error(err)
	}
}
