// Package experiment changes a model's values, and measures the effects: interventions at nodes (Edit), grids
// of interventions over stimuli (Spec), and states for training probes (Extract).
//
// place.go finds sets, positions, nodes and paths. edit.go runs edits, effect.go measures an edit, values.go reads and
// writes rows. grid.go reads an experiment and computes its cells, bundle.go keeps and shows them. score.go scores
// continuations.
package experiment

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
)

// Set is a set of whole numbers, as "0,3-5". The empty set stands for all.
type Set []span

type span struct{ from, to int } // both included

// maxIndex bounds the numbers of a Set: beyond any layer, head, channel and position.
const maxIndex = 1 << 24

// ParseSet reads numbers and ranges, separated by commas.
func ParseSet(s string) (set Set, err error) {
	if s == "" {
		return nil, nil
	}
	for _, part := range strings.Split(s, ",") {
		a, b, ok := strings.Cut(strings.TrimSpace(part), "-")
		if !ok {
			b = a
		}
		from, err1 := strconv.Atoi(a)
		to, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil || from < 0 || to < from || to > maxIndex {
			return nil, fmt.Errorf("%q: want numbers from 0 and ranges, as 0,3-5", part)
		}
		set = append(set, span{from, to})
	}
	return set, nil
}

// has reports whether i is in the set; the empty set has all.
func (s Set) has(i int) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(x span) bool { return x.from <= i && i <= x.to })
}

// max returns the largest number, -1 in an empty set.
func (s Set) max() int {
	most := -1
	for _, x := range s {
		most = max(most, x.to)
	}
	return most
}

// Positions selects positions of a request: of its prompt, generated positions, or both.
type Positions struct {
	Said  string
	parts []where
}

type where struct {
	kind     string // all, prompt, generated, pattern, or "" for a range
	from, to int    // of a range; negative ones count from the prompt's end, -1 being its last position
	pattern  *regexp.Regexp
}

// ParsePositions reads a list, separated by commas, of all, prompt, generated, last, root (the first),
// numbers, ranges as 3-5, negative numbers from the prompt's end, and text:PATTERN, extending to the end of
// s: the tokens with a part matched by the pattern, a regular expression.
func ParsePositions(s string) (p Positions, err error) {
	p.Said = s
	for rest := s; rest != ""; {
		if expr, ok := strings.CutPrefix(rest, "text:"); ok {
			re, err := regexp.Compile(expr)
			if err != nil || expr == "" {
				return p, fmt.Errorf("positions %q: want text: and a regular expression", s)
			}
			p.parts = append(p.parts, where{kind: "pattern", pattern: re})
			break
		}
		var part string
		part, rest, _ = strings.Cut(rest, ",")
		w, err := parseWhere(strings.TrimSpace(part))
		if err != nil {
			return p, fmt.Errorf("positions %q: %w", s, err)
		}
		p.parts = append(p.parts, w)
	}
	return p, nil
}

func parseWhere(s string) (where, error) {
	switch s {
	case "all", "prompt", "generated":
		return where{kind: s}, nil
	case "last":
		return where{from: -1, to: -1}, nil
	case "root":
		return where{}, nil
	}
	if n, err := strconv.Atoi(s); err == nil && n >= -maxIndex && n <= maxIndex {
		return where{from: n, to: n}, nil
	}
	set, err := ParseSet(s)
	if err != nil || len(set) != 1 {
		return where{}, fmt.Errorf("%q: want all, prompt, generated, last, root, numbers, ranges as 3-5, or "+
			"text:PATTERN", s)
	}
	return where{from: set[0].from, to: set[0].to}, nil
}

// Prompt is the ids of a text, and the text of each.
type Prompt struct {
	Text   string   `json:"text"`
	IDs    []int    `json:"ids"`
	Tokens []string `json:"tokens"`
}

// matched returns the positions of the tokens with a part matched by a pattern.
func (p *Prompt) matched(re *regexp.Regexp) (at []int) {
	var ends []int
	text := ""
	for _, t := range p.Tokens {
		text += t
		ends = append(ends, len(text))
	}
	for _, m := range re.FindAllStringIndex(text, -1) {
		from := 0
		for i, to := range ends {
			if m[0] < to && m[1] > from && !slices.Contains(at, i) {
				at = append(at, i)
			}
			from = to
		}
	}
	return at
}

// Of returns the positions of a prompt, in order, and whether generated ones are also meant. The zero Positions are
// all.
func (p Positions) Of(prompt *Prompt) (at []int, generated bool, err error) {
	n := len(prompt.IDs)
	in := make([]bool, n)
	if len(p.parts) == 0 {
		p.parts = []where{{kind: "all"}}
	}
	for _, w := range p.parts {
		switch w.kind {
		case "generated":
			generated = true
		case "all", "prompt":
			generated = generated || w.kind == "all"
			for i := range in {
				in[i] = true
			}
		case "pattern":
			found := prompt.matched(w.pattern)
			if len(found) == 0 {
				return nil, false, fmt.Errorf("positions %q: %q has no token that matches", p.Said, prompt.Text)
			}
			for _, i := range found {
				in[i] = true
			}
		default:
			from, to := w.from, w.to
			if from < 0 {
				from, to = from+n, to+n
			}
			if from < 0 || to >= n {
				return nil, false, fmt.Errorf("positions %q: the prompt has %d tokens, 0 to %d", p.Said, n, n-1)
			}
			for i := from; i <= to; i++ {
				in[i] = true
			}
		}
	}
	for i, yes := range in {
		if yes {
			at = append(at, i)
		}
	}
	return at, generated, nil
}

// Place is where in the graph an intervention is.
type Place struct {
	// a node's name, or PyTorch's, or its name without its layer; * stands for any characters
	Node                    string
	Layers, Heads, Channels Set
}

// site is a node, and the selected elements of its rows.
type site struct {
	node karat.Node
	runs []span // of elements, in order
	size int    // the number of elements
}

// match returns a pattern as a regular expression.
func match(pattern string) *regexp.Regexp {
	return regexp.MustCompile("^(blk\\.[0-9]+\\.)?" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
}

// find returns the nodes of p. For heads of a node without heads reading a node with heads, as the product
// behind attention does, find returns the node with heads.
func (p *Place) find(nodes []karat.Node) (sites []site, err error) {
	if p.Node == "" {
		return nil, fmt.Errorf("no node: \"karat inspect --graph\" lists them")
	}
	byName := map[string]karat.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	re, layers := match(p.Node), false
	for _, n := range nodes {
		if !re.MatchString(n.Name) && (n.HF == "" || !re.MatchString(n.HF) &&
			!re.MatchString(strings.TrimSuffix(n.HF, ".out"))) {
			continue
		}
		if layers = true; len(p.Layers) > 0 && (n.Layer < 0 || !p.Layers.has(n.Layer)) {
			continue
		}
		if len(p.Heads) > 0 && n.Heads == 0 && len(n.In) == 1 {
			n = byName[n.In[0]]
		}
		s, err := p.site(n)
		if err != nil {
			return nil, err
		}
		sites = append(sites, s)
	}
	switch {
	case !layers:
		return nil, fmt.Errorf("no node %q: \"karat inspect --graph\" lists them%s", p.Node, suggest(p.Node, nodes))
	case len(sites) == 0:
		return nil, fmt.Errorf("node %q: none in those layers", p.Node)
	}
	return sites, nil
}

// suggest names a few nodes whose names hold the last part of a pattern.
func suggest(pattern string, nodes []karat.Node) string {
	part := strings.Trim(pattern[strings.LastIndexByte(pattern, '.')+1:], "*")
	var found []string
	for _, n := range nodes {
		if len(part) > 1 && strings.Contains(n.Name, part[:min(len(part), 6)]) && len(found) < 3 {
			found = append(found, n.Name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; near it are " + strings.Join(found, ", ")
}

// site returns the part of n selected by p.
func (p *Place) site(n karat.Node) (site, error) {
	size := 1
	for _, d := range n.Shape {
		size *= d
	}
	s := site{node: n}
	width := size // of a head, or all
	if len(p.Heads) > 0 {
		if n.Heads == 0 {
			return s, fmt.Errorf("node %s has no heads, but %d elements: attention and the nodes before it have heads",
				n.Name, size)
		}
		if width = size / n.Heads; p.Heads.max() >= n.Heads {
			return s, fmt.Errorf("node %s: head %d, it has 0 to %d", n.Name, p.Heads.max(), n.Heads-1)
		}
	}
	if p.Channels.max() >= width {
		return s, fmt.Errorf("node %s: channel %d, it has 0 to %d", n.Name, p.Channels.max(), width-1)
	}
	for i := range size {
		if !p.Heads.has(i/width) || !p.Channels.has(i%width) {
			continue
		}
		if k := len(s.runs); k > 0 && s.runs[k-1].to == i-1 {
			s.runs[k-1].to = i
		} else {
			s.runs = append(s.runs, span{i, i})
		}
		s.size++
	}
	return s, nil
}

// stream is a graph's residual stream: the sum beginning with the embedding, and growing in each layer.
type stream struct {
	nodes  []karat.Node
	in     map[string]bool // nodes of the stream
	branch map[string]bool // the nodes added to the stream
}

// newStream finds the stream. A norm of the stream with additions behind is an error: behind the norm the sum
// is no longer a sum of the layers' outputs, so freezing outputs would not isolate a path.
func newStream(nodes []karat.Node) (*stream, error) {
	s, normed := &stream{nodes, map[string]bool{}, map[string]bool{}}, map[string]string{}
	for _, n := range nodes {
		switch n.Op {
		case "embed":
			s.in[n.Name] = len(s.in) == 0 // others are inputs of layers
		case "scale", "view", "mul": // by a number or a weight
			if len(n.In) == 1 {
				s.in[n.Name], normed[n.Name] = s.in[n.In[0]], normed[n.In[0]]
			}
		case "rms_norm", "layer_norm", "l2_norm":
			if s.in[n.In[0]] || normed[n.In[0]] != "" {
				normed[n.Name] = n.Name
			}
		case "add":
			s.in[n.Name] = slices.ContainsFunc(n.In, func(in string) bool { return s.in[in] })
		}
		for _, in := range n.In {
			switch {
			case n.Op == "add" && normed[in] != "" && len(n.In) > 1:
				return nil, fmt.Errorf("node %s is a norm on the residual stream, to which %s adds: this family "+
					"has no paths", normed[in], n.Name)
			case n.Op == "add" && s.in[n.Name] && !s.in[in]:
				s.branch[in] = true
			}
		}
	}
	if len(s.branch) == 0 {
		return nil, fmt.Errorf("the graph has no residual stream that layers add to")
	}
	return s, nil
}

// branches returns the branches from a node's value into the stream: for a node of attention, the branch of
// its layer. A node of the stream is an error, and so is a node reaching the stream only through other
// positions, as a key, or reaching none of the receivers.
func (s *stream) branches(name string, receivers []site) (map[string]bool, error) {
	if s.in[name] {
		return nil, fmt.Errorf(
			"node %s: it is the residual stream itself: take what is added to it, such as attention or the "+
				"feed-forward network",
			name)
	}
	reached, fed := map[string]bool{name: true}, map[string]bool{}
	for _, n := range s.nodes {
		for _, in := range n.In {
			switch {
			case !reached[in] || s.in[in]:
			case s.in[n.Name]:
				fed[in] = true
			default:
				reached[n.Name] = true
			}
		}
	}
	switch {
	case len(fed) == 0:
		return nil, fmt.Errorf(
			"node %s: nothing adds it to the residual stream at its own position: take attention, or what follows it",
			name)
	case !s.reaches(name, fed, receivers):
		return nil, fmt.Errorf(
			"node %s: no receiver reads it, neither from the residual stream nor before it gets there: take "+
				"receivers behind it",
			name)
	}
	return fed, nil
}

// reaches reports whether a node's change comes to a receiver, where all branches except fed are frozen.
func (s *stream) reaches(name string, fed map[string]bool, receivers []site) bool {
	changed := map[string]bool{name: true}
	for _, n := range s.nodes {
		if !slices.ContainsFunc(n.In, func(in string) bool { return changed[in] }) {
			continue
		}
		if receives(receivers, n) {
			return true
		}
		changed[n.Name] = !s.branch[n.Name] || fed[n.Name]
	}
	return false
}

// paths computes paths from a sender to receivers in the run of a corrupted prompt.
type paths struct {
	model     *karat.Model
	prompt    *Prompt
	stream    *stream
	receivers []site
	branches  rowsAt // of the run without edits
}

// newPaths keeps the corrupted run's values to freeze.
func newPaths(ctx context.Context, m *karat.Model, p *Prompt, receivers []site) (*paths, error) {
	stream, err := newStream(m.Nodes())
	if err != nil {
		return nil, err
	}
	branches, err := takeRows(ctx, m, p, func(n karat.Node) bool { return stream.branch[n.Name] })
	return &paths{m, p, stream, receivers, branches}, err
}

// receives reports whether a node is a receiver.
func receives(receivers []site, n karat.Node) bool {
	return slices.ContainsFunc(receivers, func(s site) bool { return s.node.Name == n.Name })
}

// run computes the outcome of e, the sender, on the receivers alone. A first run has the edit, while all
// outputs of attention and feed-forward networks into the stream are as without the edit, except the sender's
// branch. The values of the receivers are written into a second run, with nothing frozen.
func (x *paths) run(ctx context.Context, e Edit) (*Outcome, error) {
	sender, err := prepare(ctx, x.model, x.prompt, []Edit{e})
	if err != nil {
		return nil, err
	}
	free := map[string]bool{}
	for _, a := range sender {
		fed, err := x.stream.branches(a.node.Name, x.receivers)
		if err != nil {
			return nil, err
		}
		for name := range fed {
			free[name] = true
		}
	}
	edit, received := hooks(sender, len(x.prompt.IDs)), rowsAt{}
	_, err = run(ctx, x.model, x.prompt, &karat.Hooks{
		Nodes: func(n karat.Node) bool { return edit.Nodes(n) || x.stream.branch[n.Name] || receives(x.receivers, n) },
		See: func(n karat.Node, at []int, v []float32) {
			if edit.Nodes(n) {
				edit.See(n, at, v)
			}
			if receives(x.receivers, n) {
				received.keep(n, at, v)
			}
			if x.stream.branch[n.Name] && !free[n.Name] {
				x.branches.write(n, at, v)
			}
		},
	}, 0)
	if err != nil {
		return nil, err
	}
	var all []applied
	for _, s := range x.receivers {
		a := applied{site: s, kind: Replace, at: map[int]int{}}
		for pos, row := range received[s.node.Name] {
			if row, err = s.part(row); err != nil {
				return nil, err
			}
			a.at[pos], a.rows = len(a.rows), append(a.rows, row)
		}
		all = append(all, a)
	}
	return run(ctx, x.model, x.prompt, hooks(all, len(x.prompt.IDs)), 0)
}
