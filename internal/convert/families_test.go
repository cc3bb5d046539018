package convert_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/convert"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/gguf"
)

// listing is gguf.json: what llama.cpp's converter made of a folder. A key has its types
// and its value, a tensor its type, its shape, fastest dimension first, and the SHA-256 of
// its bytes.
type listing struct {
	Metadata map[string][2]any `json:"metadata"`
	Tensors  map[string][3]any `json:"tensors"`
}

// ours are the keys and tensors that differ from llama.cpp's file, and why.
var ours = map[string]map[string]string{
	"deepseek2": {"deepseek2.expert_gating_func": "readers without it assume softmax; the model has sigmoids, which its config.json does not say"},
	"glm4moelite": {
		"deepseek2.expert_gating_func": "see deepseek2",
		"tokenizer.ggml.pre":           "dbrx, which cuts as glm4 does, and says no more than the folder",
		"tokenizer.ggml.eot_token_id":  "the folder's texts end at 510; llama.cpp's converter always takes <|user|>",
		"tokenizer.ggml.eom_token_id":  "see eot_token_id",
	},
	"deepseek32": {"deepseek32.expert_gating_func": "readers want it; llama.cpp's converter has it from scoring_func alone, which published folders have"},
	"glmdsa": {
		"glm-dsa.expert_gating_func":  "see deepseek32",
		"tokenizer.ggml.eot_token_id": "the folder's texts end at 510; llama.cpp's converter always takes <|user|>",
		"tokenizer.ggml.eom_token_id": "see eot_token_id",
	},
	"mistral4": {
		"mistral4.attention.temperature_scale":  "the converter leaves the growth of queries out, which its reader of this architecture knows",
		"mistral4.attention.temperature_length": "likewise",
	},
	"mimo2": {
		"mimo2.block_count":                      "the layers behind the last are set aside; the converter always counts three, which this folder lacks",
		"mimo2.nextn_predict_layers":             "see block_count",
		"mimo2.attention.head_count_kv":          "see block_count",
		"mimo2.attention.sliding_window_pattern": "see block_count; flags are true and false, as in other architectures",
		"tokenizer.ggml.normalizer.nfc":          "as qwen3moe",
	},
	"qwen3next": {"tokenizer.ggml.normalizer.nfc": "as qwen3moe"},
	"phimoe":    {"phimoe.rope.scaling.attn_factor": "the converter computes it; the model's is short_mscale"},
	"afmoe": {
		"afmoe.expert_weights_norm": "readers without it do not normalize; the model does, which its config.json does not say",
		"afmoe.expert_gating_func":  "readers assume sigmoids",
		"tokenizer.ggml.pre":        "the folder's tokenizer splits as dbrx",
	},
	"exaonemoe": {
		"exaone-moe.expert_gating_func":   "readers want it; llama.cpp's converter has it from scoring_func alone, which published folders have",
		"exaone-moe.nextn_predict_layers": "readers assume 0",
	},
	"deepseek2-lite": {"tokenizer.ggml.pre": "the folder's tokenizer splits as deepseek-v3"},
	"falconh1":       {"tokenizer.ggml.add_bos_token": "readers of falcon-h1 begin a text with a BOS; this model's tokenizer does not"},
	"embeddinggemma": {"gemma-embedding.attention.sliding_window_pattern": "readers without it assume every sixth layer; the model has every fourth",
		"gemma-embedding.attention.scale": "readers without it assume 1/sqrt of the head size, which this model has: llama.cpp's converter does not say it"},
	"gemma2": {"gemma2.attention.scale": "readers without it assume 1/sqrt(48), the head size; the model has 1/sqrt(40)"},
	"gemma":  {"tokenizer.ggml.eot_token_id": "in the converter 107 is <end_of_turn>, of published models; here it is another token"},
	"hunyuan-dense": {
		"hunyuan-dense.rope.scaling.factor":                  "a rotation that is not scaled has no factor",
		"hunyuan-dense.rope.scaling.original_context_length": "nor another context",
		"tokenizer.ggml.eos_token_id":                        "the folder's texts end at 505 and 510; the converter takes eod_token_id",
		"tokenizer.ggml.eot_token_id":                        "510 is a mark of turns by its name",
	},
	"ernie45":       {"tokenizer.ggml.pre": "as olmo3: the converter was told so"},
	"stablelm2-12b": {"general.basename": "the converter reads the name of this folder", "general.finetune": "likewise"},
	"eurobert":      {"tokenizer.ggml.pre": "the converter was told llama-bpe; the folder's tokenizer splits as modern-bert's, and composes"},
	"nomicbert": {
		"nomic-bert.attention.key_length":   "published config.json has no such key; the width is the model's by its heads",
		"nomic-bert.attention.value_length": "likewise",
	},
	"gemma3n":   {"gemma3n.feed_forward_length": "all layers are as wide: readers take a number for a list"},
	"jamba":     {"blk.0.ssm_a": ratesWhy, "blk.1.ssm_a": ratesWhy, "blk.3.ssm_a": ratesWhy},
	"falcon-7b": {"general.basename": "the converter reads the name of this folder", "general.finetune": "likewise"},
	"glm4":      {"tokenizer.ggml.eot_token_id": "the folder's texts end at 510 too; llama.cpp's converter always takes <|user|>"},
	"glm4moe": {
		"glm4moe.block_count":          "the layer behind the last is set aside; llama.cpp does not open a file that counts it and lacks its tensors",
		"glm4moe.nextn_predict_layers": "see block_count",
		"tokenizer.ggml.eot_token_id":  "the folder's texts end at 510; llama.cpp's converter always takes <|user|>",
		"tokenizer.ggml.eom_token_id":  "see eot_token_id",
	},
	"olmo3": {"tokenizer.ggml.pre": "dbrx, which OLMo 2's files have, cuts as llama-bpe does, and says no more than the folder"},
	"granitehybrid": {
		"granitehybrid.attention.head_count_kv": "llama.cpp's converter does not know transformers 5's name full_attention, and takes the layer for a scan; readers would, too",
		"blk.2.attn_q.weight":                   "likewise; as it permutes the rows of what is called attention",
		"blk.2.attn_k.weight":                   "likewise",
	},
	"modernbert": {"modern-bert.attention.layer_norm_epsilon": "llama.cpp's reader wants it; its converter writes it only where config.json has layer_norm_eps, too, as published ones"},
	"exaone": {
		"exaone.attention.layer_norm_rms_epsilon": "llama.cpp's reader wants it; its converter writes the other key, since config.json says layer_norm_epsilon",
		"exaone.attention.layer_norm_epsilon":     "see layer_norm_rms_epsilon",
	},
	"phi2":       {"tokenizer.ggml.add_bos_token": "the converter says of all of them what readers assume"},
	"starcoder2": {"starcoder2.attention.sliding_window": "llama.cpp's converter and graph have no window; the model has 16"},
	"qwen3moe":   {"tokenizer.ggml.normalizer.nfc": "qwen2 stands for NFC, as published tokenizers do; this model's does not"},
	"nemotronh":  {"nemotron_h_moe.attention.layer_norm_rms_epsilon": "llama.cpp's reader wants it; its converter writes the other key alone where config.json has transformers 5's"},
	"llama4": {"llama4.attention.sliding_window": "readers without it assume chunks of 8192; the model has 32",
		"llama4.attention.temperature_length": "readers without it assume 8192; the model has 64"},
	"qwen35moe": {"tokenizer.ggml.normalizer.nfc": "as qwen35"},
	"qwen35": {"tokenizer.ggml.normalizer.nfc": "qwen35 stands for NFC, as published tokenizers do; this model's does not",
		"qwen35.attention.recurrent_layers": "llama.cpp's converter says that every fourth layer is full, and the model has others"},
}

// ratesWhy gives the reason for other bytes of thousands of rates of decay.
const ratesWhy = "-e^A_log is rounded to nearest; PyTorch's exponential function of float32 sometimes gives the next number"

// listed writes a gguf.json that is missing, of Karat's own file, for a reader who compares it with the converter.
var listed = flag.Bool("listed", false, "write a missing gguf.json")

// TestFamilies wants the GGUF file of each family's folder to have llama.cpp's keys, types and
// values, but for ours, and its tensors.
func TestFamilies(t *testing.T) {
	for _, name := range append(golden.Families(t), golden.Encoders(t)...) {
		if golden.Unconverted[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			folder := golden.Model(t, name)
			b, err := os.ReadFile(filepath.Join(folder, "gguf.json"))
			if *listed && os.IsNotExist(err) {
				path := filepath.Join(t.TempDir(), name+".gguf")
				run(t, folder, path, convert.Options{})
				b = encode(t, list(t, path))
				err = os.WriteFile(filepath.Join(golden.Repo(t), "families", name, "gguf.json"), b, 0o644)
			}
			var want listing
			if err == nil {
				err = json.Unmarshal(b, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), name+".gguf")
			run(t, folder, path, convert.Options{})
			got := list(t, path)
			for key, why := range ours[name] {
				a, b := fmt.Sprint(got.Metadata[key], got.Tensors[key]), fmt.Sprint(want.Metadata[key], want.Tensors[key])
				if a == b {
					t.Errorf("%s is as in llama.cpp's file: %s", key, why)
				}
				delete(got.Metadata, key)
				delete(want.Metadata, key)
				if x, ok := got.Tensors[key]; ok {
					want.Tensors[key] = x
				}
			}
			for key, v := range want.Metadata {
				if a, b := fmt.Sprint(got.Metadata[key]), fmt.Sprint(v); a != b {
					t.Errorf("key %s: %s, want %s", key, a, b)
				}
			}
			for key, v := range got.Metadata {
				if _, ok := want.Metadata[key]; !ok {
					t.Errorf("key %s = %v is not in llama.cpp's file", key, v)
				}
			}
			for name, x := range want.Tensors {
				if a, b := fmt.Sprint(got.Tensors[name]), fmt.Sprint(x); a != b {
					t.Errorf("tensor %s: %s, want %s", name, a, b)
				}
			}
			if len(got.Tensors) != len(want.Tensors) {
				t.Errorf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
			}
		})
	}
}

// list is the listing of a file, as JSON has it.
func list(t *testing.T, path string) listing {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	metadata, tensors := map[string][2]any{}, map[string][3]any{}
	for _, key := range f.Metadata.Keys() {
		v, _ := f.Metadata.Lookup(key)
		x, err := v.Any()
		if err != nil {
			t.Fatal(err)
		}
		types := []string{strings.ToUpper(v.Type().String())}
		if v.Type() == gguf.Array {
			types = append(types, strings.ToUpper(v.Elem().String()))
		}
		if y, ok := x.(float32); ok { // as Python has it
			x = float64(y)
		}
		if y, ok := x.([]float32); ok {
			x = pythons(y)
		}
		if v.Type() == gguf.Array && v.Len() > 64 {
			x = map[string]any{"length": v.Len(), "sha256": fmt.Sprintf("%x", sha256.Sum256(encode(t, x)))}
		}
		metadata[key] = [2]any{types, x}
	}
	for _, x := range f.Tensors() {
		dims := slices.Clone(x.Shape)
		slices.Reverse(dims)
		tensors[x.Name] = [3]any{x.DType.String(), dims, fmt.Sprintf("%x", sha256.Sum256(x.Data))}
	}
	var l listing
	if err := json.Unmarshal(encode(t, map[string]any{"metadata": metadata, "tensors": tensors}), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// pythons are numbers as Python's json writes them: 3.0. Of infinite ones, which JSON lacks, trim.go makes strings.
func pythons(x []float32) (all []any) {
	for _, v := range x {
		if math.IsInf(float64(v), -1) {
			all = append(all, "-Infinity")
			continue
		}
		text := strconv.FormatFloat(float64(v), 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		all = append(all, json.Number(text))
	}
	return all
}

// encode is compact JSON without HTML's escapes.
func encode(t *testing.T, x any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}
