package report

import (
	"crypto/sha256"
	_ "embed" // page.html and its parts
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	// uPlot 1.6.32 by Leon Sorokin draws the charts; see uplot.LICENSE. The two files are dist/uPlot.iife.min.js and
	// dist/uPlot.min.css of the npm package, as they are.

	//go:embed uplot.js
	uplotJS string
	//go:embed uplot.css
	uplotCSS string
)

// script is the only script a page may run: the page's policy names its hash, so that nothing in a dump can bring
// another.
var script = uplotJS + pageJS + `
const values = document.querySelector("script[type='application/json']").textContent;
const redraw = drawReport(JSON.parse(values), document.body);
for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", redraw);
`

// Drawing returns a script for other pages: drawReport(data, root) draws the field page of a diagnosis.json into a
// shadow root with the style drawReport.style.
func Drawing() []byte {
	style, _ := json.Marshal(uplotCSS + pageCSS) // a string
	return []byte(uplotJS + pageJS + "drawReport.style = " + string(style) + ";\n")
}

// The most a page shows of long lists.
const (
	maxFindings = 40
	maxEntries  = 4096 // equations, nodes, weights
	maxPrompts  = 6    // with tokens, scattered logits and positions
	maxLogits   = 100  // prompts in the table
	maxPoints   = 320  // of a line
	maxScatter  = 600
)

// page is the data that page.js draws.
type page struct {
	Verdict      string                `json:"verdict"`
	Headline     string                `json:"headline"`
	Passed       bool                  `json:"passed"`
	Model        string                `json:"model"`
	Dump         string                `json:"dump"`
	Hashes       string                `json:"hashes"`
	Facts        []line                `json:"facts"`
	Story        []string              `json:"story"`
	Findings     []finding             `json:"findings"`
	MoreFindings int                   `json:"more_findings"`
	Curves       []diagnose.Curve      `json:"curves"`
	MoreCurves   int                   `json:"more_curves"`
	Closure      string                `json:"closure"`
	Floor        lab.Number            `json:"floor"` // KL rounding makes
	Logits       []prompt              `json:"logits"`
	MoreLogits   int                   `json:"more_logits"`
	Floors       map[string]lab.Number `json:"floors"`
	Seen         []string              `json:"seen"`
	Inferred     []string              `json:"inferred"`
	Blind        []string              `json:"blind"`
}

// finding is a finding in words, and the residuals of its equation by position.
type finding struct {
	Cause     string       `json:"cause"`
	Name      string       `json:"name"`
	Met       string       `json:"met"` // where the cause was met before
	Facts     []line       `json:"facts"`
	Rows      []lab.Number `json:"rows,omitempty"`
	Positions []int        `json:"positions,omitempty"`
}

// prompt is a prompt's logits.
type prompt struct {
	diagnose.Logits
	Short string `json:"short"`
}

// HTML writes a diagnosis as one page that loads nothing. Its script draws the charts, which can be read point by
// point and enlarged; without scripts the page shows the text of Text. It follows the reader's choice of light or
// dark.
func HTML(w io.Writer, d *diagnose.Diagnosis) error {
	var text strings.Builder
	Text(&text, d, Terminal{Width: 100}) // to a strings.Builder, which takes everything
	p := newPage(d)
	return writePage(w, p.Verdict+": "+p.Model, text.String(), p)
}

// writePage writes a page for data, and text for readers without scripts.
func writePage(w io.Writer, title, text string, data any) error {
	b, err := json.Marshal(data) // < and > are escaped
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	sum := sha256.Sum256([]byte(script))
	_, err = strings.NewReplacer("{{title}}", html.EscapeString(title), "{{style}}", uplotCSS+pageCSS,
		"{{hash}}", "sha256-"+base64.StdEncoding.EncodeToString(sum[:]), "{{text}}", html.EscapeString(text),
		"{{data}}", string(b), "{{script}}", script).WriteString(w, pageHTML)
	return err
}

func newPage(d *diagnose.Diagnosis) *page {
	p := &page{Verdict: name(string(d.Verdict)), Headline: headline(d), Passed: Passed(d),
		Model: base(d.Model), Dump: base(d.Dump), Hashes: hashes(d), Facts: summary(d), Story: story(d),
		MoreFindings: max(0, len(d.Findings)-maxFindings), MoreCurves: max(0, len(d.Curves)-maxEntries),
		Closure: closure(d), Floor: d.Closure.Floor, MoreLogits: max(0, len(d.Logits)-maxLogits),
		Floors: map[string]lab.Number{}, Seen: seen(d), Inferred: sentences(d.Inferred),
		Blind: sentences(d.Coverage.Blind)}
	for i := range d.Findings[:min(len(d.Findings), maxFindings)] {
		f := &d.Findings[i]
		known, _ := mistake.Find(f.Cause)
		v := finding{Cause: name(f.Cause), Name: what(f), Met: known.Story, Facts: facts(d, f)}
		if c := curve(d, f); c != nil && i < maxPrompts {
			v.Rows, v.Positions = thinRows(c.Rows, c.Positions)
		}
		p.Findings = append(p.Findings, v)
	}
	for _, i := range thin(len(d.Curves), maxEntries, func(i int) float64 {
		r := ratio(d.Curves[i].Residual, d.Curves[i].Floor)
		if d.Curves[i].Flagged {
			r *= math.MaxFloat32 // before all that hold
		}
		return r
	}) {
		c := d.Curves[i]
		c.Tap, c.Node, c.Op, c.Rows, c.Positions = name(c.Tap), "", name(c.Op), nil, nil
		c.Causes = sentences(c.Causes[:min(len(c.Causes), 3)])
		p.Curves = append(p.Curves, c)
	}
	for i, l := range prompts(d, maxLogits) {
		p.Logits = append(p.Logits, newPrompt(*l, i < maxPrompts))
	}
	for op, floor := range d.Floors.Ops {
		if len(p.Floors) < maxLogits {
			p.Floors[name(op)] = floor
		}
	}
	return p
}

// newPrompt returns the logits of a prompt as a page shows them: with tokens and values where the page draws them.
func newPrompt(l diagnose.Logits, drawn bool) prompt {
	p := prompt{l, clip(l.Text, 60)}
	p.Text = clip(l.Text, 200)
	p.ByPosition, p.Positions = thinRows(l.ByPosition, l.Positions)
	p.Scatter = nil
	for i := range min(len(l.Scatter), maxScatter) {
		p.Scatter = append(p.Scatter, l.Scatter[i*len(l.Scatter)/min(len(l.Scatter), maxScatter)])
	}
	for _, list := range []*[]diagnose.Token{&p.Engine, &p.Reference} {
		*list = slices.Clone((*list)[:min(len(*list), 10)])
		for i := range *list {
			(*list)[i].Text = clip((*list)[i].Text, 24)
		}
	}
	if !drawn {
		p.ByPosition, p.Positions, p.Scatter, p.Engine, p.Reference = nil, nil, nil, nil, nil
	}
	return p
}

// thin picks at most most of n indices, in each stretch the one that is worst by a measure.
func thin(n, most int, measure func(int) float64) []int {
	var out []int
	for b := range min(n, most) {
		from, to := b*n/min(n, most), (b+1)*n/min(n, most)
		best := from
		for i := from + 1; i < to; i++ {
			if measure(i) > measure(best) {
				best = i
			}
		}
		out = append(out, best)
	}
	return out
}

// thinRows picks values of a line and their positions, which are 0, 1 ... where at has none.
func thinRows(rows []lab.Number, at []int) (values []lab.Number, positions []int) {
	for _, i := range thin(len(rows), maxPoints, func(i int) float64 { return ratio(rows[i], 1) }) {
		position := i
		if i < len(at) {
			position = at[i]
		}
		values, positions = append(values, rows[i]), append(positions, position)
	}
	return values, positions
}

// summary returns the figures at the top of a page.
func summary(d *diagnose.Diagnosis) []line {
	var all []line
	if len(d.Logits) > 0 || d.Closure.Prompts > 0 {
		all = append(all, line{"KL before", number(d.Closure.Before)})
		if len(d.Findings) > 0 {
			all = append(all, line{"KL after", number(d.Closure.After)})
		}
		all = append(all, line{"KL of rounding", number(d.Closure.Floor)})
	}
	if n := len(d.Curves); n > 0 {
		all = append(all, line{"equations that hold", fmt.Sprintf("%d of %d", n-flagged(d), n)})
	}
	all = append(all, line{"graph covered", percent(d.Coverage.Nodes)}, line{"layers", fmt.Sprint(d.Layers)})
	if d.Seconds > 0 {
		all = append(all, line{"took", fmt.Sprintf("%.3g s", d.Seconds)})
	}
	return all
}

// StatsHTML writes a model's numbers as a page that loads nothing: for the nodes, and for the weights, a chart each
// of RMS, largest value and mean in the graph's order.
func StatsHTML(w io.Writer, r *lab.RunStats) error {
	type point struct {
		Name  string `json:"tap"`
		Kind  string `json:"op"`
		Layer int    `json:"layer"`
		lab.Stats
	}
	// Of too many points the ones with a value that is not finite come first, then the largest.
	points := func(n int, at func(i int) point) (list []point) {
		for _, i := range thin(n, maxEntries, func(i int) float64 {
			if x := at(i); x.NaN+x.Inf == 0 {
				return float64(x.MaxAbs)
			}
			return math.MaxFloat64
		}) {
			list = append(list, at(i))
		}
		return list
	}
	nodes := points(len(r.Nodes), func(i int) point {
		n := &r.Nodes[i]
		return point{name(n.Name), name(n.Op), n.Layer, n.Stats}
	})
	weights := points(len(r.Weights), func(i int) point {
		x := &r.Weights[i]
		return point{name(x.Name), name(x.Type), x.Layer, x.Stats}
	})
	of := "weights"
	if r.Prompts > 0 {
		of = count(r.Prompts, "prompt") + ", " + count(r.IDs, "token")
	}
	return writePage(w, "Numbers of "+name(r.Model), "The charts need scripts; --csv prints the numbers.",
		map[string]any{"stats": true, "model": name(r.Model), "of": of, "nodes": nodes, "weights": weights})
}
