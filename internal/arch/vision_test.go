package arch_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/engine"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/kv"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

// imageToken is the token of an image's rows in shared/goldens/vision.
const imageToken = 514

// sight is a prompt of shared/goldens/vision with what its tower gives, and the logits of its last positions.
type sight struct {
	ids    []int32
	mixed  engine.Mixed
	logits []float32
	masks  map[int][]byte // by layer: of all positions by all
	noise  float64        // distance of PyTorch's logits in float32
}

// seenBy reads the prompt of two images of a model.
func seenBy(t *testing.T, dir string) (p sight) {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	numbers := func(name string, to any) bool {
		i := slices.IndexFunc(f.Tensors, func(x tensor.Tensor) bool { return x.Name == name })
		if i < 0 {
			return false
		}
		x := f.Tensors[i]
		switch to := to.(type) {
		case *[]float32:
			*to = make([]float32, x.Shape.Size())
			err = binary.Read(bytes.NewReader(x.Data), binary.LittleEndian, *to)
		case *[]int32:
			*to = make([]int32, x.Shape.Size())
			err = binary.Read(bytes.NewReader(x.Data), binary.LittleEndian, *to)
		case *[]byte:
			*to = slices.Clone(x.Data)
		}
		if err != nil {
			t.Fatal(name, err)
		}
		return true
	}
	var rows, deep, more []float32
	var positions []int32
	numbers("1.ids", &p.ids)
	numbers("1.logits", &p.logits)
	numbers("1.tap.inputs_embeds", &rows)
	n := len(p.ids)
	if numbers("1.position_ids", &positions) && len(positions) == 3*n {
		for i := range n {
			p.mixed.Parts = append(p.mixed.Parts, [3]int32{positions[i], positions[n+i], positions[2*n+i]})
		}
	}
	var record struct {
		Prompts []struct {
			Masks []struct {
				Tensor string
				Layers []int
			}
			Float32 struct {
				Far float64 `json:"max_abs_diff"`
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err = errors.Join(err, json.Unmarshal(b, &record)); err != nil {
		t.Fatal(err)
	}
	p.masks, p.noise = map[int][]byte{}, record.Prompts[1].Float32.Far
	for _, m := range record.Prompts[1].Masks {
		for _, layer := range m.Layers {
			var mask []byte
			numbers(m.Tensor, &mask)
			p.masks[layer] = mask
		}
	}
	var features [][]float32
	for _, name := range []string{"0", "1"} {
		if numbers("1.tap.model.visual.deepstack_merger_list."+name+".out", &more) {
			features, deep = append(features, more), more
		}
	}
	width, at := len(rows)/n, 0
	p.mixed.Embeddings = make([][]float32, n)
	for i := 0; i < n; i++ {
		first := i
		for ; i < n && p.ids[i] == imageToken; i++ {
			row := slices.Clone(rows[i*width : (i+1)*width])
			for _, f := range features {
				row = append(row, f[at*width:(at+1)*width]...)
			}
			at, p.mixed.Embeddings[i] = at+1, row
			p.ids[i] = 0 // Gemma 4's table by layer has the padding's row for images
		}
		if i > first {
			p.mixed.Groups = append(p.mixed.Groups, backend.Group{First: int32(first), End: int32(i)})
		}
	}
	if len(deep) != 0 && len(deep) != at*width {
		t.Fatalf("%d features for %d rows", len(deep), at)
	}
	return p
}

// compareMasks compares what each layer's rows see with the record's masks.
func (p *sight) compareMasks(t *testing.T, g *graph.Graph) {
	n := len(p.ids)
	pool := kv.NewPool(kv.Options{Classes: backend.Classes(g, reference.Backend{}), Context: n, Chunk: n})
	seq := pool.NewSequence()
	if err := seq.Grow(n); err != nil {
		t.Fatal(err)
	}
	s := &backend.Step{Groups: make([]backend.Group, n)}
	for i := range n {
		s.Pos, s.Seqs = append(s.Pos, int32(i)), append(s.Seqs, seq)
	}
	for _, x := range p.mixed.Groups {
		for i := x.First; i < x.End; i++ {
			s.Groups[i] = x
		}
	}
	found := 0
	for _, node := range g.Nodes {
		a, ok := node.Attr.(graph.AttentionAttr)
		mask := p.masks[node.Layer]
		if !ok || mask == nil {
			continue
		}
		found++
		for i := range n {
			first, last := s.Range(a, i)
			for j := range n {
				if sees := first <= j && j <= last; sees != (mask[i*n+j] != 0) {
					t.Fatalf("layer %d: row %d sees %d: %v", node.Layer, i, j, sees)
				}
			}
		}
	}
	if found != len(p.masks) {
		t.Errorf("%d layers of attention, the record has masks of %d", found, len(p.masks))
	}
}

// TestVisionText: the part for text of each model that sees gives PyTorch's logits from the rows of two images, in
// float64 within 1e-5; in float32 within 1e-5 or, of two models, within PyTorch's distance in float32 (7e-5 and 3e-5);
// with keys and values in binary16 and with quantized activations as without images. It sees what the record's masks
// say.
func TestVisionText(t *testing.T) {
	for _, name := range []string{"qwen3vl", "qwen35", "qwen25vl", "gemma3", "gemma4", "gemma4-moe", "smolvlm",
		"mistral3", "lfm2vl"} {
		t.Run(name, func(t *testing.T) {
			dir := golden.Shared(t, "goldens/vision/"+name)
			c, err := checkpoint.Open(golden.Seeded(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			g, notes, err := arch.Load(c)
			if err != nil || len(notes) > 0 {
				t.Fatal(notes, err)
			}
			p := seenBy(t, dir)
			for _, x := range []struct {
				name  string
				b     backend.Backend
				bound float64
			}{{"float64", reference.Backend{}, 1e-5}, {"f32", cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), max(1e-5, p.noise)},
				{"f32, keys and values in binary16", cpu.New(cpu.Options{Precision: cpu.F32}), 5e-3}, {"fast", cpu.New(cpu.Options{}), 5e-2}} {
				e, err := engine.New(g, x.b, engine.Options{Context: len(p.ids) + 8, Chunk: 100})
				if err != nil {
					t.Fatal(err)
				}
				s := e.NewSequence()
				if _, err := s.Mix(p.ids, p.mixed, ""); err != nil {
					t.Fatal(err)
				}
				got, err := s.Feed(context.Background(), p.ids, 4)
				if err != nil {
					t.Fatal(err)
				}
				d := farther(slices.Concat(got...), p.logits)
				t.Logf("%s: logits %.2g away", x.name, d)
				if !(d <= x.bound) {
					t.Errorf("%s: logits %.3g away, at most %.3g", x.name, d, x.bound)
				}
				s.Close()
				e.Close()
				x.b.Close()
			}
			p.compareMasks(t, g)
		})
	}
}
