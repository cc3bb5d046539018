package mistake

import (
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// forms lists the forms of a mistake at a node, the likelier first.
type forms func(p *Proposer, n *graph.Node) []*Hypothesis

// wordings are the values of a mistake, and the details of their forms, the likelier first.
type wordings = map[string][]detail

// entry is a mistake: its place, its forms there, and the way to build it into an engine. The catalogue has its words.
type entry struct {
	id        string
	ops       []graph.Op                   // possible operations; nil for any
	forms     forms                        // forms for a search; nil for a mistake without a name
	more      forms                        // forms for building alone
	read      func(o *Product) *Hypothesis // form by the values of a product; nil for none
	byErrors  bool                         // whether the errors of attention's rows tell the forms
	elsewhere bool                         // whether the forms at a node may be mistakes of other nodes

	at       func(s *site, n *graph.Node) bool            // nodes for building; nil for all
	words    wordings                                     // values in words
	number   string                                       // detail of a number as a value, without a fit
	usual    func(s *site, n *graph.Node, f *Fit) float64 // number for no value
	values   []string                                     // further values worth a test
	faint    string                                       // node where the mistake is lost in the rounding of float32
	tokens   int                                          // tokens of a prompt long enough to show the mistake
	outer    bool                                         // whether the place is outside the layers
	one      bool                                         // whether the usual place is the first of several, not all
	apart    bool                                         // whether nodes of other operations are other answers
	whole    bool                                         // whether only all layers and places at once are worth a test
	pictured []string                                     // values shown by pictures alone, "" among the values
	windows  bool                                         // whether a prompt longer than the window shows the mistake
}

// fits reports whether the mistake is possible in n's operation.
func (e *entry) fits(n *graph.Node) bool { return e.ops == nil || slices.Contains(e.ops, n.Op) }

// list lists f's forms at n, with the mistake's name.
func (e *entry) list(f forms, p *Proposer, n *graph.Node) []*Hypothesis {
	if f == nil || !e.fits(n) {
		return nil
	}
	all := f(p, n)
	for _, h := range all {
		h.Cause = e.id
		if f := h.Fit; f != nil {
			form := f.Make
			f.Make = func(v float64) *Hypothesis {
				x := form(v)
				if x != nil {
					x.Cause = e.id
				}
				return x
			}
		}
	}
	return all
}

// strange reports whether a mistake is on no list: no search names it.
func (e *entry) strange() bool { return strings.HasPrefix(e.id, "x_") }

// lastOf returns the last of some forms: the norm nearest to the next operation.
func lastOf(f forms) forms {
	return func(p *Proposer, n *graph.Node) []*Hypothesis {
		all := f(p, n)
		if len(all) == 0 {
			return nil
		}
		last := all[len(all)-1]
		last.Detail = detail{"built": "last"}
		return []*Hypothesis{last}
	}
}

// unless returns forms without nodes of a kind.
func unless(kind func(p *Proposer, n *graph.Node) bool, f forms) forms {
	return func(p *Proposer, n *graph.Node) []*Hypothesis {
		if kind(p, n) {
			return nil
		}
		return f(p, n)
	}
}
