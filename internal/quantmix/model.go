package quantmix

import (
	"errors"
	"fmt"
	"strings"

	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
)

// Of reads what the choice of types depends on from a file's metadata.
func Of(m gguf.Metadata) (Model, error) {
	arch, err := m.String("general.architecture")
	if err != nil {
		return Model{}, err
	}
	if registry.Find(arch) == nil {
		return Model{}, fmt.Errorf("general.architecture %q: only the mixes of %s are known", arch, strings.Join(registry.Names(), ", "))
	}
	layers, err := m.Uint(arch + ".block_count")
	if err != nil {
		return Model{}, err
	}
	heads, err := first(m, arch+".attention.head_count", 1)
	if err != nil {
		return Model{}, err
	}
	kv, err := first(m, arch+".attention.head_count_kv", heads)
	if err != nil {
		return Model{}, err
	}
	experts, err := first(m, arch+".expert_count", 0)
	if err != nil {
		return Model{}, err
	}
	const most = 1 << 20
	if layers > most || heads > most || kv > most || experts > most {
		return Model{}, fmt.Errorf("%d layers, %d heads, %d heads of keys, %d experts, want up to %d", layers, heads, kv, experts, most)
	}
	model := Model{Arch: arch, Layers: int(layers), Experts: int(experts)}
	if kv > 0 {
		model.Group = int(heads / kv)
	}
	return model, nil
}

// first is an integer, or the first of an array with one for each layer, or absent
// if there is no such key.
func first(m gguf.Metadata, key string, absent uint64) (uint64, error) {
	v, ok := m.Lookup(key)
	switch {
	case !ok:
		return absent, nil
	case v.Type() == gguf.Array:
		all, err := m.Ints(key)
		if err == nil && (len(all) == 0 || all[0] < 0) {
			err = errors.New("no first number from 0")
		}
		if err != nil {
			return 0, fmt.Errorf("key %q: %w", key, err)
		}
		return uint64(all[0]), nil
	}
	n, err := m.Uint(key)
	if err != nil {
		return 0, err
	}
	return n, nil
}
