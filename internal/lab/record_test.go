package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// write makes a record in a new folder of tensors and, unless it is "", a JSON file.
func write(t *testing.T, info string, tensors ...*tensor.Tensor) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "record.safetensors")
	var all []tensor.Tensor
	for _, x := range tensors {
		all = append(all, *x)
	}
	if err := safetensors.WriteFile(path, all, nil); err != nil {
		t.Fatal(err)
	}
	if info != "" {
		if err := os.WriteFile(infoPath(path), []byte(info), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// named is a tensor of zeros.
func named(name string, d tensor.DType, shape ...int) *tensor.Tensor {
	n, err := tensor.Bytes(d, shape)
	if err != nil {
		panic(err)
	}
	return &tensor.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, n)}
}

// prompts are two prompts of a record, with everything that one can hold.
func prompts() []*Prompt {
	return []*Prompt{
		{
			Index: 4, Input: Input{Chat: Chat{{"user", "Hi <&> \u2028"}, {"assistant", "Hello"}}}, Text: "<s>Hi\n", IDs: []int32{1, 2, 3}, PositionsKept: 2,
			Next: " you", NextID: 7, NextProbability: 0.25, Entropy: Number(inf), GreedyIDs: []int32{7, 8}, GreedyText: " you there",
			Float32: &Floor{0.9, 1e-6, 1e-13, 1, 0.8}, BFloat16: &Floor{0.8, 1e-2, 1e-5, 0.5, 0.6},
			Logits: floats(tensor.F32, tensor.Shape{2, 3}, 1, 2, 3, 4, 5, 6),
			Hidden: floats(tensor.F32, tensor.Shape{2, 2, 2}, 1, 2, 3, 4, 5, 6, 7, 8),
			Taps: map[string]*tensor.Tensor{
				"model.norm.out": floats(tensor.F32, tensor.Shape{3, 2}, 1, 2, 3, 4, 5, 6),
				"half":           floats(tensor.BF16, tensor.Shape{3, 1, 1}, 1, 2, 3),
			},
		},
		{Index: 1, Input: Input{Text: new("")}, IDs: []int32{9}, PositionsKept: 1, Logits: floats(tensor.F64, tensor.Shape{1, 3}, 7, 8, 9)},
	}
}

func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	for range 2 { // the second replaces the first
		w, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for _, p := range prompts() {
			if err := w.Add(p); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(map[string]any{"precision": "f64"}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Names != "hf" || string(r.Numerics) != `{"precision":"f64"}` || r.Path != path {
		t.Errorf("names %q, numerics %s, path %s", r.Names, r.Numerics, r.Path)
	}
	want := prompts()
	want[0], want[1] = want[1], want[0]
	for _, p := range r.Prompts { // the tensors' names are the file's
		for _, x := range p.Taps {
			x.Name = ""
		}
		p.Logits.Name = ""
		if p.Hidden != nil {
			p.Hidden.Name = ""
		}
	}
	if !reflect.DeepEqual(r.Prompts, want) {
		t.Errorf("prompts are\n%s\nwant\n%s", show(r.Prompts), show(want))
	}
	if r.Prompt(4) != r.Prompts[1] || r.Prompt(0) != nil {
		t.Error("Prompt")
	}
	onlyFiles(t, dir, "out.json", "out.safetensors")
}

// TestWriteTogether: where the JSON file cannot be put in its place, the tensors of the
// record before are there still.
func TestWriteTogether(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Add(prompts()[0]), os.Mkdir(infoPath(path), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(nil); err == nil {
		t.Error("a folder was replaced")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	onlyFiles(t, dir, "out.json", "out.safetensors")
}

func show(prompts []*Prompt) string {
	var b strings.Builder
	for _, p := range prompts {
		fmt.Fprintf(&b, "%+v\n", *p)
	}
	return b.String()
}

func onlyFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		t.Errorf("the folder holds %v, want %v", got, names)
	}
}

func TestWriteErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.safetensors")
	for _, c := range []struct {
		name   string
		change func(p *Prompt)
		err    string
	}{
		{"the same prompt", func(p *Prompt) { p.Index = 4 }, "prompt 4: it was added before"},
		{"index", func(p *Prompt) { p.Index = -1 }, "prompt -1: tensor"},
		{"shape", func(p *Prompt) { p.Logits.Shape = tensor.Shape{1, 9} }, `prompt 1: tensor "1.logits": shape [1 9] of F64: 24 bytes, want 72`},
		{"type", func(p *Prompt) { p.Logits.DType = tensor.U64 }, "element type U64"},
		{"positions", func(p *Prompt) { p.PositionsKept = 3 }, "logits of 1 positions, but positions_kept 3"},
		{"tap", func(p *Prompt) { p.Taps = map[string]*tensor.Tensor{"a\x1b[2J": p.Logits} }, "not a name"},
	} {
		w, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		p := prompts()
		if err := w.Add(p[0]); err != nil {
			t.Fatal(err)
		}
		c.change(p[1])
		if err := w.Add(p[1]); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		if err := w.Commit(nil); err == nil {
			t.Errorf("%s: committed", c.name)
		}
		if err := w.Close(); err != nil {
			t.Errorf("%s: a second close: %v", c.name, err)
		}
		if w.Add(p[0]) == nil || w.Commit(nil) == nil {
			t.Errorf("%s: the writer works after Close", c.name)
		}
	}
	onlyFiles(t, dir)
	if _, err := Create(filepath.Join(dir, "out.json")); err == nil {
		t.Error("a record over its own JSON file")
	}
	if _, err := Create(filepath.Join(dir, "none", "out.safetensors")); err == nil {
		t.Error("a record in no folder")
	}
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Add(prompts()[0]); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(func() {}); err == nil || !strings.Contains(err.Error(), "unsupported type") {
		t.Errorf("numerics that are a function: %v", err)
	}
	onlyFiles(t, dir)
}

// TestCreateRefuses checks that a record's two files replace none but regular ones,
// and that this is told before anything is computed.
func TestCreateRefuses(t *testing.T) {
	for _, name := range []string{"out.safetensors", "out.json"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Create(filepath.Join(dir, "out.safetensors")); err == nil || !strings.Contains(err.Error(), name+": not a regular file") {
			t.Errorf("over a folder %s: %v", name, err)
		}
		onlyFiles(t, dir, name)
	}
}

func TestReadWithoutJSON(t *testing.T) {
	r, err := ReadRecord(write(t, "", named("2.logits", tensor.F32, 1, 5), named("10.logits", tensor.F32, 2, 5), named("2.ids", tensor.I32, 3)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Prompts) != 2 || r.Prompts[0].Index != 2 || len(r.Prompts[0].IDs) != 3 || r.Prompts[1].IDs != nil || r.Prompts[1].Logits.Rows() != 2 {
		t.Errorf("%s", show(r.Prompts))
	}
}

func TestReadBareList(t *testing.T) {
	r, err := ReadRecord(write(t, ` [{"prompt": {"text": "a"}, "ids": [0]}, {"index": 1, "unknown": [1]}, {"index": 7, "ids": [0]}] `, named("1.logits", tensor.F32, 1, 5)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if len(r.Prompts) != 3 || *r.Prompts[0].Input.Text != "a" || r.Prompts[2].Index != 7 || r.Prompts[1].Logits == nil || r.Names != "" || r.Numerics != nil {
		t.Errorf("%s", show(r.Prompts))
	}
}

// TestReadDeclared reads what a record may say of how it was made.
func TestReadDeclared(t *testing.T) {
	const info = `{"names": "karat", "numerics": {"engine": "x", "activations": "bfloat16", "kv": "f16", "gelu": "f16-table"}, "decode": 2, "rows": "all",
		"prompts": [{"text": "Hi", "ids": [1, 2, 3], "position_parts": [[0, 0, 0], [1, 1, 1], [1, 1, 2]]}, {"ids": [1], "decode": 1, "rows": 5, "messages": [{"role": "user", "content": "a"}]}, {"ids": [1], "prompt": "b"}]}`
	r, err := ReadRecord(write(t, info, named("0.logits", tensor.F32, 1, 5)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Names != NamesKarat || r.Declared != (round.Class{Activations: round.BF16, KV: round.F16, GELU: round.F16Table}) {
		t.Errorf("names %q, %v", r.Names, r.Declared)
	}
	a, b, c := r.Prompts[0], r.Prompts[1], r.Prompts[2]
	if a.Text != "Hi" || a.Decode != 2 || a.Rows != AllRows || len(a.Parts) != 3 || a.Parts[2] != [3]int32{1, 1, 2} || b.Decode != 1 || b.Rows != 5 || c.Decode != 1 || b.Input.Chat[0].Content != "a" || *c.Input.Text != "b" {
		t.Errorf("%s", show(r.Prompts))
	}
}

// TestReadFloor checks that a floor of which the distance is not said has none.
func TestReadFloor(t *testing.T) {
	for text, want := range map[string]bool{"null": false, "{}": false, `{"max_abs_diff": null}`: false, `{"max_abs_diff": "Infinity"}`: false,
		`{"max_abs_diff": -1}`: false, `{"max_abs_diff": 0}`: true, `{"max_abs_diff": 0.5}`: true} {
		r, err := ReadRecord(write(t, `[{"float32": `+text+`}]`, named("0.logits", tensor.F32, 2, 5)))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Prompts[0].Float32.limit(); ok != want {
			t.Errorf("%s: a limit: %v, want %v", text, ok, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestReadBatch takes ids of 64 bits, and a batch of one, for what they are.
func TestReadBatch(t *testing.T) {
	ids := named("0.ids", tensor.I64, 1, 2)
	ids.Data[8] = 7
	r, err := ReadRecord(write(t, "", ids, named("0.logits", tensor.F32, 1, 2, 5)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if p := r.Prompts[0]; !slices.Equal(p.IDs, []int32{0, 7}) || !slices.Equal(p.Logits.Shape, tensor.Shape{2, 5}) {
		t.Errorf("ids %v, logits %v", p.IDs, p.Logits.Shape)
	}
}

func TestReadHostile(t *testing.T) {
	f := func(x ...*tensor.Tensor) []*tensor.Tensor { return x }
	logits := named("0.logits", tensor.F32, 2, 5)
	ids := &tensor.Tensor{Name: "0.ids", DType: tensor.I32, Shape: tensor.Shape{1}, Data: []byte{0, 0, 0, 0x80}}
	for _, c := range []struct {
		name    string
		info    string
		tensors []*tensor.Tensor
		err     string
	}{
		{"another name", "", f(named("model.norm.weight", tensor.F32, 2)), `tensor "model.norm.weight": not a name of a record`},
		{"no point", "", f(named("0", tensor.F32, 2)), `tensor "0": not one of`},
		{"another part", "", f(named("0.logit", tensor.F32, 2)), `tensor "0.logit": not one of`},
		{"an empty tap", "", f(named("0.tap.", tensor.F32, 2)), `tensor "0.tap.": not one of`},
		{"an index with zeros", "", f(named("00.logits", tensor.F32, 1, 2)), "not a name of a record"},
		{"a negative index", "", f(named("-1.logits", tensor.F32, 1, 2)), "not a name of a record"},
		{"a large index", "", f(named("99999999999999999999.logits", tensor.F32, 1, 2)), "not a name of a record"},
		{"a terminal's escape", "", f(named("0.tap.\x1b[2J", tensor.F32, 1, 2)), "not a name of a record"},
		{"a name from right to left", "", f(named("0.tap.\u202eabc", tensor.F32, 1, 2)), "not a name of a record"},
		{"logits of integers", "", f(named("0.logits", tensor.I32, 1, 2)), "element type I32, want floats"},
		{"logits of 1 dimension", "", f(named("0.logits", tensor.F32, 2)), "shape [2], want 2 dimensions"},
		{"logits of 3 dimensions", "", f(named("0.logits", tensor.F32, 2, 1, 2)), "want 2 dimensions"},
		{"no logits", "", f(named("0.logits", tensor.F32, 0, 5)), "shape [0 5]: empty"},
		{"no vocabulary", "", f(named("0.logits", tensor.F32, 1<<30, 0)), "empty"},
		{"hidden states of 2 dimensions", "", f(named("0.hidden", tensor.F32, 2, 2)), "want 3 dimensions"},
		{"many layers", "", f(named("0.hidden", tensor.F32, 5000, 1, 1)), "more than 1024 layers"},
		{"many empty layers", "", f(named("0.hidden", tensor.F32, 1<<30, 0, 1)), "empty"},
		{"hidden states of other positions", "", f(logits, named("0.hidden", tensor.F32, 3, 1, 4)), "prompt 0: hidden states of 1 positions, but logits of 2"},
		{"a tap of no dimension", "", f(named("0.tap.a", tensor.F32)), "want 1 dimensions"},
		{"a tap of integers", "", f(named("0.tap.a", tensor.I64, 3)), "element type I64"},
		{"ids of another type", "", f(named("0.ids", tensor.F32, 3)), "element type F32, want I32 or I64"},
		{"an id of more than 32 bits", "", f(&tensor.Tensor{Name: "0.ids", DType: tensor.I64, Shape: tensor.Shape{1}, Data: []byte{5, 0, 0, 0, 1, 0, 0, 0}}), "position 0: id 4294967301"},
		{"ids in a table", "", f(named("0.ids", tensor.I32, 3, 1)), "want 1 dimensions"},
		{"negative ids", "", f(ids), "prompt 0: ids: position 0: -2147483648 is negative"},
		{"more logits than ids", "", f(logits, named("0.ids", tensor.I32, 1)), "prompt 0: logits of 2 positions, but 1 ids"},
		{"many ids", "", f(named("0.ids", tensor.I32, 1<<19), named("1.ids", tensor.I32, 1<<19), named("2.ids", tensor.I32, 1)), "more than 1048576 ids"},
		{"nothing", "", nil, "no prompts"},

		{"no JSON", "hello", f(logits), "record.json: no JSON at byte 1: invalid character"},
		{"empty JSON", " ", f(logits), "record.json: no JSON at byte 0: it ends too early"},
		{"a word", `"prompts"`, f(logits), "record.json: a JSON string, want an object"},
		{"no list", `{"prompts": 5}`, f(logits), "prompts: not a list"},
		{"null for a list", `{"prompts": null}`, f(logits), "prompts: not a list"},
		{"another engine's names", `{"prompts": [], "names": "gguf"}`, f(logits), `names: "gguf"; want auto, hf`},
		{"names of another type", `{"prompts": [], "names": 5}`, f(logits), "record.json: names: a JSON number, want a string"},
		{"numerics of another type", `{"prompts": [], "numerics": [5]}`, f(logits), "numerics: not an object"},
		{"unknown activations", `{"prompts": [], "numerics": {"activations": "int4"}}`, f(logits), `record.json: numerics: activations "int4", want f64, f32, f16, bf16, q8_32`},
		{"unknown keys and values", `{"prompts": [], "numerics": {"kv": "q3_0"}}`, f(logits), `numerics: kv "q3_0", want f64, f32, f16, bf16`},
		{"unknown GELU", `{"prompts": [], "numerics": {"gelu": "erf"}}`, f(logits), `numerics: gelu "erf", want exact, f16-table`},
		{"activations of another type", `{"prompts": [], "numerics": {"activations": 8}}`, f(logits), "numerics: activations: a JSON number, want a string"},
		{"rows of another kind", `[{"rows": "some"}]`, f(logits), `prompts: entry 0: rows: "some", want "all" or the number`},
		{"no rows", `[{"rows": 0}]`, f(logits), `prompts: entry 0: rows: 0, want`},
		{"more decoded than there is", `[{"decode": 3, "ids": [1, 2]}]`, f(logits), "prompt 0: decode 3, want 0 to its 2 tokens"},
		{"fewer positions than ids", `[{"position_parts": [[0, 0, 0]], "ids": [1, 2]}]`, f(logits), "prompt 0: position_parts of 1 tokens, want 2"},
		{"a negative part", `[{"position_parts": [[0, 0, 0], [1, -1, 1]], "ids": [1, 2]}]`, f(logits), "prompt 0: position_parts: token 1: [1 -1 1], want 0 to"},
		{"fewer than none decoded", `[{"decode": -1}]`, f(logits), "prompt 0: decode -1, want"},
		{"a list that does not end", `[{"index": 0}`, f(logits), "prompts:"},
		{"text after the list", `[{"index": 0}] x`, f(logits), "prompts: text after the list"},
		{"an entry of another type", `[5]`, f(logits), "prompts: entry 0: a JSON number, want an object"},
		{"a negative index in JSON", `[{"index": -1}]`, f(logits), "prompts: entry 0: index -1"},
		{"a fraction as index", `[{"index": 0.5}]`, f(logits), "prompts: entry 0: index: a JSON number 0.5, want an integer"},
		{"an index twice", `[{"index": 1}, {}]`, f(logits), "prompts: entry 1: index 1 a second time"},
		{"a large id", `[{"ids": [3000000000]}]`, f(logits), "prompts: entry 0: ids: a JSON number 3000000000, want an integer"},
		{"a negative id in JSON", `[{"ids": [1, -5]}]`, f(logits), "prompt 0: ids: position 1: -5 is negative"},
		{"other ids in JSON", `[{"ids": [1, 2, 3]}]`, f(named("0.ids", tensor.I32, 3)), `tensor "0.ids": not the ids that the JSON file gives`},
		{"other positions in JSON", `[{"positions_kept": 3}]`, f(logits), "prompt 0: logits of 2 positions, but positions_kept 3"},
		{"a chat of another type", `[{"prompt": {"chat": {"role": "user"}}}]`, f(logits), "prompts: entry 0: chat: not a list"},
		{"many prompts", "[" + strings.Repeat("{},", 5000) + "{}]", f(logits), "prompts: more than 4096"},
		{"a long chat", `[{"prompt": {"chat": [` + strings.Repeat("{},", 1_200_000) + "{}]}}]", f(logits), "prompts: entry 0: chat: more than 4096"},
		{"many ids in JSON", `[{"ids": [` + strings.Repeat("0,", 1_900_000) + "0]}]", f(logits, named("0.ids", tensor.I32, 2)), "not the ids"},
		{"deep JSON", strings.Repeat("[", 4<<20), f(logits), "prompts: entry 0"},
		{"deep numerics", `{"numerics": ` + strings.Repeat(`{"a":`, 800_000), f(logits), "exceeded max depth"},
		{"large JSON", "[]" + strings.Repeat(" ", maxJSON), f(logits), "4194306 bytes, at most 4194304"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.info, c.tensors...)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			r, err := ReadRecord(path)
			runtime.ReadMemStats(&after)
			if err == nil {
				r.Close()
				t.Fatalf("read: %s", show(r.Prompts))
			}
			if !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "record: ") || len(err.Error()) > 1000 {
				t.Errorf("%v, want %q", err, c.err)
			}
			// What it does is counted, not timed: it allocates some times the file, in few pieces.
			if bytes, pieces := after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs; bytes > 96<<20 || pieces > 30_000 {
				t.Errorf("took %d bytes in %d pieces", bytes, pieces)
			}
		})
	}
}

func TestReadNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "none.safetensors"), dir} {
		if _, err := ReadRecord(path); err == nil || !strings.HasPrefix(err.Error(), "record: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	path := write(t, "", named("0.logits", tensor.F32, 1, 2))
	if err := os.Mkdir(infoPath(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRecord(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder as JSON file: %v", err)
	}
}

func TestReadInputs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prompts.json")
	read := func(text string) ([]Input, error) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return ReadInputs(path)
	}
	got, err := read(`[{"text": ""}, {"chat": [{"role": "user", "content": "Hi"}]}, {"ids": [1, 2]}, "a", [{"role": "user", "content": "Hi"}]]`)
	want := []Input{{Text: new("")}, {Chat: Chat{{"user", "Hi"}}}, {IDs: []int32{1, 2}}, {Text: new("a")}, {Chat: Chat{{"user", "Hi"}}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, c := range []struct{ text, err string }{
		{`[]`, "the list is empty"},
		{`[{}]`, "entry 0: there is no text, no chat and no ids"},
		{`[null]`, "entry 0: there is no text, no chat and no ids"},
		{`[{"text": "a"}, {"text": "a", "ids": [1]}]`, "entry 1: text, chat and ids: want one of them"},
		{`[{"ids": []}]`, "entry 0: there is no text, no chat and no ids"},
		{`[{"chat": []}]`, "entry 0: there is no text, no chat and no ids"},
		{`[{"ids": [-1]}]`, "entry 0: ids: position 0: -1 is negative"},
		{`{"text": "a"}`, "not a list"},
		{`[5]`, "entry 0: a JSON number, want an object"},
		{`[{"text": 5}]`, "entry 0: text: a JSON number, want a string"},
		{`[{"ids": ["a"]}]`, "entry 0: ids: a JSON string, want an integer"},
		{`[{"ids": 5}]`, "entry 0: ids: a JSON number, want a list"},
		{`[{"chat": [{"role": "user", "content": ["a"]}]}]`, "entry 0: chat: entry 0: content: a JSON array, want a string"},
		{``, "the file is empty"},
	} {
		if _, err := read(c.text); err == nil || !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "prompts: ") {
			t.Errorf("%s: %v, want %q", c.text, err, c.err)
		}
	}
}
