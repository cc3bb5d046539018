package convert

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
)

// ErrSame is the error of Repair where there is nothing to do.
var ErrSame = errors.New("the settings, the tokenizer and the chat template are the source's already")

// Repair writes the GGUF file at src to dst with the settings, the tokenizer and the chat template that Convert makes
// of the original folder. Tensors keep their bytes, and keys that Convert does not write stay. The argument loads is
// EditOptions.Loads.
func Repair(ctx context.Context, src, folder, dst string, loads func(*checkpoint.Checkpoint) error) ([]Change, error) {
	want, arch, err := metadataOf(folder)
	if err != nil {
		return nil, err
	}
	f, err := gguf.Open(src)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if v, ok := f.Metadata.Lookup("general.architecture"); ok {
		if is, err := v.Any(); err == nil && is != arch {
			return nil, fmt.Errorf("%s is a %v, but %s a %s: it was not made from that", src, is, folder, arch)
		}
	}
	o := EditOptions{Loads: loads}
	for _, kv := range want {
		if v, ok := f.Metadata.Lookup(kv.Key); ok {
			is, err := v.Any()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", src, err)
			}
			if reflect.DeepEqual(is, kv.Value) || fmt.Sprint(is) == fmt.Sprint(kv.Value) {
				continue
			}
		}
		o.Set = append(o.Set, kv)
	}
	if len(o.Set) == 0 {
		return nil, fmt.Errorf("%s: %w", src, ErrSame)
	}
	return Edit(ctx, src, dst, o)
}

// metadataOf returns the keys that Convert writes for a folder, except general.*, and the architecture.
func metadataOf(folder string) ([]gguf.KeyValue, string, error) {
	m, err := checkpoint.Open(folder)
	if err != nil {
		return nil, "", err
	}
	defer m.Close()
	if m.Format == checkpoint.GGUF {
		return nil, "",
			fmt.Errorf("%s is a GGUF file: want the Hugging Face folder that the model was made from", folder)
	}
	own, _, err := m.MetadataGGUF()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", folder, err)
	}
	text, _, err := m.TextGGUF()
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", folder, err)
	}
	return append(own, text...), m.Arch, nil
}
