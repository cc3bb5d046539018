//go:build ignore

// Trim makes this folder from the complete goldens: whole models, and records
// cut to what holds every architecture to the noise floor in a fresh clone.
//
//	go run testdata/trim.go ../shared/goldens testdata
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// positions returns how many of the last positions' logits are kept of each
// prompt. The demo's vocabulary is three times that of the tiny models.
func positions(name string) int {
	if strings.HasPrefix(name, "demo") {
		return 1
	}
	return 2
}

// models are the trained ones; tiny-qwen2's weights come from its seed.json, and its record
// belongs to these.
var models = []string{"tiny-llama", "tiny-qwen3", "tiny-gemma3", "tiny-gemma4", "tiny-gemma4-moe"}

var (
	isTap    = regexp.MustCompile(`^\d+\.tap\.`)
	isHidden = regexp.MustCompile(`^\d+\.hidden$`)
	isLogits = regexp.MustCompile(`^\d+\.logits$`)
	kept     = regexp.MustCompile(`"positions_kept": (\d+)`)
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: trim GOLDENS TESTDATA")
	}
	if err := trim(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func trim(from, to string) error {
	for _, name := range models {
		if err := os.CopyFS(filepath.Join(to, "models", name), os.DirFS(filepath.Join(from, "models", name))); err != nil {
			return err
		}
		if err := record(from, to, name, true); err != nil {
			return err
		}
	}
	if err := record(from, to, "demo", false); err != nil {
		return err
	}
	for _, name := range []string{"demo.Q4_K_M.dequantized", "tiny-gemma4.bf16", "tiny-gemma4-moe.bf16"} {
		path := filepath.Join("llamacpp", name+".safetensors")
		if err := tensors(filepath.Join(from, path), filepath.Join(to, path), positions(name), false); err != nil {
			return err
		}
	}
	if err := hashes(filepath.Join(from, "gguf"), filepath.Join(to, "gguf"), "demo.Q4_K_M.gguf"); err != nil {
		return err
	}
	return edit(filepath.Join(from, "make", "prompts.json"), filepath.Join(to, "prompts.json"), nil)
}

// record trims both files of one model's record.
func record(from, to, name string, taps bool) error {
	from, to = filepath.Join(from, "records", name), filepath.Join(to, "records", name)
	if err := tensors(filepath.Join(from, "golden.safetensors"), filepath.Join(to, "golden.safetensors"), positions(name), taps); err != nil {
		return err
	}
	return edit(filepath.Join(from, "golden.json"), filepath.Join(to, "golden.json"), func(b []byte) ([]byte, error) {
		return kept.ReplaceAllFunc(b, func(m []byte) []byte {
			n, _ := strconv.Atoi(string(kept.FindSubmatch(m)[1]))
			return fmt.Appendf(nil, `"positions_kept": %d`, min(n, positions(name)))
		}), nil
	})
}

// hashes keeps one file's entry of dequantized.sha256.json.
func hashes(from, to, file string) error {
	const name = "dequantized.sha256.json"
	return edit(filepath.Join(from, name), filepath.Join(to, name), func(b []byte) ([]byte, error) {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(b, &all); err != nil {
			return nil, err
		}
		if all[file] == nil {
			return nil, fmt.Errorf("%s: no entry %s", name, file)
		}
		b, err := json.MarshalIndent(map[string]json.RawMessage{file: all[file]}, "", " ")
		return append(b, '\n'), err
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
	return os.WriteFile(to, b, 0o666)
}

type tensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

// tensors copies a safetensors file without hidden states, with the last
// positions of the logits and with or without taps.
func tensors(from, to string, positions int, taps bool) error {
	return edit(from, to, func(b []byte) ([]byte, error) {
		size := 8 + int(binary.LittleEndian.Uint64(b))
		var all map[string]tensor
		if err := json.Unmarshal(b[8:size], &all); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		var names []string
		for name := range all {
			if !isHidden.MatchString(name) && name != "__metadata__" && (taps || !isTap.MatchString(name)) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return pack(names, all, b[size:], positions)
	})
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
