package arch_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/graph"
)

// synthetics are the models that synthetic makes.
var synthetics = []string{"llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma4-e2b", "gemma4-31b", "gemma4-26b"}

// FuzzConfig puts any bytes in place of config.json and, where they are an
// object, lays its keys over the configuration of every kind of model. A model
// that loads has a graph of numbers; one that does not costs little.
func FuzzConfig(f *testing.F) {
	dirs, configs := make([]string, len(synthetics)), make([]config, len(synthetics))
	for i, name := range synthetics {
		m := synthetic(name)
		dirs[i], configs[i] = m.write(f), m.config
		b, err := json.Marshal(m.config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		loadConfig(t, dirs[0], text)
		var more config
		if json.Unmarshal(text, &more) != nil {
			return
		}
		delete(more, "model_type")
		for i := range dirs {
			c := maps.Clone(configs[i])
			maps.Copy(c, more)
			whole, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			loadConfig(t, dirs[i], whole)
		}
	})
}

// loadConfig loads the model in dir with another config.json.
func loadConfig(t *testing.T, dir string, text []byte) {
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	bounded(t, func() (*checkpoint.Checkpoint, error) { return checkpoint.Open(dir) })
}

// bounded loads a checkpoint in bounded memory and checks its graph.
func bounded(t *testing.T, open func() (*checkpoint.Checkpoint, error)) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err := open()
	if err == nil {
		defer c.Close()
		var g *graph.Graph
		if g, _, err = arch.Load(c); err == nil {
			checkNumbers(t, g)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes: %v", n, err)
	}
}

// checkNumbers wants every number of g finite, and divisors positive.
func checkNumbers(t *testing.T, g *graph.Graph) {
	positive := func(v float64) bool { return v > 0 && v <= math.MaxFloat32 }
	for _, n := range g.Nodes {
		ok := true
		switch a := n.Attr.(type) {
		case graph.EmbedAttr:
			ok = positive(float64(a.Scale))
		case graph.NormAttr:
			ok = positive(float64(a.Eps))
		case graph.RoPEAttr:
			ok = !slices.ContainsFunc(a.Freqs, func(v float64) bool { return !(v >= 0 && v <= 64) })
		case graph.ScaleAttr:
			ok = positive(a.By)
		case graph.AttentionAttr:
			ok = positive(a.Scale) && a.KV.Window >= 0
		}
		if !ok {
			t.Errorf("%v: %+v", n, n.Attr)
		}
	}
}

// FuzzMetadata sets two keys of a GGUF file to any value of any type.
func FuzzMetadata(f *testing.F) {
	base := make([]*file, len(synthetics))
	for i, name := range synthetics {
		toGGUF(f, synthetic(name).write(f), func(b *file) {
			for j := range b.tensors { // which are unmapped later
				b.tensors[j].Data = bytes.Clone(b.tensors[j].Data)
			}
			base[i] = b
		})
	}
	for _, b := range base {
		for i, kv := range b.metadata {
			next := b.metadata[(i+1)%len(b.metadata)]
			f.Add(uint8(i), kv.Key, uint8(i), uint64(math.Float64bits(math.NaN())), next.Key, uint8(3*i), uint64(i))
		}
	}
	f.Fuzz(func(t *testing.T, model uint8, key1 string, kind1 uint8, bits1 uint64, key2 string, kind2 uint8, bits2 uint64) {
		b := *base[int(model)%len(base)]
		b.metadata = slices.DeleteFunc(slices.Clone(b.metadata), func(kv gguf.KeyValue) bool { return kv.Key == key1 || kv.Key == key2 })
		b.metadata = append(b.metadata, gguf.KeyValue{Key: key1, Value: anyValue(kind1, bits1)})
		if key2 != key1 {
			b.metadata = append(b.metadata, gguf.KeyValue{Key: key2, Value: anyValue(kind2, bits2)})
		}
		var out bytes.Buffer
		if gguf.Write(&out, b.metadata, b.tensors) != nil {
			return // what no file can hold
		}
		bounded(t, func() (*checkpoint.Checkpoint, error) { return checkpoint.Parse("fuzz.gguf", out.Bytes()) })
	})
}

// anyValue makes a metadata value of bits.
func anyValue(kind uint8, bits uint64) any {
	n := int(bits % 7) // an array's length
	switch kind % 13 {
	case 0:
		return uint32(bits)
	case 1:
		return int32(bits)
	case 2:
		return bits
	case 3:
		return int64(bits)
	case 4:
		return math.Float32frombits(uint32(bits))
	case 5:
		return math.Float64frombits(bits)
	case 6:
		return bits%2 == 0
	case 7:
		return []string{"linear", "none", "yarn", "", "llama", "gemma4"}[bits%6]
	case 8:
		return slices.Repeat([]int32{int32(bits >> 8)}, n)
	case 9:
		return slices.Repeat([]float32{math.Float32frombits(uint32(bits >> 8))}, n)
	case 10:
		return slices.Repeat([]bool{bits&256 == 0}, n)
	case 11:
		return make([]uint8, bits%(1<<20))
	}
	return []string{"a", "b"}[:bits%3]
}
