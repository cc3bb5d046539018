package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/tensor"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/karat-run/karat/internal/vision"
)

// Pixels is the name of the tap of the numbers in patches: [patches, numbers], tile after tile of all pictures of a
// prompt. The patches of a tile are in its rows, or in the order of the publisher's processor.
const Pixels = "image.pixels"

// Picture is a picture of a prompt.
type Picture struct {
	Path   string   `json:"path"`             // from the record's folder
	SHA256 string   `json:"sha256,omitempty"` // of the file
	Grids  [][2]int `json:"grids,omitempty"`  // rows and columns of patches of each tile
}

// Sight is the pictures of a prompt.
type Sight struct {
	Pictures []Picture  `json:"images,omitempty"`
	Groups   [][2]int32 `json:"image_rows,omitempty"` // runs of positions, first and end, of a picture's rows

	mixed vision.Mixed
}

// Mixed returns the part of the prompt besides its tokens.
func (s *Sight) Mixed() vision.Mixed { return s.mixed }

// Show sets the part of the prompt besides its tokens.
func (s *Sight) Show(x vision.Mixed) { s.mixed = x }

// Read returns the file's bytes, given the folder of the record.
func (p *Picture) Read(folder string) ([]byte, error) {
	path := p.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	st, err := os.Stat(path)
	if err == nil && (!st.Mode().IsRegular() || st.Size() > 64<<20) {
		err = fmt.Errorf("%s: no regular file of at most 64 MiB", path)
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); p.SHA256 != "" && p.SHA256 != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("%s: another file than the record's: its SHA-256 is %x", path, sum)
	}
	return data, nil
}

// Move makes a path from a folder the path from another one, the record's.
func (p *Picture) Move(from, to string) error {
	if filepath.IsAbs(p.Path) {
		return nil
	}
	to, err := filepath.Abs(to)
	if err == nil {
		from, err = filepath.Abs(from)
	}
	if err == nil {
		p.Path, err = filepath.Rel(to, filepath.Join(from, p.Path))
	}
	return err
}

// Shown is a picture cut into tiles.
type Shown struct {
	*vision.Picture
	Tiles []vision.Tile
}

// Eye computes the pictures of prompts.
type Eye struct {
	*vision.Model
	ID     int32  // token of a row in the model's own prompts
	Mark   int32  // token of the template's text for a picture
	Folder string // of relative paths
	// Prepare cuts a picture's file into tiles; nil is the model's way.
	Prepare func(data []byte) (*Shown, error)
}

// OpenEye opens the seeing part of a model, for pictures with paths beginning in a folder.
func OpenEye(c *checkpoint.Checkpoint, t *tokenizer.Tokenizer, b backend.Backend, folder string) (*Eye, error) {
	m, err := vision.Open(c.Tower, b, "")
	if err != nil {
		return nil, err
	}
	e := &Eye{Model: m, ID: -1, Mark: -1, Folder: folder}
	if id, ok := t.ID(m.Kind.Image); ok {
		e.ID, e.Mark = int32(id), int32(id)
	}
	for _, x := range c.Metadata {
		if id, err := strconv.Atoi(x.Value); err == nil && (x.Key == "image_token_id" || x.Key == "image_token_index") {
			e.ID = int32(id)
		}
	}
	return e, nil
}

// show prepares a picture.
func (e *Eye) show(p *Picture) (*Shown, error) {
	data, err := p.Read(e.Folder)
	if err != nil {
		return nil, err
	}
	if p.SHA256 == "" {
		sum := sha256.Sum256(data)
		p.SHA256 = hex.EncodeToString(sum[:])
	}
	if e.Prepare == nil {
		return nil, fmt.Errorf("%s: nothing prepares pictures", p.Path)
	}
	x, err := e.Prepare(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	p.Grids = nil
	for _, t := range x.Tiles {
		p.Grids = append(p.Grids, [2]int{t.Grid.Height, t.Grid.Width})
	}
	return x, nil
}

// Look computes the pictures of p, and sets how they stand among the tokens. encode makes ids of p's text with the
// pictures' marks in place of the model's text for a picture; nil where ids have the marks already.
func (e *Eye) Look(ctx context.Context, p *Prompt, taps bool, encode func(text string) ([]int32, error)) error {
	if n := strings.Count(p.Text, e.Kind.Image); encode != nil && n != len(p.Pictures) {
		return fmt.Errorf("%d pictures, but the text has %s %d times", len(p.Pictures), e.Kind.Image, n)
	}
	seen := make([]vision.Seen, len(p.Pictures))
	all := map[*graph.Node][]float32{}
	var tap map[*graph.Node][]float32
	e.Want = func(n *graph.Node) bool {
		return taps && (n.HF != "" || n.Op == graph.Patches || n == e.Graph.Result())
	}
	e.Tap = func(n *graph.Node, out []float32) { tap[n] = append(tap[n], out...) }
	var rows []*vision.Row
	text := p.Text
	var b strings.Builder
	for i := range p.Pictures {
		x, err := e.show(&p.Pictures[i])
		if err != nil {
			return err
		}
		seen[i] = vision.Seen{Picture: x.Picture, Values: make([][]float32, 0, x.Rows)}
		for _, t := range x.Tiles {
			tap = map[*graph.Node][]float32{}
			out, err := e.Run(ctx, t)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Pictures[i].Path, err)
			}
			first := len(seen[i].Values)
			seen[i].Values = append(seen[i].Values, out...)
			for k, at := range t.Places {
				seen[i].Values[first+at] = out[k]
			}
			for n, v := range tap {
				all[n] = append(all[n], reorder(v, n, e.order(n, &t))...)
			}
		}
		before, after, _ := strings.Cut(text, e.Kind.Image)
		b.WriteString(before)
		rows, text = seen[i].Write(&b, e.Kind.Image, rows), after
	}
	id := e.ID
	if encode != nil {
		ids, err := encode(b.String() + text)
		if err != nil {
			return err
		}
		p.IDs, id = ids, e.Mark
	} else {
		rows = slices.DeleteFunc(rows, func(r *vision.Row) bool { return r == nil })
	}
	if taps {
		p.Taps = e.taps(all)
	}
	x, err := e.Mix(p.IDs, id, rows)
	if err != nil {
		return err
	}
	p.mixed, p.Groups = x, nil
	for _, g := range x.Groups {
		p.Groups = append(p.Groups, [2]int32{g.First, g.End})
		for i := g.First; i < g.End && !e.Kind.Padded; i++ {
			p.IDs[i] = e.ID
		}
	}
	return nil
}

// Write puts the pictures' marks into the text that p was made of, for a tokenizer.
func (p *Prompt) Write(shown []*Shown, mark string) {
	if p.Input.Text == nil && p.Input.Chat == nil {
		return
	}
	text := p.Text
	var b strings.Builder
	for _, s := range shown {
		before, after, _ := strings.Cut(text, mark)
		b.WriteString(before)
		(&vision.Seen{Picture: s.Picture}).Write(&b, mark, nil)
		text = after
	}
	p.Text = b.String() + text
	p.Input = Input{Text: &p.Text}
}

// taps names the values of the tower. The result has the name of its node.
func (e *Eye) taps(all map[*graph.Node][]float32) map[string]*tensor.Tensor {
	taps := map[string]*tensor.Tensor{}
	for n, v := range all {
		name := n.HF
		if n.Op == graph.Patches {
			name = Pixels
		} else if name == "" {
			name = Projected
		}
		taps[name] = newF32(v, len(v)/n.Shape.Size(), n.Shape.Size())
	}
	return taps
}

// Projected is the name of the tap of the projector's result, the rows of pictures.
const Projected = "image.rows"

// sights has the modules before the text of llama.cpp's values, by the names of its hook; %d is a layer.
var sights = map[string]string{
	"patch_bias": `(patch_embedding|patch_embed(\.proj)?)\.out$`,
	"inp":        `patch_embedder\.input_proj\.out$`,
	"pos_embd":   `patch_embedder\.out$`,
	"attn_out":   `s\.%d\.(self_)?attn\.out$`,
	"ffn_gate":   `s\.%d\.mlp\.gate_proj(\.linear)?\.out$`,
	"ffn_up":     `s\.%d\.mlp\.(up_proj(\.linear)?|fc1|linear_fc1)\.out$`,
	"ffn_out":    `s\.%d\.mlp\.out$`,
	"layer_out":  `s\.%d\.out$`,
}

// inSight returns the expression of the module of a value of llama.cpp before the text, sight.NAME#K.OP or
// sight.NAME-LAYER#K.OP, nil for other names.
func inSight(tap string) *regexp.Regexp {
	name, ok := strings.CutPrefix(tap, "sight.")
	name, _, _ = strings.Cut(name, "#")
	name, layer, _ := strings.Cut(name, "-")
	name = strings.TrimSuffix(name, "_b") // with a bias
	if sights[name] == "" || !ok {
		return nil
	}
	re, _ := regexp.Compile(strings.ReplaceAll(sights[name], "%d", regexp.QuoteMeta(layer)))
	return re
}

// lacksBias reports whether a value of llama.cpp's is a product before the bias that n has added.
func lacksBias(tap string, n *graph.Node) bool {
	return strings.HasSuffix(n.Name, ".bias") && strings.Contains(tap, ".ffn_") && !strings.Contains(tap, "_b-") &&
		!strings.Contains(tap, ".ffn_out")
}

// Find returns the value before the text with the name of a tap, nil for none.
func (e *Eye) Find(tap string) *graph.Node {
	module := func(name string) string { return strings.TrimPrefix(strings.TrimSuffix(name, ".out"), "model.") }
	theirs := inSight(tap)
	for _, n := range e.Graph.Nodes {
		switch {
		case n.Name == tap, n.Op == graph.Patches && tap == Pixels, n == e.Graph.Result() && tap == Projected:
			return n
		case n.Op == graph.Patches || n.HF == "":
		case module(n.HF) == module(tap), theirs != nil && theirs.MatchString(n.HF) && !lacksBias(tap, n):
			return n
		}
	}
	return nil
}

// order returns the rows of a step by the dump's order; nil for the same.
func (e *Eye) order(n *graph.Node, t *vision.Tile) []int {
	if Fold(n) > 1 {
		return nil
	}
	return e.Raster(t)
}

// reorder puts row i of a step at place rows[i].
func reorder(v []float32, n *graph.Node, rows []int) []float32 {
	size := n.Shape.Size()
	if rows == nil || len(v) != len(rows)*size {
		return v
	}
	out := make([]float32, len(v))
	for i, at := range rows {
		copy(out[at*size:(at+1)*size], v[i*size:])
	}
	return out
}

// Fold returns the number of a sequence's rows that have become a row of n; 1 for none.
func Fold(n *graph.Node) int {
	if a, ok := n.Attr.(graph.PoolAttr); ok && n.Op == graph.Pool {
		return max(a.Count, 1)
	}
	if len(n.In) == 0 {
		return 1
	}
	return Fold(n.In[0])
}

// Tiles returns a prompt of the tower for each tile of p's pictures, with the engine's numbers in patches if p has
// them, and takes the taps of the tower from p.
func (e *Eye) Tiles(p *Prompt, shown []*Shown, first int) (prompts []*Prompt) {
	var tiles []vision.Tile
	for _, s := range shown {
		tiles = append(tiles, s.Tiles...)
	}
	patches := 0
	for _, t := range tiles {
		patches += len(t.Tokens)
	}
	for i, t := range tiles {
		q := &Prompt{Index: first + i, IDs: make([]int32, len(t.Tokens)), Parts: t.Parts,
			Taps: map[string]*tensor.Tensor{}}
		q.mixed.Embeddings = t.Embeddings
		q.mixed.Groups = slices.Compact(slices.Clone(t.Groups)) // of runs, not of rows
		prompts = append(prompts, q)
	}
	for name, x := range p.Taps {
		n := e.Find(name)
		if n == nil {
			continue
		}
		r := rowsOf(x)
		size, fold := n.Shape.Size(), Fold(n)
		if r.n*r.width != patches/fold*size {
			continue
		}
		at := rows{n: patches / fold, width: size, dtype: r.dtype, data: r.data}
		from := 0
		for i, t := range tiles {
			count := len(t.Tokens) / fold
			v := make([]float64, size)
			step := make([]float32, 0, count*size)
			raster := e.order(n, &t)
			for k := range count {
				row := k
				if raster != nil {
					row = raster[k]
				}
				at.read(v, from+row)
				for _, y := range v {
					step = append(step, float32(y))
				}
			}
			from += count
			if q := prompts[i]; n.Op != graph.Patches {
				q.Taps[n.Name] = newF32(step, count, size)
			} else {
				q.mixed.Embeddings = slices.Collect(slices.Chunk(step, size))
			}
			delete(p.Taps, name)
		}
	}
	return prompts
}
