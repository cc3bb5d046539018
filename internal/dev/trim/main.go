// Trim makes the folder testdata from the complete goldens: whole models, and records cut to the parts that hold each
// architecture to the noise floor in a fresh clone.
//
//	go run ./internal/dev/trim ../shared/goldens testdata
package main

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/karat-run/karat/internal/dev/golden"
)

// positions returns how many of the last positions' logits are kept of each
// prompt. The demo's vocabulary is three times that of the tiny models. Of a family the last
// layer's output tells about all positions.
func positions(name string) int {
	if strings.HasPrefix(name, "tiny-") {
		return 2
	}
	return 1
}

// models are the trained ones, whose weights are packed.
var models = []string{"tiny-llama", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe"}

// seeded are the models of the folder seeded. Their records, and the demo's, are trimmed in their
// place: the goldens' records are of other weights.
var seeded = []string{"tiny-qwen2", "tiny-qwen3"}

// dense are the layers whose taps are all kept, of models that tests read modules of: all layers of
// one, and of the other a sliding and a full layer with keys of its own, and two without.
var dense = map[string]string{"tiny-llama": "0123", "tiny-gemma4": "0347"}

// tied are the prompts left out of a record: of glmdsa one of four positions with the score 0 of an indexer, equal at
// the bound, is chosen by the way that PyTorch sorts.
var tied = map[string]int{"glmdsa": 4}

var (
	isTap    = regexp.MustCompile(`^\d+\.tap\.`)
	isHidden = regexp.MustCompile(`^\d+\.hidden$`)
	isLogits = regexp.MustCompile(`^\d+\.logits$`)
	inLayer  = regexp.MustCompile(`\.(?:layers|h)\.(\d+)\.(.*)$`)
	isAside  = regexp.MustCompile(`\.in$|mlp\.shared_expert\.|kv_b_proj|in_proj_qkvz|input_linear|latent_proj|` +
		`layernorm\.norms|` +
		`feed_forward\.(experts|(gate|up)_proj|shared_expert(\.down_proj)?)\.out|` +
		`rotary_emb|lm_head|dropout|act(ivation)?(_fn)?\.out$`)
	// isSum matches the values added by a layer, and the sum handed on.
	isSum = regexp.MustCompile(
		`^((mlp|self_attn|attn|mamba|mixer|mixer\.norm|norm|feed_forward|linear_attn)\.)?out$`)
	// isLess matches taps that families' records leave out, to keep these small.
	isLess = regexp.MustCompile(`mlp\.(gate|up|down)_proj\.out$|layers\.[1-9]\d*\.\w+_layernorm\.out$|` +
		`moe_statics\.out$|linear_attn\.(o_)?norm\.out$`)
	isBeside = regexp.MustCompile(`mlp\.(act\.|dense_4h_to_h\.)?out$|query_key_value|rotary_emb`)
	kept     = regexp.MustCompile(`("positions_kept": ?)(\d+)`)
)

func main() {
	log.SetFlags(0)
	var err error
	switch len(os.Args) {
	case 3:
		err = trim(os.Args[1], os.Args[2])
	case 4: // one family or encoder, of the folder GOLDENS/families or families3
		err = one(os.Args[1], os.Args[2], os.Args[3])
	default:
		log.Fatal("usage: trim GOLDENS TESTDATA [NAME]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

func trim(from, to string) error {
	for _, name := range models {
		if err := os.RemoveAll(filepath.Join(to, "models", name)); err != nil {
			return err
		}
		if err := folder(filepath.Join(from, "models", name), filepath.Join(to, "models", name)); err != nil {
			return err
		}
		weights := filepath.Join(to, "models", name, "model.safetensors")
		b, err := os.ReadFile(weights)
		if err == nil {
			err = compress(weights, b)
		}
		if err == nil {
			err = os.Remove(weights)
		}
		if err != nil {
			return err
		}
	}
	if err := records(from, to); err != nil {
		return err
	}
	for _, name := range []string{"tiny-gemma4.bf16", "tiny-gemma4-moe.bf16"} {
		path := filepath.Join("llamacpp", name+".safetensors")
		if _, err := tensors(filepath.Join(from, path), filepath.Join(to, path), positions(name), none); err != nil {
			return err
		}
	}
	families, err := os.ReadDir(filepath.Join(to, "families")) // a new one is an empty folder at first
	if err != nil {
		return err
	}
	for _, f := range families {
		if err := family(from, to, f.Name()); err != nil {
			return err
		}
	}
	encoders, err := os.ReadDir(filepath.Join(to, "encoders"))
	if err != nil {
		return err
	}
	for _, e := range encoders {
		if err := encoder(from, to, e.Name()); err != nil {
			return err
		}
	}
	return edit(filepath.Join(from, "make", "prompts.json"), filepath.Join(to, "prompts.json"), nil)
}

// records trims the records of the trained models from the goldens, and the others in their place.
func records(from, to string) error {
	for _, name := range models {
		err := shorten(filepath.Join(from, "models", name), filepath.Join(from, "records", name),
			filepath.Join(to, "records", name))
		if err != nil {
			return err
		}
	}
	for _, name := range seeded {
		own := filepath.Join(to, "records", name)
		if err := shorten(filepath.Join(to, "seeded", name), own, own); err != nil {
			return err
		}
	}
	demo := filepath.Join(to, "records", "demo")
	file := filepath.Join(to, "llamacpp", demoFile)
	if _, err := tensors(file, file, 1, none); err != nil {
		return err
	}
	_, err := record(demo, demo, none)
	return err
}

// demoFile holds llama.cpp's logits of the demo, whose weights it has dequantized.
const demoFile = "demo.Q4_K_M.dequantized.safetensors"

// least is how many taps the lab's tests want of a family's record.
const least = 15

// shorten trims a record to its model's ends, and to the dense layers. A family's loses the last layer's parts,
// unless fewer taps than least stay.
func shorten(model, from, to string) error {
	taps, err := ends(model, true)
	if err != nil {
		return err
	}
	layers := dense[filepath.Base(model)]
	n, err := record(from, to, func(tap string) bool {
		m := inLayer.FindStringSubmatch(tap)
		return taps(tap) || layers != "" && (m == nil || strings.Contains(layers, m[1]))
	})
	if family := filepath.Base(filepath.Dir(model)) == "families"; err == nil && family && n < least {
		if taps, err = ends(model, false); err == nil {
			_, err = record(from, to, taps)
		}
	}
	return err
}

// compress writes path + ".br", which golden.Unpack reads.
func compress(path string, b []byte) error {
	var planes []byte
	n := golden.Width(path)
	for first := range n {
		for i := first; i < len(b); i += n {
			planes = append(planes, b[i])
		}
	}
	var packed bytes.Buffer
	w := brotli.NewWriterOptions(&packed, brotli.WriterOptions{Quality: 11, LGWin: 24})
	_, err := w.Write(planes)
	if err = errors.Join(err, w.Close(), os.MkdirAll(filepath.Dir(path), 0o777)); err != nil {
		return err
	}
	return os.WriteFile(path+".br", packed.Bytes(), 0o666)
}

// read reads a file, which lies packed in this folder.
func read(path string) ([]byte, error) {
	if _, err := os.Stat(path + ".br"); err == nil {
		return golden.Unpack(path)
	}
	return os.ReadFile(path)
}

// one trims a model that generates, whose record has logits, or else an encoder.
func one(from, to, name string) error {
	b, err := read(filepath.Join(from, part(from, name), name, "golden.safetensors"))
	if err != nil {
		return err
	}
	if bytes.Contains(b[:8+binary.LittleEndian.Uint64(b)], []byte(`"0.logits"`)) {
		return family(from, to, name)
	}
	return encoder(from, to, name)
}

// part returns the folder of the goldens that has a family.
func part(from, name string) string {
	if _, err := os.Stat(filepath.Join(from, "families3", name)); err == nil {
		return "families3"
	}
	return "families"
}

// family copies a family's folder, of whose record it keeps the taps of its last layer, and
// of the others what each adds and hands on.
func family(from, to, name string) error {
	from, to = filepath.Join(from, part(from, name), name), filepath.Join(to, "families", name)
	if err := folder(from, to); err != nil {
		return err
	}
	return shorten(from, from, to)
}

// encoder copies an encoder's folder, of whose record it keeps what the texts became.
func encoder(from, to, name string) error {
	from, to = filepath.Join(from, part(from, name), name), filepath.Join(to, "encoders", name)
	if err := folder(from, to); err != nil {
		return err
	}
	_, err := record(from, to, none)
	return err
}

// folder copies a model's folder without its record, and tokenizer.json without white space.
func folder(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), "golden.") {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		var f func([]byte) ([]byte, error)
		if e.Name() == "tokenizer.json" {
			f = func(b []byte) ([]byte, error) {
				var short bytes.Buffer
				err := json.Compact(&short, b)
				return short.Bytes(), err
			}
		}
		return edit(path, filepath.Join(to, rel), f)
	})
}

// ends chooses the taps of the last layer of the model in a folder, and of the others what
// each adds and hands on. With less it leaves out some of a family's last layer.
func ends(folder string, less bool) (func(tap string) bool, error) {
	b, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return nil, err
	}
	var c struct {
		Layers int  `json:"num_hidden_layers"`
		Own    int  `json:"n_layer"`
		Scans  int  `json:"linear_num_value_heads"`
		Beside bool `json:"parallel_attn"`
		AltUp  int  `json:"altup_num_inputs"`

		Folded []float64 `json:"ssm_multipliers"` // GGUF's files have these in the weights, and some sums not
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	last := strconv.Itoa(max(c.Layers, c.Own) - 1)
	kind := filepath.Base(filepath.Dir(folder))
	few := kind == "families3"
	return func(tap string) bool {
		m := inLayer.FindStringSubmatch(tap)
		aside := m != nil && (m[2] == "out" || m[1] != "0" && !isSum.MatchString(m[2]))
		if c.AltUp > 0 && (aside || strings.Contains(tap, "altup_")) { // a layer's output has all streams
			return false
		}
		if c.Beside { // attention's output is added in place to the MLP's
			return !isBeside.MatchString(tap)
		}
		if m != nil && !isSum.MatchString(m[2]) {
			if isLess.MatchString(tap) && (few || less && kind == "families" && c.Folded == nil) {
				return false
			}
			if few { // of the first layer of each kind alone
				return !isAside.MatchString(tap)
			}
		}
		if m != nil && m[2] == "mlp.out" && c.Scans > 0 { // of mixers there is more to see
			return false
		}
		return !isAside.MatchString(tap) && (m == nil || m[1] == last || isSum.MatchString(m[2]))
	}, nil
}

// none chooses no taps.
func none(string) bool { return false }

// record trims both files of one model's record, keeps the given taps, and returns their number.
func record(from, to string, taps func(name string) bool) (left int, err error) {
	name := filepath.Base(from)
	const file = "golden.safetensors"
	left, err = tensors(filepath.Join(from, file), filepath.Join(to, file), positions(name), taps)
	if err != nil {
		return 0, err
	}
	own, short := filepath.Join(from, "golden.json"), filepath.Join(to, "golden.json")
	return left, edit(own, short, func(b []byte) ([]byte, error) {
		if at, ok := tied[name]; ok {
			var prompts []json.RawMessage
			if err := json.Unmarshal(b, &prompts); err != nil {
				return nil, err
			}
			var err error
			if b, err = json.Marshal(slices.Delete(prompts, at, at+1)); err != nil {
				return nil, err
			}
		}
		return kept.ReplaceAllFunc(b, func(m []byte) []byte {
			parts := kept.FindSubmatch(m)
			n, _ := strconv.Atoi(string(parts[2]))
			return fmt.Appendf(parts[1], "%d", min(n, positions(name)))
		}), nil
	})
}

// edit writes what f makes of a file; without f it copies.
func edit(from, to string, f func([]byte) ([]byte, error)) error {
	b, err := os.ReadFile(from)
	if err == nil && f != nil {
		b, err = f(b)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte("\n-Infinity"), []byte("\n\"-Infinity\"")) // which JSON lacks
	return os.WriteFile(to, b, 0o666)
}

type tensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// tensors copies a safetensors file without hidden states, with the last
// positions of the logits and with the taps that taps keeps. Of a module whose output is its
// last part's, such as attention, one is left: the one with the shorter name. It returns how many taps are left.
func tensors(from, to string, positions int, taps func(name string) bool) (left int, err error) {
	b, err := read(from)
	if err != nil {
		return 0, err
	}
	size := 8 + int(binary.LittleEndian.Uint64(b))
	var all map[string]tensor
	if err := json.Unmarshal(b[8:size], &all); err != nil {
		return 0, fmt.Errorf("%s: %w", from, err)
	}
	var names []string
	for name := range all {
		at, isTied := tied[filepath.Base(filepath.Dir(from))]
		if isTied && strings.HasPrefix(name, strconv.Itoa(at)+".") {
			continue
		}
		if !isHidden.MatchString(name) && name != "__metadata__" && (!isTap.MatchString(name) || taps(name)) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	seen := map[string]bool{}
	names = slices.DeleteFunc(names, func(name string) bool {
		value := string(b[size+all[name].Offsets[0] : size+all[name].Offsets[1]])
		again := isTap.MatchString(name) && strings.HasSuffix(name, ".out") && seen[value]
		seen[value] = true
		return again
	})
	for _, name := range names {
		if isTap.MatchString(name) {
			left++
		}
	}
	slices.Sort(names)
	if b, err = pack(names, all, b[size:], positions); err != nil {
		return 0, err
	}
	return left, compress(to, b)
}

// pack writes the named tensors one after the other, as safetensors, the logits
// cut to their last positions.
func pack(names []string, all map[string]tensor, data []byte, positions int) ([]byte, error) {
	var body []byte
	header := map[string]tensor{}
	for _, name := range names {
		t := all[name]
		part := data[t.Offsets[0]:t.Offsets[1]]
		if isLogits.MatchString(name) && t.Shape[0] > positions {
			part = part[len(part)/t.Shape[0]*(t.Shape[0]-positions):]
			t.Shape[0] = positions
		}
		t.Offsets = [2]int{len(body), len(body) + len(part)}
		body = append(body, part...)
		header[name] = t
	}
	head, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	head = append(head, strings.Repeat(" ", -len(head)&7)...)
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head, body), nil
}
