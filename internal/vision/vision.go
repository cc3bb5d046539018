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
	"slices"
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

	sight     family.Sight
	processor *processor.Processor
	b         backend.Backend

	busy  sync.Mutex
	plan  backend.Executable
	cache backend.Cache
	pool  *kv.Pool
	rows  int // of plan
}

// Open records the tower's graph and reads its processor. library resizes pictures, "" being the family's own. Plans
// are held until b is closed.
func Open(t *checkpoint.Tower, b backend.Backend, library image.Resizer) (*Model, error) {
	m := &Model{Kind: t.Kind, Width: t.Values.Int("out_hidden_size"), b: b}
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
	m.processor.Align(m.sight.Patch * max(m.sight.Side, 1))
	blank := &image.Image{Width: m.sight.Patch, Height: m.sight.Patch, Pix: make([]byte, 3*m.sight.Patch*m.sight.Patch)}
	if n := len(m.processor.Values.Patch(nil, blank, 0, 0, m.sight.Patch)); n != m.input() {
		return nil, fmt.Errorf("%s: preprocessor_config.json: a patch has %d numbers, the model's have %d", t.Path, n,
			m.input())
	}
	return m, nil
}

// Sight says how the tower takes pictures.
func (m *Model) Sight() family.Sight { return m.sight }

// input returns the numbers of a patch.
func (m *Model) input() int { return backend.Input(m.Graph).Shape.Size() }

// Close frees the memory of keys and values. Nothing may run, then or later.
func (m *Model) Close() error {
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

	tiles []tile
}

// Prepare resizes a picture.
func (m *Model) Prepare(picture *image.Image) (*Picture, error) {
	in, err := m.processor.Prepare(picture)
	if err != nil {
		return nil, err
	}
	p := &Picture{View: family.View{Rows: in.Rows, Cols: in.Cols}}
	for _, x := range in.Tiles {
		t, err := cut(x, &m.processor.Values, m.sight)
		if err != nil {
			return nil, err
		}
		p.tiles, p.View.Tiles = append(p.tiles, t), append(p.View.Tiles, t.folded)
		p.Rows += t.folded.Height * t.folded.Width
		for i := range t.folded.Height * t.folded.Width {
			p.Places = append(p.Places, [2]int{i / t.folded.Width, i % t.folded.Width})
		}
	}
	p.Marks = m.Kind.Marks(p.View)
	return p, nil
}

// together is the patches of small tiles computed in a step.
const together = 1024

// Encode computes the rows of a picture, [p.Rows, Width or a multiple].
func (m *Model) Encode(ctx context.Context, p *Picture) ([][]float32, error) {
	m.busy.Lock()
	defer m.busy.Unlock()
	rows := make([][]float32, 0, p.Rows)
	for tiles := p.tiles; len(tiles) > 0; {
		n, count := 1, tiles[0].count()
		for n < len(tiles) && count+tiles[n].count() <= together {
			count += tiles[n].count()
			n++
		}
		if err := m.compile(count); err != nil {
			return nil, err
		}
		more, err := m.encode(ctx, tiles[:n])
		if err != nil {
			return nil, err
		}
		rows, tiles = append(rows, more...), tiles[n:]
	}
	return rows, nil
}

// compile makes a plan for steps of a number of rows, unless there is one.
func (m *Model) compile(rows int) (err error) {
	if rows <= m.rows {
		return nil
	}
	most := together
	for most < rows {
		most *= 2
	}
	if err = m.Close(); err != nil {
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

// encode computes tiles in a step.
func (m *Model) encode(ctx context.Context, tiles []tile) ([][]float32, error) {
	s := &backend.Step{Cache: m.cache}
	var places []int // of the outputs among the rows
	for _, t := range tiles {
		seq := m.pool.NewSequence()
		defer seq.Free()
		if err := seq.Grow(t.count()); err != nil {
			return nil, err
		}
		places = append(places, t.add(s, seq, len(places), m.sight)...)
	}
	out, err := m.plan.Run(ctx, s, m.Tap)
	if err != nil {
		return nil, err
	}
	size := m.Graph.Result().Shape.Size()
	if len(out) != len(places)*size {
		return nil, errors.New("a picture has other rows than its places")
	}
	rows := make([][]float32, len(places))
	for i, at := range places {
		rows[at] = slices.Clone(out[i*size : (i+1)*size])
	}
	return rows, nil
}
