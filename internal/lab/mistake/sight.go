package mistake

import (
	"math"

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
