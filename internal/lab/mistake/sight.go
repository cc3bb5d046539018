package mistake

import (
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
)

// otherTables lists other interpolations of a table of places.
func otherTables(_ *Proposer, n *graph.Node) []*Hypothesis {
	a := n.Attr.(graph.PlaceAttr)
	form := func(word, computed string, shares reference.Shares) *Hypothesis {
		return edit(n, computed, detail{"places": word}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				return reference.Interpolate(e, s, rows, shares)
			}
		})
	}
	all := []*Hypothesis{form("swapped", "takes rows for columns in the table of places",
		func(all []graph.Share, row, col int, g graph.Grid) []graph.Share {
			return a.Shares(all, col, row, graph.Grid{Height: g.Width, Width: g.Height})
		})}
	if a.Rule == graph.Lookup || a.Rule == graph.Axes {
		return all
	}
	along := func(at, n, side int) float64 {
		return min(max((float64(at)+0.5)*float64(side)/float64(n)-0.5, 0), float64(side-1))
	}
	other := a
	other.Rule = graph.Corners + graph.Area - a.Rule
	return append(all, form("other", "interpolates places by the other rule, "+other.Rule.String(), other.Shares),
		form("nearest", "takes the nearest place", func(all []graph.Share, row, col int, g graph.Grid) []graph.Share {
			y, x := int(math.Round(along(row, g.Height, a.Height))), int(math.Round(along(col, g.Width, a.Width)))
			return append(all, graph.Share{Row: y*a.Width + x, Weight: 1})
		}),
		form("centers", "interpolates places between centers, without antialias",
			func(all []graph.Share, row, col int, g graph.Grid) []graph.Share {
				y, x := along(row, g.Height, a.Height), along(col, g.Width, a.Width)
				for i := range 2 {
					for j := range 2 {
						r, c := int(y)+i, int(x)+j
						v := (1 - math.Abs(y-float64(r))) * (1 - math.Abs(x-float64(c)))
						if v > 0 {
							all = append(all, graph.Share{Row: r*a.Width + c, Weight: v})
						}
					}
				}
				return all
			}),
		form("table", "takes the table's first places, without interpolation",
			func(all []graph.Share, row, col int, g graph.Grid) []graph.Share {
				return append(all, graph.Share{Row: min(row*g.Width+col, a.Rows()-1), Weight: 1})
			}))
}

// otherFolds lists other orders of the patches that become a row.
func otherFolds(_ *Proposer, n *graph.Node) (all []*Hypothesis) {
	a := n.Attr.(graph.PoolAttr)
	side := int(math.Round(math.Sqrt(float64(a.Count))))
	if a.Count < 2 || side*side != a.Count || a.Pooling != graph.Joined && a.Pooling != graph.Woven {
		return nil
	}
	for _, o := range []struct {
		word, computed string
		from           func(i int) int
	}{
		{"columns", "joins the patches of a block by columns", func(i int) int { return i%side*side + i/side }},
		{"reverse", "joins the patches of a block from the last to the first",
			func(i int) int { return a.Count - 1 - i }},
	} {
		all = append(all, edit(n, o.computed, detail{"order": o.word}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				x, err := s.Plain(e, rows)
				if err != nil {
					return nil, err
				}
				y, d := make([]float64, len(x)), n.In[0].Shape.Size()
				size := d * a.Count
				for i := range x {
					row, at := i/size*size, i%size
					from := o.from(at/d)*d + at%d
					if s.Pool.Pooling == graph.Woven { // [numbers, patches]
						from = at/a.Count*a.Count + o.from(at%a.Count)
					}
					y[i] = x[row+from]
				}
				return y, nil
			}
		}))
	}
	return all
}

// otherFeatures lists other features of the tower, and none.
func otherFeatures(p *Proposer, n *graph.Node) []*Hypothesis {
	index, count := n.Attr.(graph.DeepstackAttr).Index, 0
	for _, x := range p.g.Nodes {
		if x.Op == graph.Deepstack {
			count++
		}
	}
	from := func(word, computed string, at int) *Hypothesis {
		return edit(n, computed, detail{"features": word}, func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				d := n.Shape.Size()
				y := make([]float64, len(rows)*d)
				for i, r := range rows {
					if row := e.Row(r); at >= 0 && len(row) >= (at+1)*d {
						for j := range d {
							y[i*d+j] = float64(row[at*d+j])
						}
					}
				}
				return y, nil
			}
		})
	}
	all := []*Hypothesis{from("none", "adds no features of the tower", -1)}
	if count > 1 {
		all = append(all, from("another layer's", "adds the features of another layer", 1+(index+1)%count))
	}
	return append(all, from("rows", "adds the rows themselves", 0))
}

// staleRows lists the rows of the picture before in place of a picture's own.
func staleRows(p *Proposer, n *graph.Node) []*Hypothesis {
	if len(p.g.Nodes) == 0 || n != p.g.Nodes[0] {
		return nil
	}
	return []*Hypothesis{edit(n, "has the rows of the picture before", detail{"rows": "the picture before"},
		func(s *reference.Spec) {
			s.Func = func(e *reference.Eval, s *reference.Spec, rows []int) ([]float64, error) {
				y, err := s.Plain(e, rows)
				d := n.Shape.Size()
				for i, r := range rows {
					g := e.Group(r)
					before := -1
					for at := int(g.First) - 1; at >= 0 && g.End > 0 && before < 0; at-- {
						if o := e.Group(at); o.End > 0 && o.End-o.First == g.End-g.First {
							before = int(o.First)
						}
					}
					if before < 0 || err != nil {
						continue
					}
					if row := e.Row(before + r - int(g.First)); row != nil {
						for j := range d {
							y[i*d+j] = float64(row[j])
						}
					}
				}
				return y, err
			}
		})}
}

// otherScalesOfRows lists factors of pictures' rows, which have none beside tokens' embeddings.
func otherScalesOfRows(p *Proposer, n *graph.Node) []*Hypothesis {
	if n != p.g.Nodes[0] {
		return nil
	}
	scale, root := float64(n.Attr.(graph.EmbedAttr).Scale), math.Sqrt(float64(n.Shape.Size()))
	return []*Hypothesis{fitting(n, Fit{Right: 1, Least: 1e-4, Most: 1e4, Guesses: []float64{root, 1 / root, scale,
		1 / scale}, Make: func(v float64) *Hypothesis {
		return edit(n, fmt.Sprintf("multiplies the rows of pictures by %.6g", v), detail{"factor": v, "right": 1.0},
			after(func(e *reference.Eval, _ *reference.Spec, at int, row []float64) error {
				for j := range row {
					if e.Row(at) != nil {
						row[j] *= v
					}
				}
				return nil
			}))
	}})}
}

// otherScaleOfRows returns the factor of embeddings, applied to rows of pictures, or its inverse.
func otherScaleOfRows(_ *site, _ *graph.Node, f *Fit) float64 { return f.Guesses[0] }

// normsBesideFolds lists norms on the other side of the joining or pooling of patches.
func normsBesideFolds(p *Proposer, n *graph.Node) (all []*Hypothesis) {
	d := n.Shape.Last()
	// form makes a row of n of the block of rows of x that has the row, normed over so many numbers.
	form := func(computed string, x *graph.Node, count, over int, row func(y []float64, at int) []float64) {
		all = append(all, edit(n, computed, detail{"over": float64(over)},
			computes(func(e *reference.Eval, s *reference.Spec, rows []int) (made []float64, err error) {
				for _, r := range rows {
					block := make([]int, count)
					for i := range block {
						block[i] = min(r-r%count+i, e.Len()-1)
					}
					y, err := e.Value(x, block)
					if err == nil {
						y, err = normOver(s, y, over)
					}
					if err != nil {
						return nil, err
					}
					made = append(made, row(y, r%count)...)
				}
				return made, nil
			})))
	}
	for _, x := range p.Readers(n) {
		if a, ok := x.Attr.(graph.PoolAttr); ok && a.Count > 1 && a.Pooling >= graph.Joined {
			form("norms the patches of a block together, as if they were joined before", n.In[0], a.Count, a.Count*d,
				func(y []float64, at int) []float64 { return y[at*d : (at+1)*d] })
		}
	}
	switch a, _ := n.In[0].Attr.(graph.PoolAttr); {
	case a.Count < 2:
	case a.Pooling == graph.Joined:
		form("norms each patch of a joined row, as if they were joined behind", n.In[0], 1, d/a.Count,
			func(y []float64, _ int) []float64 { return y })
	case a.Pooling == graph.Mean:
		form("norms each patch before they are pooled", n.In[0].In[0], a.Count, d,
			func(y []float64, _ int) []float64 {
				mean := make([]float64, d)
				for i, v := range y {
					mean[i%d] += v / float64(a.Count)
				}
				return mean
			})
	}
	return all
}

// normOver norms runs of so many numbers by the norm of s. The weights repeat.
func normOver(s *reference.Spec, x []float64, over int) ([]float64, error) {
	var w [2][]float64
	for i := range s.W {
		var err error
		if w[i], err = reference.Vector(s.W[i]); err != nil {
			return nil, err
		}
	}
	y := slices.Clone(x)
	for r := 0; r < len(y); r += over {
		run, mean := y[r:r+over], 0.0
		if s.Node.Op == graph.LayerNorm && !s.KeepMean {
			mean = meanOf(run, func(v float64) float64 { return v })
		}
		q := 1 / math.Sqrt(meanOf(run, func(v float64) float64 { return square(v - mean) })+s.Eps)
		for j := range run {
			if run[j] = (run[j] - mean) * q; w[0] != nil {
				run[j] *= s.Offset + w[0][(r+j)%len(w[0])]
			}
			if w[1] != nil {
				run[j] += w[1][(r+j)%len(w[1])]
			}
		}
	}
	return y, nil
}
