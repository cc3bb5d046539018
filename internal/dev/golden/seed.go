package golden

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A seed is a model folder's seed.json, from which its weights are computed, so that
// they need not be stored: a value is mean + std·z, and z is a function of the tensor's
// name and the element's index alone.
type seed struct {
	// regular expression over the name, mean, std or "fan"; the first that matches counts
	Rules   [][3]any         `json:"rules"`
	Tensors map[string][]int `json:"tensors"` // shapes
	Dense   map[string][]int `json:"dense"`   // shapes of tensors in folders of their own: 2_Dense/linear.weight
	Drawn   map[string][]run `json:"drawn"`   // tensors with values of other names
}

// run is the values From to To of a tensor of another name.
type run struct {
	Of       string
	From, To int
}

// Seeded copies a model folder whose weights come from its seed.json, and writes them:
// model.safetensors in bfloat16. It returns the copy.
func Seeded(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(dir))
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(d.Name(), "golden.safetensors") { // no part of the model
			return err
		}
		at := filepath.Join(to, filepath.FromSlash(path))
		if d.IsDir() {
			return os.MkdirAll(at, 0o777)
		}
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if err == nil {
			err = os.WriteFile(at, b, 0o666)
		}
		return err
	})
	if err != nil {
		t.Fatalf("golden: seed: %v", err)
	}
	if err := Grow(to); err != nil {
		t.Fatal(err)
	}
	return to
}

// Grow writes the weights of a model folder with a seed.json beside it. A process computes the weights of a seed once.
func Grow(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, "seed.json"))
	if err != nil {
		return fmt.Errorf("golden: seed: %w", err)
	}
	once, _ := grown.LoadOrStore(string(b), sync.OnceValues(func() (map[string][]byte, error) { return grow(b) }))
	files, err := once.(func() (map[string][]byte, error))()
	if err != nil {
		return fmt.Errorf("golden: seed: %s: %w", dir, err)
	}
	for folder, data := range files {
		err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(folder), "model.safetensors"), data, 0o666)
		if err != nil {
			return fmt.Errorf("golden: seed: %s: %w", dir, err)
		}
	}
	return nil
}

// grown holds the files of weights by the text of their seed.json.
var grown sync.Map

// grow returns the files of a seed's weights by folder.
func grow(text []byte) (map[string][]byte, error) {
	var s seed
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	shapes, files := map[string]map[string][]int{"": s.Tensors}, map[string][]byte{}
	for name, shape := range s.Dense {
		folder, rest := path.Split(name)
		shapes[folder] = map[string][]int{rest: shape}
	}
	for folder, tensors := range shapes {
		var err error
		if files[folder], err = s.safetensors(folder, tensors); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// safetensors is a file of the tensors, sorted by name, whose values are those of
// folder + name.
func (s *seed) safetensors(folder string, tensors map[string][]int) ([]byte, error) {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := []byte(`{"__metadata__":{"format":"pt"}`)
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		at := len(data)
		var err error
		if data, err = s.values(data, folder+name, tensors[name]); err != nil {
			return nil, err
		}
		e, err := json.Marshal(entry{"BF16", tensors[name], [2]int{at, len(data)}})
		if err != nil {
			return nil, err
		}
		header = fmt.Appendf(header, ",%q:%s", name, e)
	}
	header = append(header, '}')
	header = append(header, strings.Repeat(" ", -len(header)&7)...)
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header, data), nil
}

// values appends a tensor's values in bfloat16.
func (s *seed) values(data []byte, name string, shape []int) ([]byte, error) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	runs := s.Drawn[name]
	if runs == nil {
		runs = []run{{name, 0, n}}
	}
	for _, r := range runs {
		mean, std, err := s.rule(r.Of, shape)
		if err != nil {
			return nil, err
		}
		data = r.values(data, mean, std)
	}
	return data, nil
}

// values appends a run's values.
func (r run) values(data []byte, mean, std float64) []byte {
	h := fnv.New64a()
	h.Write([]byte(r.Of))
	start := h.Sum64()
	scale := 65535 / math.Sqrt(3)
	data = slices.Grow(data, 2*(r.To-r.From))
	for i := r.From; i < r.To; i++ {
		x := splitmix(start + uint64(i+1)*0x9E3779B97F4A7C15)
		sum := float64(x&0xFFFF) + float64(x>>16&0xFFFF) + float64(x>>32&0xFFFF) + float64(x>>48)
		z := (sum - 131070) / scale
		u := math.Float32bits(float32(mean + float64(std*z)))
		data = binary.LittleEndian.AppendUint16(data, uint16((u+0x7FFF+u>>16&1)>>16)) // to the nearest, ties to even
	}
	return data
}

// rule returns the mean and the standard deviation of a tensor.
func (s *seed) rule(name string, shape []int) (mean, std float64, err error) {
	for _, r := range s.Rules {
		pattern, ok := r[0].(string)
		if !ok {
			return 0, 0, fmt.Errorf("a rule begins with %v", r[0])
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			return 0, 0, err
		}
		if !re.MatchString(name) {
			continue
		}
		mean, _ = r[1].(float64)
		if std, ok = r[2].(float64); !ok { // "fan"
			std = 1.2 / math.Sqrt(float64(shape[len(shape)-1]))
		}
		return mean, std, nil
	}
	return 0, 0, fmt.Errorf("no rule for %s", name)
}

// splitmix is the generator of Steele, Lea and Flood (2014), one step.
func splitmix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// Tokenizer writes a tokenizer of 540 tokens into dir, with a chat template: token i is <ti> but for the names given.
func Tokenizer(t testing.TB, dir string, names map[int]string, template string) {
	t.Helper()
	if err := WriteTokenizer(dir, names, template); err != nil {
		t.Fatal(err)
	}
}

// WriteTokenizer writes a tokenizer as Tokenizer does.
func WriteTokenizer(dir string, names map[int]string, template string) (all error) {
	var added []map[string]any
	vocab := map[string]int{}
	for i := range 540 {
		token := fmt.Sprintf("<t%d>", i)
		if names[i] != "" {
			token = names[i]
		}
		if i < 3 { // a tokenizer has merges
			vocab[[]string{"a", "b", "ab"}[i]] = i
			continue
		}
		vocab[token] = i
		added = append(added, map[string]any{"id": i, "content": token, "special": i > 511, "normalized": false})
	}
	for file, v := range map[string]any{
		"tokenizer.json": map[string]any{"version": "1.0", "added_tokens": added,
			"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{"a b"}},
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
			"decoder":       map[string]any{"type": "ByteLevel"}},
		"tokenizer_config.json": map[string]any{"chat_template": template},
	} {
		b, err := json.Marshal(v)
		all = errors.Join(all, err, os.WriteFile(filepath.Join(dir, file), b, 0o600))
	}
	return all
}
