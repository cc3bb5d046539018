package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // page.html and its parts
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/template"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	// uPlot 1.6.32 by Leon Sorokin draws the charts that can be enlarged; see uplot.LICENSE.
	// It is dist/uPlot.iife.min.js and dist/uPlot.min.css of the npm package, as they are.

	//go:embed uplot.js
	uplotJS string
	//go:embed uplot.css
	uplotCSS string
)

var pageTemplate = template.Must(map[string]string{"page": pageHTML}, template.Options{HTML: true, Funcs: map[string]any{
	"label":    func(l line) string { return l.label },
	"text":     func(l line) string { return unbroken(l.text) },
	"variable": ink.Variable,
	"count":    count,
	"json": func(v any) (template.HTML, error) {
		b, err := json.Marshal(v) // < and > are escaped
		return template.HTML(b), err
	},
}})

// script is the one script that a page may run: its policy names the hash, so that
// nothing in a dump can bring another.
var (
	script     = uplotJS + pageJS
	scriptHash = func() string {
		sum := sha256.Sum256([]byte(script))
		return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
	}()
)

// What a page shows of long lists, and of the JSON in bytes.
const (
	maxFindings = 40
	maxPrompts  = 6
	maxTokens   = 10
	maxRows     = 100
	maxJSON     = 1 << 20
)

// page is what the template is given.
type page struct {
	Style, Script         template.HTML
	ScriptHash            string
	Verdict, Headline     string
	Passed                bool
	Model, Dump           string
	Facts                 []line
	Story, Closed         []string
	Findings              []findingView
	MoreFindings          int
	Where                 *figure
	Curves, Positions     []figure
	Logits                []logitsRow
	MoreLogits            int
	Closure               []figure
	Prompts               []promptView
	Equations             [][]string
	MoreEquations         int
	Floors                [][2]string
	Inferred, Seen, Blind []string
	JSON, JSONNote        string
	Hashes                string
}

type findingView struct {
	Number int
	Cause  string
	Story  string // where the cause was met before
	Facts  []line
}

type logitsRow struct {
	Prompt                             int
	Before, After, Top1, Top10, Cosine string
	Text                               string
}

type promptView struct {
	Prompt  int
	Text    string
	Scatter *figure
	Tokens  []tokenRow
	Open    bool
}

type tokenRow struct {
	Rank              int
	Engine, Reference tokenCell
	Same              bool
}

type tokenCell struct {
	ID          int
	Text, Share string
	Any         bool
}

// HTML writes a diagnosis as one page that loads nothing: charts that can be read
// point by point and enlarged, still ones where scripts do not run and in print. It
// follows the reader's choice of light or dark.
func HTML(w io.Writer, d *diagnose.Diagnosis) error {
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, "page", newPage(d)); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func newPage(d *diagnose.Diagnosis) *page {
	p := &page{
		Style: template.HTML(uplotCSS + pageCSS), Script: template.HTML(script), ScriptHash: scriptHash,
		Verdict: name(string(d.Verdict)), Headline: unbroken(headline(d)), Passed: passed(d.Verdict),
		Model: base(d.Model), Dump: base(d.Dump), Facts: summary(d), Story: prose(story(d)...), Closed: prose(closure(d)),
		MoreFindings: max(0, len(d.Findings)-maxFindings), MoreLogits: max(0, len(d.Logits)-maxRows),
		Inferred: sentences(d.Inferred), Seen: seen(d), Blind: sentences(d.Coverage.Blind), Floors: floorRows(d),
	}
	for i := range d.Findings[:min(len(d.Findings), maxFindings)] {
		f := &d.Findings[i]
		v := findingView{Number: i + 1, Cause: name(f.Cause), Facts: facts(d, f)}
		if known, ok := mistake.Find(f.Cause); ok {
			v.Story = known.Story
		}
		p.Findings = append(p.Findings, v)
	}
	for _, l := range prompts(d, maxRows) {
		p.Logits = append(p.Logits, logitsRow{l.Prompt, number(l.KLBefore), number(l.KLAfter), percent(l.Top1), percent(l.Top10), cosine(l.Cosine), clip(l.Text, 60)})
	}
	p.Equations, p.MoreEquations = worstEquations(d)
	p.JSON, p.JSONNote = rawJSON(d)
	p.Hashes = hashes(d)
	p.draw(d)
	return p
}

// unbroken keeps numbers and ranges whole where lines are broken: joiners stand at their hyphens.
func unbroken(s string) string {
	return strings.NewReplacer("e-", "e-\u2060", "–", "\u2060–\u2060").Replace(s)
}

func prose(list ...string) []string {
	for i, s := range list {
		list[i] = unbroken(s)
	}
	return list
}

// draw makes the page's charts.
func (p *page) draw(d *diagnose.Diagnosis) {
	p.Where, p.Curves, p.Positions, p.Closure = heatFigure(d), equationCurves(d), positionCurves(d), closureChart(d)
	for i, l := range prompts(d, maxPrompts) {
		v := promptView{Prompt: l.Prompt, Text: clip(l.Text, 200), Tokens: tokenRows(l), Open: i == 0, Scatter: scatterChart(l)}
		if v.Scatter != nil || len(v.Tokens) > 0 {
			p.Prompts = append(p.Prompts, v)
		}
	}
}

// summary is the figures at the top.
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

func cosine(v lab.Number) string {
	if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
		return number(v)
	}
	return fmt.Sprintf("%.5f", float64(v))
}

// tokenRows sets the likeliest tokens of both sides beside each other.
func tokenRows(l *diagnose.Logits) []tokenRow {
	cell := func(list []diagnose.Token, i int) tokenCell {
		if i >= len(list) {
			return tokenCell{}
		}
		return tokenCell{list[i].ID, clip(list[i].Text, 24), percent(list[i].Probability), true}
	}
	var rows []tokenRow
	for i := range min(max(len(l.Engine), len(l.Reference)), maxTokens) {
		e, r := cell(l.Engine, i), cell(l.Reference, i)
		rows = append(rows, tokenRow{i + 1, e, r, e.Any && r.Any && e.ID == r.ID})
	}
	return rows
}

// worstEquations lists the equations that are most floors off, and counts the rest.
func worstEquations(d *diagnose.Diagnosis) (rows [][]string, more int) {
	order := make([]*diagnose.Curve, len(d.Curves))
	for i := range order {
		order[i] = &d.Curves[i]
	}
	slices.SortStableFunc(order, func(a, b *diagnose.Curve) int {
		return worst(lab.Number(ratio(b.Residual, b.Floor)), lab.Number(ratio(a.Residual, a.Floor)))
	})
	const most = 40
	for _, c := range order[:min(len(order), most)] {
		holds := "yes"
		if c.Flagged {
			holds = "no"
		}
		rows = append(rows, []string{name(c.Tap), name(c.Op), number(c.Residual), number(c.Floor),
			number(ratio(c.Residual, c.Floor)), number(c.Free), number(c.FreeFloor), holds, names(c.Causes, 3)})
	}
	return rows, max(0, len(order)-most)
}

// floorRows lists the operations' floors.
func floorRows(d *diagnose.Diagnosis) (rows [][2]string) {
	for _, op := range slices.Sorted(maps.Keys(d.Floors.Ops)) {
		if len(rows) == maxRows {
			break
		}
		rows = append(rows, [2]string{name(op), number(d.Floors.Ops[op])})
	}
	return rows
}

// rawJSON is the diagnosis as JSON, and a note if that is not all of it.
func rawJSON(d *diagnose.Diagnosis) (text, note string) {
	b, err := json.MarshalIndent(d, "", " ")
	if err == nil && len(b) <= maxJSON {
		return string(b), ""
	}
	less := *d
	less.Curves, less.Logits = slices.Clone(d.Curves), slices.Clone(d.Logits)
	for i := range less.Curves {
		less.Curves[i].Rows = nil
	}
	for i := range less.Logits {
		less.Logits[i].ByPosition, less.Logits[i].Positions, less.Logits[i].Scatter = nil, nil, nil
	}
	b, err = json.MarshalIndent(less, "", " ")
	switch {
	case err != nil:
		return "", "It has no JSON: " + sentence(err.Error())
	case len(b) > maxJSON:
		return strings.ToValidUTF8(string(b[:maxJSON]), ""), "Cut; the JSON file has the rest."
	}
	return string(b), "Without the values by position and the scattered logits, which the JSON file has."
}
