package adapter

import (
	"errors"
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
)

// openGGUF opens a file of llama.cpp's convert_lora_to_gguf.py.
//
// Source: llama.cpp, convert_lora_to_gguf.py and src/llama-adapter.cpp.
func openGGUF(path string) (*File, error) {
	g, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := fromGGUF(g)
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	f.close = append(f.close, g)
	return f, nil
}

func fromGGUF(g *gguf.File) (*File, error) {
	for _, k := range []struct{ key, want string }{{"general.type", "adapter"}, {"adapter.type", "lora"}} {
		if v, err := g.Metadata.String(k.key); err != nil {
			return nil, fmt.Errorf("no adapter: %w", err)
		} else if v != k.want {
			return nil, fmt.Errorf("key %s is %q, want %q", k.key, v, k.want)
		}
	}
	if _, ok := g.Metadata.Lookup("adapter.alora.invocation_tokens"); ok {
		return nil, errors.New("key adapter.alora.invocation_tokens: an activated LoRA (aLoRA), which is off until " +
			"these tokens occur, is not supported")
	}
	f := &File{format: checkpoint.GGUF}
	var err error
	if f.arch, err = g.Metadata.String("general.architecture"); err != nil {
		return nil, err
	}
	alpha, err := g.Metadata.Float("adapter.lora.alpha")
	if err != nil && !errors.Is(err, gguf.ErrNoKey) {
		return nil, err
	}
	f.scale = func(_ string, rank int) (float64, error) {
		if alpha == 0 { // as in llama_adapter_lora_weight.get_scale
			return 1, nil
		}
		return alpha / float64(rank), nil
	}
	f.pairs, err = joinPairs(g.Tensors(), halfGGUF)
	return f, err
}

// halfGGUF reads a tensor's name, as blk.0.attn_q.weight.lora_a.
func halfGGUF(name string) (module string, isA bool, err error) {
	module, isA = strings.CutSuffix(name, ".lora_a")
	if !isA {
		var isB bool
		if module, isB = strings.CutSuffix(name, ".lora_b"); !isB {
			return "", false, errors.New("it is no half of a pair (lora_a or lora_b), and nothing else is supported")
		}
	}
	return strings.TrimSuffix(module, ".weight"), isA, nil
}
