package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/vision"
)

// Shares of equal numbers in patches: of an engine that prepares pictures so, and of the least that a mistake must
// gain to be one of several.
const (
	prepared = 0.97
	gained   = 0.02
)

// mostLooks is the mistakes in a picture that are searched together.
const mostLooks = 2

// sighted is a picture that an engine prepared.
type sighted struct {
	data []byte
	rows [][]float32 // patches in the order of the model's steps, tile after tile
	size [2]int      // of the engine's picture in pixels; zeros if unsaid
}

// sightings are the pictures of a dump.
type sightings struct {
	m   *vision.Model
	all []sighted // the smallest first
}

// judgment is how near an engine with some looks comes.
type judgment struct {
	looks []*mistake.Look
	share float64 // of equal numbers, in the worst picture
	level bool    // whether no number is farther off than a level
}

// judge compares what an engine with looks would have made. A picture with no larger share of equal numbers than the
// least ends the comparison.
func (s *sightings) judge(least float64, library image.Resizer, looks ...*mistake.Look) judgment {
	j := judgment{looks, 1, true}
	for _, x := range s.all {
		share, level := 0.0, false
		if want, err := mistake.See(s.m, x.data, library, looks...); err == nil {
			share, level = alike(want.Tiles, x.rows)
		}
		if j.share, j.level = min(j.share, share), j.level && level; share <= least {
			break
		}
	}
	return j
}

// alike returns the share of equal numbers, and whether no number is farther off than a level of 255 levels.
func alike(tiles []vision.Tile, got [][]float32) (share float64, level bool) {
	equal, count, step, unit := 0, 0, levelOf(tiles), halfUnit(got)
	level = true
	for _, t := range tiles {
		if len(got) < len(t.Embeddings) {
			return 0, false
		}
		for i, row := range t.Embeddings {
			if len(got[i]) != len(row) {
				return 0, false
			}
			for j, v := range row {
				off := math.Abs(float64(got[i][j] - v))
				if count++; off <= max(0.02*step, min(unit*math.Abs(float64(v)), 0.6*step)) {
					equal++
				}
				level = level && off <= 1.02*step
			}
		}
		got = got[len(t.Embeddings):]
	}
	if len(got) > 0 || count == 0 {
		return 0, false
	}
	return float64(equal) / float64(count), level
}

// halfUnit returns half a unit in the last place, relative, of the form in which all numbers are held.
func halfUnit(rows [][]float32) float64 {
	var used uint32
	for _, row := range rows {
		for _, v := range row {
			used |= math.Float32bits(v)
		}
	}
	return math.Ldexp(1, min(bits.TrailingZeros32(used), 23)-24)
}

// levelOf returns the difference of two levels among numbers: the least difference that is no rounding. Channels have
// levels of their own, and lie one after another in a patch or side by side.
func levelOf(tiles []vision.Tile) (level float64) {
	for _, channel := range []func(j, n int) int{
		func(j, n int) int { return 3 * j / n },
		func(j, _ int) int { return j % 3 },
	} {
		var all [3][]float64
		for _, t := range tiles {
			for _, row := range t.Embeddings[:min(len(t.Embeddings), 16)] {
				for j, v := range row {
					c := channel(j, len(row))
					all[c] = append(all[c], float64(v))
				}
			}
		}
		least := math.Inf(1)
		for _, x := range all {
			slices.Sort(x)
			for i := 1; i < len(x); i++ {
				span := max(x[len(x)-1]-x[0], 1e-6)
				if d := x[i] - x[i-1]; d > span/2048 {
					least = min(least, d, span/64)
				}
			}
		}
		level = max(level, least)
	}
	return level
}

// name finds the looks by which an engine made the pictures; exact if all of them are found. Of looks that come as near
// the fewest are taken, and of these the likeliest.
func (s *sightings) name(ctx context.Context) (best judgment, exact bool, err error) {
	for _, library := range []image.Resizer{"", image.Pillow, image.Torchvision} {
		if j := s.judge(0, library); j.share > best.share || best.looks == nil {
			best = j
		}
		if best.share >= prepared || best.level && best.share > 0.5 {
			return best, true, nil
		}
	}
	singles := mistake.Looks(s.m)
	base := s.sized(singles)
	if base != nil {
		singles = slices.DeleteFunc(singles, base[0].Excludes)
	}
	try := func(looks ...*mistake.Look) {
		looks = slices.Concat(base, looks)
		if j := s.judge(best.share, "", looks...); j.share > best.share+1e-9 {
			best = j
		}
	}
	try()
	for count := 1; count <= mostLooks && best.share < prepared; count++ {
		combine(singles, count, func(looks []*mistake.Look) bool {
			try(looks...)
			return count == 1 || best.share < prepared && ctx.Err() == nil
		})
	}
	return best, best.share >= prepared, ctx.Err()
}

// sized returns the look by which the pictures have the engine's sizes, where the dump says others than the model's: a
// rule if one gives all of them, else the first of the sizes.
func (s *sightings) sized(all []*mistake.Look) (base []*mistake.Look) {
	i := slices.IndexFunc(s.all, func(x sighted) bool { return x.size != [2]int{} })
	if i < 0 {
		return nil
	}
	base = []*mistake.Look{mistake.OfSize(s.all[i].size[0], s.all[i].size[1])}
	for _, rule := range all {
		if rule.Excludes(base[0]) && !slices.ContainsFunc(s.all, func(x sighted) bool {
			e, err := mistake.See(s.m, x.data, "", rule)
			return err != nil || rowsOfTiles(e) != len(x.rows) || x.size != [2]int{} && s.sizeOf(e) != x.size
		}) {
			return []*mistake.Look{rule}
		}
	}
	return base
}

// sizeOf returns the width and height of a picture's first tile in pixels.
func (s *sightings) sizeOf(e *lab.Shown) [2]int {
	g, patch := e.Tiles[0].Grid, s.m.Takes().Patch
	return [2]int{g.Width * patch, g.Height * patch}
}

// combine calls use with each set of looks that an engine may have together, until use returns false.
func combine(all []*mistake.Look, count int, use func([]*mistake.Look) bool) {
	var visit func(from int, have []*mistake.Look) bool
	visit = func(from int, have []*mistake.Look) bool {
		if len(have) == count {
			return use(have)
		}
		for i := from; i < len(all); i++ {
			if slices.ContainsFunc(have, all[i].Excludes) {
				continue
			}
			if !visit(i+1, append(have[:len(have):len(have)], all[i])) {
				return false
			}
		}
		return true
	}
	visit(0, nil)
}

// findings returns what the judgment of pictures says.
func (s *sightings) findings(j judgment, exact bool) (all []Finding) {
	right := s.judge(0, "")
	add := func(cause, op, computed string, d detail) {
		all = append(all, Finding{Cause: cause, Op: op, Layers: []int{}, Tap: lab.Pixels, From: []string{},
			Nodes: []string{}, Detail: d, Computed: computed, Residual: lab.Number(1 - right.share),
			Evidence: fmt.Sprintf("%.2g %% of the numbers in patches are as the model's processor makes them, %.4g %% "+
				"with this", 100*right.share, 100*j.share)})
	}
	for _, l := range j.looks {
		add(l.Cause, l.Op, l.Computed, l.Detail)
	}
	if !exact && (len(j.looks) == 0 || j.share < right.share+gained) {
		all = nil
		add("unknown", s.stage(), "makes other numbers of the picture", nil)
	}
	return all
}

// stage returns the stage whose results are the first to be wrong, as far as the numbers tell.
func (s *sightings) stage() string {
	x := s.all[0]
	want, err := mistake.See(s.m, x.data, "")
	if err != nil {
		return "Decode"
	}
	var rows [][]float32
	for _, t := range want.Tiles {
		rows = append(rows, t.Embeddings...)
	}
	switch flat, got := slices.Concat(rows...), slices.Concat(x.rows...); {
	case len(flat) != len(got):
		return "Size"
	case slices.Equal(slices.Sorted(slices.Values(flat)), slices.Sorted(slices.Values(got))):
		return "Patches"
	case isFunction(flat, got):
		return "Normalize"
	}
	return "Resize"
}

// isFunction reports whether equal numbers became equal numbers.
func isFunction(from, to []float32) bool {
	by, off := map[float32]float32{}, 0
	for i, v := range from {
		if w, ok := by[v]; ok && math.Abs(float64(w-to[i])) > 1e-3*math.Abs(float64(w))+1e-6 {
			off++
		}
		by[v] = to[i]
	}
	return off*50 < len(from)
}

// hasPictures reports whether a prompt of the dump has pictures, and the model sees.
func (o *Options) hasPictures() bool {
	return o.Eye != nil && slices.ContainsFunc(o.Dump.Prompts, func(p *lab.Prompt) bool { return len(p.Pictures) > 0 })
}

// parts divides a dump of a model that sees: into the text's, with the rows of pictures that the tower makes of the
// engine's own values, and the tower's. The sightings are how pictures were prepared.
func (o *Options) parts() (text, tower Options, s *sightings, findings []Finding, err error) {
	s = &sightings{m: o.Eye.Model}
	sights := map[*lab.Prompt]sight{}
	record, seen := *o.Dump, &lab.Record{Path: o.Dump.Path, Declared: o.Dump.Declared}
	record.Prompts = nil
	for _, p := range o.Dump.Prompts {
		q := *p
		q.Taps = maps.Clone(p.Taps)
		record.Prompts = append(record.Prompts, &q)
		if len(q.Pictures) == 0 {
			continue
		}
		shown, err := s.add(o, &q)
		if err != nil {
			return text, tower, s, nil, err
		}
		q.Write(shown, o.Eye.Kind.Image)
		tiles := o.Eye.Tiles(&q, shown, len(seen.Prompts))
		more, sees, err := see(o, &q, shown, tiles)
		if err != nil {
			return text, tower, s, nil, err
		}
		sights[&q] = sees
		findings = append(findings, more...)
		seen.Prompts = append(seen.Prompts, tiles...)
	}
	text, tower = *o, *o
	tower.Graph, tower.Dump, tower.Names, tower.Golden, tower.Asked = o.Eye.Graph, seen, lab.NamesKarat, nil, nil
	text.Dump, text.sights, tower.Eye = &record, sights, nil
	return text, tower, s, findings, nil
}

// diagnoseSight diagnoses a dump of a model that sees: how pictures were prepared, the tower, and then the text, each
// given the engine's own values before.
func diagnoseSight(ctx context.Context, o Options) (*Diagnosis, error) {
	text, t, s, findings, err := o.parts()
	if err != nil {
		return nil, err
	}
	if o.Progress != nil {
		o.Progress("comparing pixels", 0, 0)
	}
	if len(s.all) > 0 {
		j, exact, err := s.name(ctx)
		if err != nil {
			return nil, err
		}
		findings = append(findings, s.findings(j, exact)...)
	}
	d, failed := diagnose(ctx, text)
	t.read = failed == nil && slices.Index(order, d.Verdict) > slices.Index(order, Unexplained)
	seen, err := diagnose(ctx, t)
	if err == nil && failed == nil && t.Dump.Declared == (round.Class{}) && len(seen.Findings) > 0 &&
		seen.Floors.Activations == string(round.F64) && d.Floors.Activations != string(round.F64) {
		t.Dump.Declared.Activations = round.F32 // the text shows that the engine rounds, as few rows may not
		seen, err = diagnose(ctx, t)
	}
	if err != nil && !errors.Is(err, ErrUnusable) {
		return nil, err
	}
	for i := 0; seen != nil && i < len(seen.Findings); i++ {
		seen.Findings[i].Tower = layers(o.Eye.Graph)
	}
	switch {
	case failed != nil && (!errors.Is(failed, ErrUnusable) || seen == nil):
		return nil, failed
	case failed != nil:
		d = seen
		d.Dump, seen = o.Dump.Path, nil
	}
	if seen != nil {
		findings = append(findings, seen.Findings...)
		d.Curves = append(seen.Curves, d.Curves...)
		d.Coverage.Taps, d.Coverage.Equations = d.Coverage.Taps+seen.Coverage.Taps,
			d.Coverage.Equations+seen.Coverage.Equations
	}
	findings = slices.DeleteFunc(findings, func(f Finding) bool { return kindOf(f) == Numeric })
	d.Findings = append(findings, d.Findings...)
	slices.SortStableFunc(d.Findings, func(a, b Finding) int {
		return slices.Index(order, kindOf(a)) - slices.Index(order, kindOf(b))
	})
	if len(findings) > 0 && slices.Index(order, kindOf(d.Findings[0])) < slices.Index(order, d.Verdict) {
		d.Verdict = kindOf(d.Findings[0])
	}
	return d, nil
}

// add prepares the pictures of p as the model does, or in the engine's size or with its tiles where the dump says
// others, and adds the engine's patches.
func (s *sightings) add(o *Options, p *lab.Prompt) (shown []*lab.Shown, err error) {
	patches, folder := p.Floats(lab.Pixels), filepath.Dir(o.Dump.Path)
	shown, all, count, err := s.show(folder, p)
	if err != nil {
		return nil, err
	}
	for _, l := range mistake.Looks(s.m) {
		if l.Op != "Tiles" || count == len(patches) || len(patches) == 0 {
			continue
		}
		if x, more, n, err := s.show(folder, p, l); err == nil && n == len(patches) {
			shown, all, count = x, more, n
		}
	}
	for i, x := range all {
		if rowsOfTiles(shown[i]) > len(patches) {
			continue
		}
		for _, t := range shown[i].Tiles {
			rows := patches[:len(t.Tokens)]
			x.rows, patches = append(x.rows, rows...), patches[len(rows):]
			for k, at := range s.m.Raster(&t) {
				x.rows[len(x.rows)-len(rows)+k] = rows[at]
			}
		}
		s.all = append(s.all, x)
	}
	slices.SortStableFunc(s.all, func(a, b sighted) int { return len(a.rows) - len(b.rows) })
	return shown, nil
}

// rowsOfTiles returns the number of a picture's patches.
func rowsOfTiles(s *lab.Shown) (n int) {
	for _, t := range s.Tiles {
		n += len(t.Tokens)
	}
	return n
}

// show prepares the pictures of p by looks, in the engine's size where the dump says another one, and counts their
// patches.
func (s *sightings) show(folder string, p *lab.Prompt, looks ...*mistake.Look) (shown []*lab.Shown, all []sighted,
	count int, err error) {
	for i := range p.Pictures {
		x := sighted{}
		if x.data, err = p.Pictures[i].Read(folder); err != nil {
			return nil, nil, 0, fmt.Errorf("prompt %d: %w", p.Index, err)
		}
		e, err := mistake.See(s.m, x.data, "", looks...)
		if g := p.Pictures[i].Grids; err == nil && len(g) == 1 && len(e.Tiles) == 1 {
			patch := s.m.Takes().Patch
			if size := [2]int{g[0][1] * patch, g[0][0] * patch}; size != s.sizeOf(e) {
				x.size = size
				e, err = mistake.See(s.m, x.data, "", mistake.OfSize(size[0], size[1]))
			}
		}
		if err != nil {
			return nil, nil, 0, fmt.Errorf("prompt %d: %s: %w", p.Index, p.Pictures[i].Path, err)
		}
		shown, all, count = append(shown, e), append(all, x), count+rowsOfTiles(e)
	}
	return shown, all, count, nil
}

// sight returns a function that makes the rows of a prompt's pictures, by position, as an engine with some numerics
// makes rows. Numerics that round alike share rows.
type sight func(num *reference.Numerics) func() [][]float32

// sameness is equal for numerics that round the values of a tower alike.
type sameness struct {
	name          string
	stores        bool
	kv            round.Format
	order         reference.Order
	jitter, given float64
	chance        rand.PCG
}

// samenessOf returns the sameness of n: zero if n rounds nothing. Functions have the name of their class.
func samenessOf(n *reference.Numerics) (x sameness) {
	if n.Store != nil || n.Input != nil || n.GELU != nil {
		x.name, x.stores = n.Name, n.Store != nil
	}
	x.kv, x.order, x.jitter, x.given = n.KV, n.Order, n.Jitter, n.Given
	if x.jitter != 0 || x.given != 0 {
		x.chance = *n.Random
	}
	return x
}

// see sets the rows of p's pictures: the results of the tower from the engine's own values, tile by tile. It returns a
// finding where the engine's tokens or positions are others, and a sight unless the dump tells all rows: the engine has
// rounded the others.
func see(o *Options, p *lab.Prompt, shown []*lab.Shown, tiles []*lab.Prompt) (findings []Finding, rounded sight,
	err error) {
	model, g := reference.Of(o.Eye.Graph), o.Eye.Graph
	tapped := slices.ContainsFunc(tiles, func(q *lab.Prompt) bool { return len(q.Taps) > 0 })
	look := func(num *reference.Numerics) (rows []*vision.Row, err error) {
		tiles := tiles
		for _, s := range shown {
			seen := &vision.Seen{Picture: s.Picture}
			for _, t := range s.Tiles {
				q := tiles[0]
				tiles = tiles[1:]
				placed, err := lab.Place(g, lab.NamesKarat, q)
				if err != nil {
					return nil, err
				}
				known := map[*graph.Node]reference.Known{}
				for _, x := range placed.Taps {
					known[x.Node] = lab.Tap{Placed: x}
				}
				last := make([]int, len(t.Outputs))
				for i, at := range t.Outputs {
					last[i] = int(at)
				}
				part := &prompt{Prompt: q}
				y, err := part.eval(model, known, num).Value(g.Result(), last)
				if err != nil {
					return nil, err
				}
				size, first := g.Result().Shape.Size(), len(seen.Values)
				seen.Values = append(seen.Values, make([][]float32, len(last))...)
				for k, at := range t.Places {
					for _, v := range y[k*size : (k+1)*size] {
						seen.Values[first+at] = append(seen.Values[first+at], float32(v))
					}
				}
			}
			for i := range seen.Values {
				rows = append(rows, &vision.Row{Of: seen, Index: i})
			}
		}
		return rows, nil
	}
	rows, err := look(nil)
	if reference.Uncomputable(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, err
	}
	p.IDs = slices.Clone(p.IDs)
	for _, g := range p.Groups { // some models have padding there
		copy(p.IDs[g[0]:g[1]], slices.Repeat([]int32{o.Eye.ID}, int(g[1]-g[0])))
	}
	ids := slices.Clone(p.IDs) // Mix may make padding of p's
	mixed, err := o.Eye.Mix(p.IDs, o.Eye.ID, rows)
	if err != nil {
		return []Finding{{Cause: "image_markers", Op: "Embed", Layers: []int{}, Tap: "ids", From: []string{},
			Nodes:    []string{},
			Computed: fmt.Sprintf("has other tokens for the %d rows of pictures: %v", len(rows), err),
			Evidence: fmt.Sprintf("prompt %d", p.Index)}}, nil, nil
	}
	if p.Parts == nil && slices.ContainsFunc(o.Graph.Nodes, mistake.Sectioned) {
		p.Parts = mixed.Parts
	}
	if p.Parts != nil && !slices.Equal(p.Parts, mixed.Parts) {
		at := 0
		for p.Parts[at] == mixed.Parts[at] {
			at++
		}
		cause, said := "image_advance", "goes on after a picture by another number"
		got, want := p.Parts[at], mixed.Parts[at]
		if mixed.Embeddings[at] != nil || got[1]-want[1] != got[2]-want[2] {
			cause, said = "rope_sections", "has other positions for the rows of a picture"
		}
		findings = append(findings, Finding{Cause: cause, Op: "RoPE", Layers: []int{}, Tap: "position_parts",
			From: []string{}, Nodes: []string{}, Computed: said,
			Evidence: fmt.Sprintf("prompt %d: at token %d %v, not %v", p.Index, at, got, want)})
	}
	if !tapped {
		if err := o.takeRows(p, mixed); err != nil {
			return nil, nil, err
		}
	}
	p.Show(mixed)
	if !slices.ContainsFunc(tiles, func(q *lab.Prompt) bool { return q.Taps[g.Result().Name] == nil }) {
		return findings, nil, nil
	}
	made := map[sameness][][]float32{{}: mixed.Embeddings}
	return findings, func(num *reference.Numerics) func() [][]float32 {
		like, own := samenessOf(num), *num
		chance := like.chance // num's goes on with the text
		own.Random = &chance
		return func() [][]float32 {
			if made[like] == nil {
				made[like] = mixed.Embeddings
				if rows, err := look(&own); err == nil {
					x, err := o.Eye.Mix(slices.Clone(ids), o.Eye.ID, rows)
					if err == nil && (tapped || o.takeRows(p, x) == nil) {
						made[like] = x.Embeddings
					}
				}
			}
			return made[like]
		}
	}, nil
}

// takeRows takes the rows of pictures from the dump's first value of the text. Without taps before it nothing tells how
// the engine rounds there, so that the rows are not judged.
func (o *Options) takeRows(p *lab.Prompt, mixed vision.Mixed) error {
	placed, err := lab.Place(o.Graph, cmp.Or(o.Names, o.Dump.Names), p)
	if err != nil {
		return err
	}
	for _, x := range placed.Taps {
		if x.Node != o.Graph.Nodes[0] || x.Node.Op != graph.Embed {
			continue
		}
		tap, v := lab.Tap{Placed: x}, make([]float64, x.Node.Shape.Size())
		first, n := tap.Rows()
		for i := first; i < min(first+n, len(mixed.Embeddings)); i++ {
			if row := slices.Clone(mixed.Embeddings[i]); len(row) >= len(v) {
				tap.Read(v, i)
				for k, y := range v {
					row[k] = float32(y)
				}
				mixed.Embeddings[i] = row
			}
		}
	}
	return nil
}
