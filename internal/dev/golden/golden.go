// Package golden finds the trusted records that tests compare with. Only tests
// import it.
//
// Two trees have the same layout (models/, records/, gguf/, llamacpp/): the
// complete one in the goldens folder of a shared folder beside the repository,
// and an excerpt of it in the repository's testdata. Dir returns the more complete
// one, so a test walks the files there and needs no second version.
//
// Files: head.go (families with a head for further tokens), corpus.go, golden.go, seed.go (weights from seeds).
package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/andybalholm/brotli"
)

// Tests run beside each other on few cores. Their heaps are small and soon full again, so garbage is collected less
// often. Memory is not profiled, either. Both together save a sixth of the time of the lab's tests.
func init() {
	debug.SetGCPercent(400)
	runtime.MemProfileRate = 0
}

// module is the first line of the go.mod that marks the repository's root.
const module = "module github.com/karat-run/karat"

// Root returns the repository's root folder: the nearest one, from the working
// directory upwards, whose go.mod names this module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("golden: root: %v", err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if line, _, _ := strings.Cut(string(b), "\n"); err == nil && strings.TrimSpace(line) == module {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatalf("golden: root: no go.mod with %q above the working directory", module)
		}
		dir = up
	}
}

// Repo returns the excerpt that every clone has: the repository's testdata.
func Repo(t testing.TB) string {
	t.Helper()
	return filepath.Join(Root(t), "testdata")
}

// Dir returns the goldens of the shared folder where there is one, else Repo.
func Dir(t testing.TB) string {
	t.Helper()
	if s := shared(t); s != "" {
		return filepath.Join(s, "goldens")
	}
	return Repo(t)
}

// Shared returns the path of a file or folder of the shared folder, rel being
// slash-separated as in "goldens/gguf/tiny-llama.Q4_0.gguf". Without a shared
// folder it skips the test; with one in which rel is missing it fails it.
func Shared(t testing.TB, rel string) string {
	t.Helper()
	s := shared(t)
	if s == "" {
		t.Skipf("no shared folder (KARAT_SHARED or ../shared): %s is not in the repository", rel)
	}
	path := filepath.Join(s, filepath.FromSlash(rel))
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("golden: shared folder is incomplete: %v", err)
	}
	return path
}

// shared returns the shared folder, KARAT_SHARED or ../shared of the repository,
// or "" where there is none. A KARAT_SHARED that leads nowhere is a mistake.
func shared(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("KARAT_SHARED")
	named := dir != ""
	if !named {
		dir = filepath.Join(Root(t), "..", "shared")
	}
	switch _, err := os.Stat(filepath.Join(dir, "goldens")); {
	case err == nil:
		return dir
	case !named && errors.Is(err, fs.ErrNotExist):
		return ""
	default:
		t.Fatalf("golden: shared folder: %v", err)
		return ""
	}
}

// Models returns the names, sorted, of the Hugging Face folders in Dir's models, and of the
// repository's that come from seeds. Each has a record. The goldens' demo is left out: the
// command's demo has other weights.
func Models(t testing.TB) []string {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range []string{filepath.Join(Dir(t), "models"), filepath.Join(Repo(t), "seeded")} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatalf("golden: models: %v", err)
		}
		for _, e := range entries {
			names[e.Name()] = names[e.Name()] || e.IsDir()
		}
	}
	maps.DeleteFunc(names, func(name string, dir bool) bool { return !dir || name == "demo" })
	if len(names) == 0 {
		t.Fatalf("golden: models: none in %s", Dir(t))
	}
	return slices.Sorted(maps.Keys(names))
}

// Model returns the path of a Hugging Face folder in Dir, which must exist. One whose
// weights come from a seed is the repository's, whatever Dir is, with its weights. Packed
// weights are unpacked.
func Model(t testing.TB, name string) string {
	t.Helper()
	if dir, ok := seeded(t, name); ok {
		return Seeded(t, dir)
	}
	path := filepath.Join(Dir(t), "models", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("golden: model: %v", err)
	}
	if _, err := os.Stat(filepath.Join(path, packed)); err == nil {
		return unpack(t, path)
	}
	return path
}

// Files returns the paths of Dir's GGUF files of the models whose records are Dir's: not of the
// demo, and of none whose weights come from a seed.
func Files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(Dir(t), "gguf", "*.gguf"))
	if err != nil {
		t.Fatalf("golden: files: %v", err)
	}
	return slices.DeleteFunc(files, func(path string) bool {
		name, _, _ := strings.Cut(filepath.Base(path), ".")
		_, own := seeded(t, name)
		return own || name == "demo"
	})
}

// packed are weights that take less of the repository, as Unpack reads them.
const packed = weights + ".br"

// weights are a model's.
const weights = "model.safetensors"

// Width is the size of the numbers in a file that lies packed: weights are bfloat16, records float32.
func Width(path string) int {
	if filepath.Base(path) == weights {
		return 2
	}
	return 4
}

// Unpack reads the file that lies packed at path + ".br": Brotli of the first bytes of all its numbers, then of the
// second ones, and so on.
func Unpack(path string) ([]byte, error) {
	b, err := os.ReadFile(path + ".br")
	if err == nil {
		b, err = io.ReadAll(brotli.NewReader(bytes.NewReader(b)))
	}
	whole, n := make([]byte, len(b)), Width(path)
	for first := range n {
		for i := first; i < len(whole); i += n {
			whole[i], b = b[0], b[1:]
		}
	}
	return whole, err
}

// Tensors returns the path of a safetensors file of a record, given where it would lie. One that lies packed is
// unpacked into a folder of the test's, with the JSON file of its name.
func Tensors(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path + ".br"); err != nil {
		return path
	}
	b, err := unpackOnce(path)
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err == nil {
		err = os.WriteFile(to, b, 0o666)
	}
	beside := func(path string) string { return strings.TrimSuffix(path, ".safetensors") + ".json" }
	if b, none := os.ReadFile(beside(path)); err == nil && none == nil { // llama.cpp's have none
		err = os.WriteFile(beside(to), b, 0o666)
	}
	if err != nil {
		t.Fatalf("golden: record: %v", err)
	}
	return to
}

// unpacked holds files by their path, so that a process unpacks them once, and copies by the test that they are of
// and their model's folder.
var unpacked, copies sync.Map

func unpackOnce(path string) ([]byte, error) {
	once, _ := unpacked.LoadOrStore(path, sync.OnceValues(func() ([]byte, error) { return Unpack(path) }))
	return once.(func() ([]byte, error))()
}

// unpack copies a model folder with packed weights, once a test, and returns the copy.
func unpack(t testing.TB, dir string) string {
	t.Helper()
	type key struct {
		t   testing.TB
		dir string
	}
	if to, ok := copies.Load(key{t, dir}); ok {
		return to.(string)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	b, err := unpackOnce(filepath.Join(dir, weights))
	if err == nil {
		err = os.CopyFS(to, os.DirFS(dir))
	}
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(to, packed)), os.WriteFile(filepath.Join(to, weights), b, 0o666))
	}
	if err != nil {
		t.Fatalf("golden: model: %v", err)
	}
	copies.Store(key{t, dir}, to)
	t.Cleanup(func() { copies.Delete(key{t, dir}) })
	return to
}

// Unpacked returns a copy of Repo in which all models and records are unpacked, and the models of the folder seeded
// have their weights.
func Unpacked(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "testdata")
	if err := os.CopyFS(dir, os.DirFS(Repo(t))); err != nil {
		t.Fatalf("golden: unpacked: %v", err)
	}
	if paths, err := UnpackAll(Repo(t), dir); err != nil || len(paths) == 0 {
		t.Fatalf("golden: unpacked: %d packed files, %v", len(paths), err)
	}
	seeds, _ := filepath.Glob(filepath.Join(dir, "seeded", "*", "seed.json")) // the pattern is well formed
	for _, path := range seeds {
		if err := Grow(filepath.Dir(path)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// UnpackAll writes what lies packed in testdata to the same places of a copy, or there, and returns the paths.
func UnpackAll(testdata, to string) (paths []string, err error) {
	for _, pattern := range []string{"*/*.br", "*/*/*.br"} {
		found, _ := filepath.Glob(filepath.Join(testdata, pattern)) // the pattern is well formed
		paths = append(paths, found...)
	}
	for i := range paths {
		from := strings.TrimSuffix(paths[i], ".br")
		paths[i] = filepath.Join(to, strings.TrimPrefix(from, testdata))
		b, err := unpackOnce(from)
		if err == nil {
			err = os.WriteFile(paths[i], b, 0o666)
		}
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// Slow reports whether the long ring runs (.ci/long), with all families, types and texts.
func Slow() bool { return os.Getenv("KARAT_SLOW") != "" }

// SkipFast skips a test that the long ring alone runs, and says why.
func SkipFast(t testing.TB, why string) {
	if t.Helper(); !Slow() {
		t.Skipf("in the long ring (KARAT_SLOW): %s", why)
	}
}

// First returns the first n cases of a test, chosen to differ, or all of them where Slow.
func First[T any](n int, cases []T) []T {
	if Slow() {
		return cases
	}
	return cases[:n]
}

// sample names models of distinct structures: latent attention, sinks, delta scans, convolutions, softcaps, shared keys
// and values, experts, biases, encoders.
var sample = []string{"deepseek2", "gpt-oss", "qwen35", "lfm2", "gemma2", "tiny-gemma4", "tiny-gemma4-moe",
	"tiny-qwen2", "embeddinggemma", "xlm-roberta-reranker"}

// Sample returns the names of models that a test takes when it need not take all: models of distinct structures. Where
// Slow it returns all of them.
func Sample(names []string) []string {
	if Slow() {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(sample, name) })
}

// Families returns the names, sorted, of the repository's models of one family each
// that come from seeds and lie in one folder with their record and, unless Unconverted, gguf.json.
func Families(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(Repo(t), "families"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("golden: families: %d, %v", len(entries), err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Encoders is Families of the models that make vectors. Their records have {i}.embedding [features] of each text, as
// F32.
func Encoders(t testing.TB) []string { return encoders(t, true) }

// Rerankers is Encoders of the models that score pairs of texts. Their records have {i}.score [1].
func Rerankers(t testing.TB) []string { return encoders(t, false) }

func encoders(t testing.TB, vectors bool) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(Repo(t), "encoders"))
	if err != nil || len(entries) == 0 {
		t.Fatalf("golden: encoders: %d, %v", len(entries), err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(Repo(t), "encoders", e.Name(), "modules.json")); (err == nil) == vectors {
			names = append(names, e.Name())
		}
	}
	return names
}

// Unconverted are the families that llama.cpp's converter does not know, and what GGUF files call their models.
var Unconverted = map[string]string{"olmohybrid": "olmo-hybrid"}

// Architecture is what llama.cpp's converter calls a family's model.
func Architecture(t testing.TB, name string) (arch string) {
	t.Helper()
	if Unconverted[name] != "" {
		return Unconverted[name]
	}
	dir, _ := seeded(t, name)
	b, err := os.ReadFile(filepath.Join(dir, "gguf.json"))
	var file struct{ Metadata map[string][2]any }
	if err == nil {
		err = json.Unmarshal(b, &file)
	}
	if arch, _ = file.Metadata["general.architecture"][1].(string); err != nil || arch == "" {
		t.Fatalf("golden: %s: no architecture: %v", name, err)
	}
	return arch
}

// seeded is the folder of a model whose weights come from a seed, if it is one.
func seeded(t testing.TB, name string) (dir string, ok bool) {
	t.Helper()
	for _, folder := range []string{"seeded", "families", "encoders"} {
		dir = filepath.Join(Repo(t), folder, name)
		if _, err := os.Stat(filepath.Join(dir, "seed.json")); err == nil {
			return dir, true
		}
	}
	return "", false
}

// A Recording is what PyTorch computed with one model in float64.
type Recording struct {
	Prompts []Prompt
	dir     string
}

// Tensors is the path of golden.safetensors: {i}.ids as I32 and {i}.logits [PositionsKept, vocabulary] as F32 for each
// prompt i, and for prompt 2 also 2.tap.<module>.out and .in, each over all positions.
func (r *Recording) Tensors(t testing.TB) string {
	t.Helper()
	return Tensors(t, filepath.Join(r.dir, "golden.safetensors"))
}

// A Prompt is one entry of golden.json.
type Prompt struct {
	Index  int `json:"index"`
	Prompt struct {
		Text string    `json:"text"` // raw text, or
		Chat []Message `json:"chat"` // messages for the model's template
	} `json:"prompt"`
	Text          string  `json:"text"` // the tokenizer's input: the raw text or the rendered template
	IDs           []int   `json:"ids"`
	PositionsKept int     `json:"positions_kept"` // the last ones, whose logits are recorded
	Next          string  `json:"next"`           // the most probable next token
	NextID        int     `json:"next_id"`
	NextProb      float64 `json:"next_probability"`
	Entropy       float64 `json:"entropy"`     // of the next token, in nats
	GreedyIDs     []int   `json:"greedy_ids"`  // 64 tokens, or up to and with an end token
	GreedyText    string  `json:"greedy_text"` // special tokens included
	Float32       Floor   `json:"float32"`
	BFloat16      Floor   `json:"bfloat16"`
}

// A Message is one turn of a chat prompt.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A Floor is the distance of PyTorch's own pass in a smaller format from its
// float64 pass, over all positions of one prompt: the noise floor.
type Floor struct {
	CosineMin  float64 `json:"cosine_min"`
	MaxAbsDiff float64 `json:"max_abs_diff"` // of logits
	KLMean     float64 `json:"kl_mean"`      // in nats
	Top1       float64 `json:"top1"`         // share of positions with the same best token
	Top5       float64 `json:"top5"`         // mean overlap of the five best
}

// Record reads Dir's record of a model, or the repository's of one that comes from a seed or
// is the demo.
func Record(t testing.TB, name string) *Recording {
	t.Helper()
	dir := filepath.Join(Dir(t), "records", name)
	if own, ok := seeded(t, name); ok || name == "demo" {
		dir = filepath.Join(Repo(t), "records", name)
		if _, err := os.Stat(filepath.Join(own, "golden.json")); err == nil { // a family's
			dir = own
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err != nil {
		t.Fatalf("golden: record: %v", err)
	}
	r := &Recording{dir: dir}
	if err := json.Unmarshal(b, &r.Prompts); err != nil {
		t.Fatalf("golden: record: %s: %v", name, err)
	}
	if len(r.Prompts) == 0 {
		t.Fatalf("golden: record: %s: no prompts", name)
	}
	return r
}

// Lacking skips a test that needs more than this machine has: a GPU, a browser. Where
// KARAT_COMPLETE is set, as in CI, which installs them, it fails.
func Lacking(t testing.TB, why any) {
	t.Helper()
	if os.Getenv("KARAT_COMPLETE") != "" {
		t.Fatalf("KARAT_COMPLETE is set, and this machine lacks something: %v", why)
	}
	t.Skipf("%v", why)
}
