package vision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/cpu"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/safetensors"
	"github.com/karat-run/karat/internal/tensor"
)

var models = []string{"qwen3vl", "qwen35", "gemma3", "mistral3", "smolvlm", "lfm2vl", "gemma4", "gemma4-moe", "qwen25vl"}

// ids are the marks' tokens in the records; a number at the end of a mark is r·each + c.
var ids = map[string]int{"<start_of_image>": 512, "<end_of_image>": 513, "\n\n": 108, "\n": 10, "<|image>": 512, "<image|>": 513,
	"[IMG_BREAK]": 515, "[IMG_END]": 516, "<fake_token_around_image>": 515, "<global-img>": 516,
	"<|image_start|>": 515, "<|image_end|>": 516, "<|img_thumbnail|>": 517, "<|vision_start|>": 512, "<|vision_end|>": 513}

// tokens returns the ids of a text of marks.
func tokens(t *testing.T, text string) (all []int) {
	t.Helper()
next:
	for text != "" {
		for _, label := range []struct {
			form        string
			first, each int
		}{{"<row_%d_col_%d>", 517, 3}, {"<|img_row_%d_col_%d|>", 518, 4}} {
			var row, col int
			if n, _ := fmt.Sscanf(text, label.form, &row, &col); n == 2 {
				all, text = append(all, label.first+(row-1)*label.each+col-1), text[strings.IndexByte(text, '>')+1:]
				continue next
			}
		}
		for _, mark := range slices.SortedFunc(maps.Keys(ids), func(a, b string) int { return len(b) - len(a) }) {
			if rest, ok := strings.CutPrefix(text, mark); ok {
				all, text = append(all, ids[mark]), rest
				continue next
			}
		}
		t.Fatalf("mark %q", text)
	}
	return all
}

// record is what PyTorch computed.
type record struct {
	dir    string
	Images map[string]struct {
		IDs    []int `json:"placeholder_ids"`
		Tokens int
	}
	Prompts []struct {
		Images []string
		IDs    []int
	}
	tensors map[string][]float32
	widths  map[string]int
}

func readRecord(t *testing.T, name string) *record {
	t.Helper()
	r := &record{dir: golden.Shared(t, "goldens/vision/"+name), tensors: map[string][]float32{}, widths: map[string]int{}}
	b, err := os.ReadFile(filepath.Join(r.dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(r.dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, x := range f.Tensors {
		if x.DType == tensor.F32 {
			v := make([]float32, x.Shape.Size())
			if err := binary.Read(bytes.NewReader(x.Data), binary.LittleEndian, v); err != nil {
				t.Fatal(err)
			}
			r.tensors[x.Name], r.widths[x.Name] = v, x.Shape.Last()
		}
	}
	return r
}

func picture(t *testing.T, name string) *image.Image {
	t.Helper()
	data, err := os.ReadFile(golden.Shared(t, "goldens/vision/images/"+name+".png"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := image.Decode(data, image.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// tower returns the tower of a record, with its weights.
func tower(t *testing.T, name string) *checkpoint.Tower {
	t.Helper()
	c, err := checkpoint.Open(golden.Seeded(t, golden.Shared(t, "goldens/vision/"+name)))
	if err != nil {
		t.Fatal(err)
	}
	if c.Tower == nil {
		t.Fatal(c.Notes)
	}
	t.Cleanup(func() { c.Close() })
	return c.Tower
}

// open opens a tower.
func open(t *testing.T, x *checkpoint.Tower, b backend.Backend) *Model {
	t.Helper()
	m, err := Open(x, b, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return m
}

func distance(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var diff, norm float64
	for i, v := range want {
		diff += (float64(got[i]) - float64(v)) * (float64(got[i]) - float64(v))
		norm += float64(v) * float64(v)
	}
	return math.Sqrt(diff / norm)
}

// TestMarks wants each picture's tokens as in the records.
func TestMarks(t *testing.T) {
	for _, name := range models {
		r, m := readRecord(t, name), open(t, tower(t, name), reference.Backend{})
		for picked, want := range r.Images {
			p, err := m.Prepare(picture(t, picked))
			if err != nil {
				t.Fatal(err)
			}
			got := tokens(t, m.Kind.Around[0])
			for _, mark := range p.Marks {
				got = append(got, tokens(t, mark.Text)...)
				got = append(got, slices.Repeat([]int{514}, mark.To-mark.From)...)
			}
			if got = append(got, tokens(t, m.Kind.Around[1])...); !slices.Equal(got, want.IDs) || p.Rows != want.Tokens {
				t.Errorf("%s: %s: %v, want %v", name, picked, got, want.IDs)
			}
		}
	}
}

// TestRecords compares towers with PyTorch's in float64, from the picture's file to rows for the text.
func TestRecords(t *testing.T) {
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			r, x := readRecord(t, name), tower(t, name)
			for what, c := range map[string]struct {
				b     backend.Backend
				bound float64
			}{
				"float64": {reference.Backend{}, 1e-6},
				"f32":     {cpu.New(cpu.Options{Precision: cpu.F32, KV: cpu.KVF32}), 1e-5},
				"fast":    {cpu.New(cpu.Options{}), 3e-3},
			} {
				m := open(t, x, c.b)
				for i := range r.Prompts {
					if i > 0 && testing.Short() && m.Kind.Name == "gemma4v" {
						continue // large pictures
					}
					compared, worst := r.compare(t, what, m, i, c.bound)
					t.Logf("%s: prompt %d: %d values, %.2g at most", what, i, compared, worst)
					if least := map[int]int{0: 1, 1: 10}[i]; compared < least {
						t.Errorf("%s: prompt %d: %d values were compared", what, i, compared)
					}
				}
			}
		})
	}
}

// compare runs the pictures of a prompt.
func (r *record) compare(t *testing.T, what string, m *Model, prompt int, bound float64) (compared int, worst float64) {
	t.Helper()
	var rows [][]float32
	var tiles []tile
	taps := map[string][]float32{}
	m.rows, m.Want = 0, func(*graph.Node) bool { return true }
	first := m.Graph.Nodes[slices.IndexFunc(m.Graph.Nodes, func(n *graph.Node) bool { return n.Layer == 0 })].In[0]
	m.Tap = func(n *graph.Node, out []float32) {
		if n == first {
			taps["tower_in"] = append(taps["tower_in"], out...)
		}
		taps[strings.TrimPrefix(n.HF, "model.")] = append(taps[strings.TrimPrefix(n.HF, "model.")], out...)
	}
	for _, name := range r.Prompts[prompt].Images {
		p, err := m.Prepare(picture(t, name))
		if err != nil {
			t.Fatal(err)
		}
		out, err := m.Encode(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		rows, tiles = append(rows, out...), append(tiles, p.tiles...)
	}
	m.rows, m.Want, m.Tap = 0, nil, nil
	p, err := m.Prepare(picture(t, r.Prompts[prompt].Images[0]))
	if err != nil {
		t.Fatal(err)
	}
	bare, err := m.Encode(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range bare {
		if !slices.Equal(row, rows[i]) {
			t.Fatalf("%s: row %d has other bits without taps", what, i)
		}
	}
	for name, want := range r.tensors {
		tap, ok := strings.CutPrefix(name, fmt.Sprintf("%d.tap.", prompt))
		if strings.HasSuffix(tap, "patch_embed.out") && m.sight.Window > 0 { // before patches come by windows
			continue
		}
		if !ok || strings.Contains(tap, "language_model") || strings.Contains(tap, "text_model") ||
			strings.HasSuffix(tap, "patch_conv.out") || strings.HasSuffix(tap, "mm_soft_emb_norm.out") {
			continue
		}
		width := r.widths[name]
		got := m.sorted(taps[strings.TrimPrefix(tap, "model.")], width, tiles)
		if tap == "inputs_embeds" {
			all := want
			got, want = nil, nil
			for i, id := range r.Prompts[prompt].IDs {
				if id == 514 {
					got, want = append(got, rows[len(got)/width][:width]...), append(want, all[i*width:][:width]...)
				}
			}
		}
		if n := 64; m.Kind.Name == "lfm2" && len(want) == len(tiles)*n*width { // tiles are padded
			var parts []float32
			for i, x := range tiles {
				parts = append(parts, want[i*n*width:][:x.count()*width]...)
			}
			want = parts
		}
		if len(got) > len(want) { // the record has the first picture alone
			got = got[:len(want)]
		}
		compared++
		d := distance(got, want)
		if worst = max(worst, d); !(d <= bound) {
			t.Errorf("%s: prompt %d: %s: %d and %d numbers differ by %.3g", what, prompt, tap, len(got), len(want), d)
		}
	}
	return compared, worst
}

// sorted returns patches in transformers' order: by rows, where ours are in blocks.
func (m *Model) sorted(out []float32, width int, tiles []tile) []float32 {
	total := 0
	for _, x := range tiles {
		total += x.count()
	}
	if len(out) != total*width || strings.HasPrefix(m.Kind.Name, "qwen") {
		return out
	}
	all := make([]float32, len(out))
	first := 0
	for _, x := range tiles {
		s := &backend.Step{}
		x.add(s, nil, 0, m.sight)
		for i, p := range s.Parts {
			copy(all[(first+int(p[1])*x.grid.Width+int(p[2]))*width:], out[(first+i)*width:][:width])
		}
		first += x.count()
	}
	return all
}

// TestSameBits wants the bits of a tile alone from tiles together, with any number of threads.
func TestSameBits(t *testing.T) {
	for _, name := range []string{"qwen25vl", "lfm2vl", "gemma4"} {
		var want [][]float32
		x := tower(t, name)
		for _, threads := range []int{1, 3} {
			m := open(t, x, cpu.New(cpu.Options{Threads: threads}))
			p, err := m.Prepare(picture(t, "rings"))
			if err != nil {
				t.Fatal(err)
			}
			together, err := m.Encode(context.Background(), p)
			if err != nil {
				t.Fatal(err)
			}
			var apart [][]float32
			for i := range p.tiles {
				one := *p
				one.tiles = p.tiles[i : i+1]
				rows, err := m.Encode(context.Background(), &one)
				if err != nil {
					t.Fatal(err)
				}
				apart = append(apart, rows...)
			}
			if want == nil {
				want = together
			}
			for i := range want {
				if !slices.Equal(together[i], want[i]) || !slices.Equal(apart[i], want[i]) {
					t.Fatalf("%s: row %d has other bits with %d threads", name, i, threads)
				}
			}
		}
	}
}

// TestHashes wants the same bits on all machines (KARAT_SIMD chooses the instructions).
func TestHashes(t *testing.T) {
	for name, want := range map[string]string{"qwen3vl": "c68735c4e63b4732", "qwen25vl": "7915813d91414844",
		"gemma3": "22213600ae969aa2", "mistral3": "b4da092fddfae590", "smolvlm": "a24d1c7918c9e379",
		"lfm2vl": "f24b1e6e4a51fdc7", "gemma4": "9b1379e35050968a"} {
		m := open(t, tower(t, name), cpu.New(cpu.Options{}))
		p, err := m.Prepare(picture(t, "checker"))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := m.Encode(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for _, row := range rows {
			binary.Write(h, binary.LittleEndian, row)
		}
		if got := hex.EncodeToString(h.Sum(nil)[:8]); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// TestOtherOrder refuses a processor whose patches have as many numbers as the model's, in another order.
func TestOtherOrder(t *testing.T) {
	x := tower(t, "gemma4")
	x.Processor = []byte(`{"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 48, "width": 48}}`)
	if _, err := Open(x, reference.Backend{}, ""); err == nil || !strings.Contains(err.Error(), "in another order") {
		t.Error(err)
	}
}
