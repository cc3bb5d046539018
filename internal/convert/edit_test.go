package convert

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
)

// editable is a GGUF file that can be written.
func editable(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(golden.Root(t), "cmd", "karat", "demo.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEdit: keys change, are added and go; tensors keep their bytes, also at another alignment; and to edit back
// gives the same metadata.
func TestEdit(t *testing.T) {
	path := editable(t)
	before, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, x := range before.Tensors() {
		want[x.Name] = string(x.Data)
	}
	before.Close()
	changes, err := Edit(t.Context(), path, path, EditOptions{
		Set:   []gguf.KeyValue{{Key: "general.name", Value: "Other"}, {Key: "general.alignment", Value: uint32(128)}, {Key: "x.list", Value: []int32{1, -2}}},
		Unset: []string{"tokenizer.chat_template"},
	})
	if err != nil || len(changes) != 4 || changes[0] != (Change{"general.name", "string:Demo", "string:Other"}) {
		t.Fatalf("%+v, %v", changes, err)
	}
	if _, err := Edit(t.Context(), path, path, EditOptions{Set: []gguf.KeyValue{{Key: "general.name", Value: "Third"}}}); err != nil { // keeps the alignment
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Alignment != 128 {
		t.Errorf("alignment %d", f.Alignment)
	}
	if x, err := f.Metadata.Ints("x.list"); err != nil || !reflect.DeepEqual(x, []int64{1, -2}) {
		t.Errorf("list: %v, %v", x, err)
	}
	if x, err := f.Metadata.String("general.name"); x != "Third" {
		t.Errorf("name: %q, %v", x, err)
	}
	if _, ok := f.Metadata.Lookup("tokenizer.chat_template"); ok {
		t.Error("the template is still there")
	}
	for _, x := range f.Tensors() {
		if want[x.Name] != string(x.Data) {
			t.Errorf("%s has other bytes", x.Name)
		}
	}
	if len(f.Tensors()) != len(want) {
		t.Errorf("%d tensors, want %d", len(f.Tensors()), len(want))
	}
}

// TestEditRefuses: what would not load is not written, and leaves the file and nothing beside it.
func TestEditRefuses(t *testing.T) {
	path := editable(t)
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set   string
		unset string
		err   string
	}{
		{"gemma3.block_count=uint32:99", "", "would not load, and was not written: .*block_count"},
		{"gemma3.embedding_length=uint32:4294967295", "", "would not load"},
		{"gemma3.block_count=string:6", "", "would not load.*expected a number"},
		{"general.architecture=string:nope", "", "would not load"},
		{"tokenizer.ggml.tokens=string[]:[]", "", "would not load"},
		{"general.alignment=uint32:3", "", "alignment"},
		{"split.count=uint16:2", "", "split files"},
		{"general.name=string:x", "general.name", `key "general.name": it is named twice`},
		{"", "nope", `key "nope": the file has none`},
		{"", "general.architecture", "would not load"},
		{"", "", "no change"},
		{"a=string:" + strings.Repeat("x", 17<<20), "", "string"},
	} {
		o := EditOptions{Loads: func(c *checkpoint.Checkpoint) error {
			_, _, err := arch.Load(c)
			return err
		}}
		if c.set != "" {
			kv, err := ParseKeyValue(c.set)
			if err != nil {
				t.Fatal(err)
			}
			o.Set = append(o.Set, kv)
		}
		if c.unset != "" {
			o.Unset = append(o.Unset, c.unset)
		}
		_, err := Edit(t.Context(), path, path, o)
		if err == nil || !regexp.MustCompile(c.err).MatchString(err.Error()) {
			t.Errorf("%.60s %s: %.200v; want %q", c.set, c.unset, err, c.err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Edit(ctx, path, path, EditOptions{Unset: []string{"general.name"}}); err == nil {
		t.Error("a context that has ended, and no error")
	}
	is, err := os.ReadFile(path)
	if err != nil || string(is) != string(was) {
		t.Errorf("the file has changed: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("beside it: %v", left)
	}
	if _, err := Edit(t.Context(), filepath.Dir(path), path, EditOptions{}); err == nil || !strings.Contains(err.Error(), "is a folder") {
		t.Errorf("a folder: %v", err)
	}
}

func TestParseKeyValue(t *testing.T) {
	for text, want := range map[string]any{
		"k=uint8:255": uint8(255), "k=int8:-128": int8(-128), "k=uint32:0x10": uint32(16), "k=int64:-9223372036854775808": int64(-1 << 63),
		"k=uint64:18446744073709551615": uint64(1<<64 - 1), "k=float32:1e-6": float32(1e-6), "k=float64:0.5": 0.5, "k=bool:true": true,
		"k=string:a=b:c": "a=b:c", "k=string:": "", "k=int32[]:[1, -2]": []int32{1, -2}, "k=string[]:[\"a\",\"\"]": []string{"a", ""}, "k=bool[]:[]": []bool{},
	} {
		if kv, err := ParseKeyValue(text); err != nil || kv.Key != "k" || !reflect.DeepEqual(kv.Value, want) {
			t.Errorf("%s: %#v, %v", text, kv.Value, err)
		}
	}
	for text, want := range map[string]string{
		"k": "want KEY=TYPE:VALUE", "k=1": "want KEY=TYPE:VALUE", "=uint8:1": "want KEY", "k=uint8:256": "no uint8", "k=int8:128": "no int8", "k=uint32:-1": "no uint32",
		"k=float32:1e99": "no float32", "k=bool:1": "true or false", "k=u32:1": `type "u32"`, "k=int32[]:1": "JSON list", "k=int32[]:[1.5]": "element 0", "k=string[]:[1]": "no string", "k=x[]:[]": `type "x"`,
	} {
		if _, err := ParseKeyValue(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// FuzzParseKeyValue: what is read can be written to a file, and read from it again.
func FuzzParseKeyValue(f *testing.F) {
	for _, s := range []string{"a=uint8:1", "a=string[]:[\"x\",\"\\u0000\"]", "a=float32:nan", "a=int16[]:[1,2]", "a=bool[]:[true]", "\xff=string:\xff", "a=uint64:0x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kv, err := ParseKeyValue(text)
		if err != nil {
			return
		}
		var b strings.Builder
		if err := gguf.Write(&b, []gguf.KeyValue{kv}, nil); err != nil {
			return // such as a key that no file may have
		}
		file, err := gguf.Parse([]byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		v, ok := file.Metadata.Lookup(kv.Key)
		if !ok {
			t.Fatalf("%q is lost", kv.Key)
		}
		if x, err := v.Any(); err != nil || describe(x) != describe(kv.Value) {
			t.Fatalf("%v, %v; want %v", x, err, kv.Value)
		}
	})
}
