// Package vision makes rows for a model's text of pictures.
//
// Open compiles a model's tower. Prepare resizes a picture and says how it stands in a prompt, without computing;
// Encode computes its rows.
//
// Files in reading order: vision.go, patches.go.
package vision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/image/processor"
	"github.com/karat-run/karat/internal/kv"
)

// Model is an open tower.
type Model struct {
	Graph *graph.Graph
	Kind  *family.Tower
	Width int // of a row of the text; a row of Encode has as many numbers, or a multiple

	// Tap, if any, sees the nodes chosen by Want in each step: set before the first.
	Want func(*graph.Node) bool
	Tap  backend.Tap

	Config []byte // preprocessor_config.json

	sight     family.Sight
	processor *processor.Processor
	b         backend.Backend

	busy   sync.Mutex
	closed bool
	plan   backend.Executable
	cache  backend.Cache
	pool   *kv.Pool
	rows   int // of plan
}

// Open records the tower's graph and reads its processor. library resizes pictures, "" being the family's own. Plans
// are held until b is closed.
func Open(t *checkpoint.Tower, b backend.Backend, library image.Resizer) (*Model, error) {
	m := &Model{Kind: t.Kind, Width: t.Values.Int("out_hidden_size"), Config: t.Processor, b: b}
	var err error
	if m.Graph, m.sight, err = arch.Tower(t); err != nil {
		return nil, err
	}
	if t.Processor == nil {
		return nil, fmt.Errorf("%s: preprocessor_config.json is missing: it says how pictures are resized, and "+
			"the publisher's folder has it, or processor_config.json", t.Path)
	}
	if m.processor, err = processor.Read(t.Processor, library); err != nil {
		return nil, fmt.Errorf("%s: %w", t.Path, err)
	}
	m.align(m.processor)
	blank := &image.Image{Width: m.sight.Patch, Height: m.sight.Patch, Pix: make([]byte, 3*m.sight.Patch*m.sight.Patch)}
	if n := len(m.processor.Values.Patch(nil, blank, 0, 0, m.sight.Patch)); n != m.input() {
		return nil, fmt.Errorf("%s: preprocessor_config.json: a patch has %d numbers, the model's have %d", t.Path, n,
			m.input())
	}
	usual, _ := t.Kind.Projector.Processor(maps.Clone(t.Values))["image_processor_type"].(string)
	if o, ok := processor.OrderOf(usual); ok && o != m.Order() {
		return nil, fmt.Errorf("%s: preprocessor_config.json: a patch has its numbers in another order "+
			"than the model's, whose image_processor_type is %s", t.Path, usual)
	}
	return m, nil
}

// align fits a processor to the tower's blocks.
func (m *Model) align(p *processor.Processor) { p.Align(m.sight.Patch * max(m.sight.Side, 1)) }

// Sight says how the tower takes pictures.
func (m *Model) Sight() family.Sight { return m.sight }

// input returns the numbers of a patch.
func (m *Model) input() int { return backend.Input(m.Graph).Shape.Size() }

// ErrClosed is the error of a step after Close.
var ErrClosed = errors.New("the part for pictures is closed")

// Close frees the memory of keys and values, after the running step.
func (m *Model) Close() error {
	m.busy.Lock()
	defer m.busy.Unlock()
	m.closed = true
	return m.free()
}

// free frees the memory of keys and values.
func (m *Model) free() error {
	if m.cache == nil {
		return nil
	}
	return m.cache.Close()
}

// Picture is a prepared picture.
type Picture struct {
	family.View
	Marks  []family.Mark // what stands in a prompt for the picture
	Rows   int           // of Encode's result
	Places [][2]int      // of the rows: row and column in their tile

	Advance int // positions from the first row's to the next token's, where positions have three parts

	tiles []tile
}

// Prepare resizes a picture. Without pixels the picture has its marks and places, but no patches.
func (m *Model) Prepare(picture *image.Image) (*Picture, error) {
	return m.PrepareBy(m.processor, picture, nil)
}

// PrepareBy resizes a picture by a processor, perhaps another one than the model's, and lets change, if not nil, change
// the tiles.
func (m *Model) PrepareBy(by *processor.Processor, picture *image.Image, change func(*processor.Input)) (*Picture,
	error) {
	if by != m.processor {
		m.align(by)
	}
	in, err := by.Prepare(picture)
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(in)
	}
	p := &Picture{View: family.View{Rows: in.Rows, Cols: in.Cols}}
	for _, x := range in.Tiles {
		t, err := cut(x, &by.Values, m.sight)
		if err != nil {
			return nil, err
		}
		p.tiles, p.View.Tiles = append(p.tiles, t), append(p.View.Tiles, t.folded)
		p.Rows += t.folded.Height * t.folded.Width
		for i := range t.folded.Height * t.folded.Width {
			p.Places = append(p.Places, [2]int{i / t.folded.Width, i % t.folded.Width})
		}
	}
	p.Marks, p.Advance = m.Kind.Marks(p.View), max(p.View.Tiles[0].Height, p.View.Tiles[0].Width)
	return p, nil
}

// Release frees the patches, needed to compute rows alone.
func (p *Picture) Release() { p.tiles = nil }

// Tile is a tile's patches as a step without a sequence. Row i of the step's result is row Places[i] of the tile's.
type Tile struct {
	*backend.Step
	Grid   graph.Grid // of the patches
	Places []int
}

// Tiles returns the tiles of a picture.
func (m *Model) Tiles(p *Picture) (all []Tile) {
	for _, t := range p.tiles {
		x := Tile{Step: &backend.Step{}, Grid: t.grid}
		x.Places = t.add(x.Step, nil, 0, m.sight)
		all = append(all, x)
	}
	return all
}

// Raster returns the places of a tile's patches, row of a step by row of the picture, as transformers has them: nil
// where both orders are the same.
func (m *Model) Raster(t *Tile) (rows []int) {
	if m.Order() == processor.BlocksTwice {
		return nil
	}
	for _, at := range t.Parts {
		rows = append(rows, int(at[1])*t.Grid.Width+int(at[2]))
	}
	return rows
}

// Order returns the order of a patch's values, and of the patches, as transformers has them.
func (m *Model) Order() processor.Order { return m.processor.Order() }

// Takes returns how the tower takes pictures.
func (m *Model) Takes() family.Sight { return m.sight }

// Run computes the rows of a tile, in the step's order.
func (m *Model) Run(ctx context.Context, t Tile) ([][]float32, error) {
	m.busy.Lock()
	defer m.busy.Unlock()
	if err := m.compile(len(t.Tokens)); err != nil {
		return nil, err
	}
	return m.step(ctx, &backend.Step{Tokens: t.Tokens, Pos: t.Pos, Parts: t.Parts, Embeddings: t.Embeddings,
		Groups: t.Groups, Outputs: t.Outputs, Seqs: make([]*kv.Sequence, len(t.Tokens))}, len(t.Places))
}

// step runs a step; rows without a sequence have one in common.
func (m *Model) step(ctx context.Context, s *backend.Step, outputs int) ([][]float32, error) {
	s.Cache = m.cache
	if s.Seqs[0] == nil {
		seq := m.pool.NewSequence()
		defer seq.Free()
		if err := seq.Grow(len(s.Tokens)); err != nil {
			return nil, err
		}
		for i := range s.Seqs {
			s.Seqs[i] = seq
		}
	}
	out, err := m.plan.Run(ctx, s, m.Tap)
	if err != nil {
		return nil, err
	}
	size := m.Graph.Result().Shape.Size()
	if len(out) != outputs*size {
		return nil, errors.New("a picture has other rows than its places")
	}
	rows := make([][]float32, outputs)
	for i := range rows {
		rows[i] = slices.Clone(out[i*size : (i+1)*size])
	}
	return rows, nil
}

// together is the patches of small tiles computed in a step.
const together = 1024

// Encode computes the rows of a picture, [p.Rows, Width or a multiple].
func (m *Model) Encode(ctx context.Context, p *Picture) ([][]float32, error) {
	rows := make([][]float32, 0, p.Rows)
	for tiles := p.tiles; len(tiles) > 0; {
		n, count := 1, tiles[0].count()
		for n < len(tiles) && count+tiles[n].count() <= together {
			count += tiles[n].count()
			n++
		}
		more, err := m.encode(ctx, tiles[:n], count)
		if err != nil {
			return nil, err
		}
		rows, tiles = append(rows, more...), tiles[n:]
	}
	return rows, nil
}

// compile makes a plan for steps of a number of rows, unless there is one.
func (m *Model) compile(rows int) (err error) {
	if m.closed {
		return ErrClosed
	}
	if rows <= m.rows {
		return nil
	}
	most := together
	for most < rows {
		most *= 2
	}
	if err = m.free(); err != nil {
		return err
	}
	m.rows, m.cache = 0, nil
	if m.plan, err = m.b.Compile(m.Graph, backend.Options{Rows: most, Want: m.Want}); err != nil {
		return err
	}
	m.pool = kv.NewPool(kv.Options{Classes: backend.Classes(m.Graph, m.b), Context: most, Chunk: most,
		Private: true})
	if m.cache, err = m.b.NewCache(m.Graph, m.pool); err == nil {
		m.rows = most
	}
	return err
}

// encode computes tiles in a step of a number of rows. Steps of other pictures may come between a picture's steps.
func (m *Model) encode(ctx context.Context, tiles []tile, count int) ([][]float32, error) {
	m.busy.Lock()
	defer m.busy.Unlock()
	if err := m.compile(count); err != nil {
		return nil, err
	}
	s := &backend.Step{}
	var places []int // of the outputs among the rows
	for _, t := range tiles {
		seq := m.pool.NewSequence()
		defer seq.Free()
		if err := seq.Grow(t.count()); err != nil {
			return nil, err
		}
		places = append(places, t.add(s, seq, len(places), m.sight)...)
	}
	out, err := m.step(ctx, s, len(places))
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(places))
	for i, at := range places {
		rows[at] = out[i]
	}
	return rows, nil
}

// Seen is a picture with its rows.
type Seen struct {
	*Picture
	Values [][]float32 // Encode's; nil where the rows are only counted
}

// Row is a row of a picture in a prompt.
type Row struct {
	Of    *Seen
	Index int
}

// Write writes a picture's marks, with a token for each row, and appends the rows; nil for a token of a mark.
func (s *Seen) Write(b *strings.Builder, token string, rows []*Row) []*Row {
	for _, mark := range s.Marks {
		b.WriteString(mark.Text)
		rows = append(rows, make([]*Row, strings.Count(mark.Text, token))...)
		for i := mark.From; i < mark.To; i++ {
			b.WriteString(token)
			rows = append(rows, &Row{s, i})
		}
	}
	return rows
}

// Mixed is the part of a prompt besides its tokens.
type Mixed struct {
	Embeddings [][]float32     // of the tokens; nil for text
	Parts      [][3]int32      // positions
	Groups     []backend.Group // runs of rows of one picture
}

// Mix places rows at the tokens of pictures, id, among ids.
func (m *Model) Mix(ids []int32, id int32, rows []*Row) (x Mixed, err error) {
	x.Embeddings = make([][]float32, len(ids))
	x.Parts = make([][3]int32, len(ids))
	next, k := int32(0), 0
	var last *Row
	for i := range ids {
		x.Parts[i] = [3]int32{next, next, next}
		if ids[i] != id {
			next++
			last = nil
			continue
		}
		if k == len(rows) {
			return x, errors.New("a prompt has more tokens of pictures than rows")
		}
		r := rows[k]
		if k++; r == nil {
			next++
			continue
		}
		if r.Of.Values != nil {
			x.Embeddings[i] = r.Of.Values[r.Index]
		}
		if m.Kind.Padded {
			ids[i] = 0
		}
		if last == nil || last.Of != r.Of || r.Index == 0 {
			x.Groups = append(x.Groups, backend.Group{First: int32(i), End: int32(i)})
		}
		x.Groups[len(x.Groups)-1].End++
		place := r.Of.Places[r.Index]
		x.Parts[i] = [3]int32{next, next + int32(place[0]), next + int32(place[1])}
		if last = r; r.Index == r.Of.Rows-1 {
			next += int32(r.Of.Advance)
		}
	}
	if k != len(rows) {
		return x, errors.New("a prompt has fewer tokens of pictures than rows")
	}
	return x, nil
}
