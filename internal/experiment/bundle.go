package experiment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/mmap"
)

// Manifest is a bundle's manifest.json.
type Manifest struct {
	Program   string            `json:"program"`
	Name      string            `json:"name"`
	Model     string            `json:"model"`             // as named
	Print     string            `json:"model_fingerprint"` // of weights, graph, vocabulary, template and numerics
	Precision string            `json:"precision"`
	Spec      string            `json:"spec_sha256"`
	Kind      string            `json:"kind"`
	Receivers []string          `json:"receivers,omitempty"` // of paths
	Cells     int               `json:"cells"`
	Pairs     []Pair            `json:"pairs"`
	Files     map[string]string `json:"files"` // to their SHA-256
}

// The files of a bundle.
const (
	specFile     = "spec.toml"
	cellsFile    = "cells.jsonl"
	manifestFile = "manifest.json"
	pageFile     = "index.html"
	maxBundle    = 1 << 30 // bytes of each
)

// contents lists the files listed in a manifest.
var contents = []string{specFile, cellsFile, pageFile}

// Bundle is an experiment's folder.
type Bundle struct {
	Dir      string
	Manifest Manifest
	Cells    []Cell
}

// RunInto computes the cells of r missing in dir, and writes the bundle. Cells are appended once computed, so
// an interrupted run goes on. RunInto calls tell after each cell.
func RunInto(ctx context.Context, dir, specText, model string, r *Runner, tell func(done, total int)) (*Bundle, error) {
	made, err := checkFolder(dir, specText)
	if err != nil {
		return nil, err
	}
	print, err := r.Model.Fingerprint(ctx)
	if err == nil {
		err = r.prepare(ctx)
	}
	if err == nil && !made { // only now: a spec unable to run leaves no folder
		if err = os.MkdirAll(dir, 0o777); err == nil {
			err = os.WriteFile(filepath.Join(dir, specFile), []byte(specText), 0o666)
		}
	}
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, cellsFile)
	cells, err := resume(path, r, print)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := json.NewEncoder(f) // a single write for each line
	for i := len(cells); i < r.Len(); i++ {
		c, err := r.cell(ctx, i)
		if err == nil {
			err = lines.Encode(c)
		}
		if err != nil {
			return nil, err
		}
		cells = append(cells, *c)
		tell(len(cells), r.Len())
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	s := r.Spec
	b := &Bundle{Dir: dir, Cells: cells, Manifest: Manifest{Program: "karat " + karat.Version(), Name: s.Name,
		Model: model, Print: print, Precision: s.Precision, Spec: s.Hash(), Kind: s.Kind, Receivers: s.Receivers,
		Cells: len(cells), Pairs: r.Pairs, Files: map[string]string{}}}
	return b, b.write()
}

// checkFolder reports whether dir holds an unfinished bundle of the same spec. Another experiment's folder, a folder
// with other files, and a finished experiment with changes are errors: a new manifest would vouch for the changes.
func checkFolder(dir, specText string) (made bool, err error) {
	path := filepath.Join(dir, specFile)
	had, err := readBounded(path)
	switch {
	case err == nil && string(had) != specText:
		return false, fmt.Errorf("%s: another experiment's: take another folder", path)
	case err == nil:
		if _, err := os.Lstat(filepath.Join(dir, manifestFile)); err != nil {
			return true, nil
		}
		_, _, err = Open(dir)
		return true, err
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	all, err := os.ReadDir(dir)
	if !errors.Is(err, fs.ErrNotExist) && (err != nil || len(all) > 0) {
		return false, fmt.Errorf("%s: not an experiment's folder, and not empty", dir)
	}
	return false, nil
}

// header is the first line of the cells: the conditions of the run.
type header struct {
	Print string `json:"model_fingerprint"`
}

// resume reads the cells computed before, and drops a last line cut off.
func resume(path string, r *Runner, print string) ([]Cell, error) {
	b, err := readBounded(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	if len(b) == 0 {
		first, err := json.Marshal(header{print})
		if err != nil {
			return nil, err
		}
		return nil, os.WriteFile(path, append(first, '\n'), 0o666)
	}
	h, cells, err := parseCells(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case h.Print != print:
		return nil, fmt.Errorf("%s: computed with another model or precision (%s, this is %s): take another folder",
			path, h.Print, print)
	case len(cells) > r.Len():
		return nil, fmt.Errorf("%s: %d cells, the experiment has %d", path, len(cells), r.Len())
	}
	for i := range cells {
		if cells[i].key() != r.Key(i) {
			return nil, fmt.Errorf("%s: cell %d is %s, want %s", path, i, cells[i].key(), r.Key(i))
		}
		for _, m := range metrics {
			if slices.Contains(r.Spec.Metrics, m.name) && *m.of(&cells[i].Values) == nil {
				return nil, fmt.Errorf("%s: cell %d has no %s", path, i, m.name)
			}
		}
	}
	return cells, os.Truncate(path, int64(len(b)))
}

func parseCells(b []byte) (h header, cells []Cell, err error) {
	first, rest, _ := strings.Cut(strings.TrimSuffix(string(b), "\n"), "\n")
	if err := json.Unmarshal([]byte(first), &h); err != nil {
		return h, nil, fmt.Errorf("line 1: %w", err)
	}
	for line := range strings.Lines(rest) {
		var c Cell
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return h, nil, fmt.Errorf("line %d: %w", len(cells)+2, err)
		}
		cells = append(cells, c)
	}
	return h, cells, nil
}

func readBounded(path string) ([]byte, error) { return mmap.ReadFile(path, maxBundle) }

// write writes the page and the manifest.
func (b *Bundle) write() error {
	if err := b.writeFile(pageFile, b.page()); err != nil {
		return err
	}
	for _, name := range contents {
		x, err := readBounded(filepath.Join(b.Dir, name))
		if err != nil {
			return err
		}
		b.Manifest.Files[name] = hashOf(x)
	}
	m, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return err
	}
	return b.writeFile(manifestFile, append(m, '\n'))
}

func (b *Bundle) writeFile(name string, data []byte) error {
	return atomicfile.Write(filepath.Join(b.Dir, name), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func hashOf(x []byte) string { return fmt.Sprintf("%x", sha256.Sum256(x)) }

// Open reads a bundle, and checks its files' hashes.
func Open(dir string) (b *Bundle, spec string, err error) {
	x, err := readBounded(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%s: no %s: not an experiment's folder, or the experiment is not finished", dir,
			manifestFile)
	}
	b = &Bundle{Dir: dir}
	if err == nil {
		err = json.Unmarshal(x, &b.Manifest)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", filepath.Join(dir, manifestFile), err)
	}
	for _, name := range contents {
		path := filepath.Join(dir, name)
		x, err := readBounded(path)
		if err != nil {
			return nil, "", err
		}
		if sum, want := hashOf(x), b.Manifest.Files[name]; sum != want {
			return nil, "", fmt.Errorf("%s: changed after the experiment: its SHA-256 is %.12s…, the manifest says "+
				"%.12s…", path, sum, want)
		}
		switch name {
		case specFile:
			spec = string(x)
		case cellsFile:
			if _, b.Cells, err = parseCells(x); err != nil {
				return nil, "", fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return b, spec, nil
}

// Verify computes the bundle again, with a runner of its spec, and returns the first difference, as an error.
func (b *Bundle) Verify(ctx context.Context, r *Runner, tell func(done, total int)) error {
	print, err := r.Model.Fingerprint(ctx)
	if err != nil {
		return err
	}
	if print != b.Manifest.Print {
		return fmt.Errorf("another model, or other numerics: its fingerprint is %s, the bundle's %s", print,
			b.Manifest.Print)
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if r.Len() != len(b.Cells) || len(r.Pairs) != len(b.Manifest.Pairs) {
		return fmt.Errorf("%d cells of %d pairs, the bundle has %d of %d", r.Len(), len(r.Pairs), len(b.Cells),
			len(b.Manifest.Pairs))
	}
	for i, p := range r.Pairs {
		if err := p.compare(&b.Manifest.Pairs[i]); err != nil {
			return fmt.Errorf("pair %d, %w", i, err)
		}
	}
	for i := range r.Len() {
		c, err := r.cell(ctx, i)
		if err != nil {
			return err
		}
		if c.key() != b.Cells[i].key() {
			return fmt.Errorf("cell %d is %s, the bundle's %s", i, c.key(), b.Cells[i].key())
		}
		if err := c.compare(&b.Cells[i].Values); err != nil {
			return fmt.Errorf("cell %d, %s at %s: %w", i, c.Node, c.At, err)
		}
		tell(i+1, r.Len())
	}
	return nil
}

// compare wants the same prompts, and runs of the same values.
func (p *Pair) compare(o *Pair) error {
	if (p.Corrupted == nil) != (o.Corrupted == nil) || (p.Start == nil) != (o.Start == nil) || o.Clean == nil {
		return errors.New("prompts: one is missing on one side")
	}
	if !slices.Equal(p.Clean.IDs, o.Clean.IDs) ||
		p.Corrupted != nil && !slices.Equal(p.Corrupted.IDs, o.Corrupted.IDs) {
		return errors.New("prompts: other ids")
	}
	if err := p.Base.compare(&o.Base); err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	if p.Start == nil {
		return nil
	}
	if err := p.Start.compare(o.Start); err != nil {
		return fmt.Errorf("corrupted: %w", err)
	}
	return nil
}

// compare wants equal logits, bit for bit, and metrics equal up to the rounding of exp, different on other machines.
func (v *Values) compare(o *Values) error {
	if v.Logits != o.Logits {
		return fmt.Errorf("other logits: SHA-256 %.12s…, the bundle's %.12s…", v.Logits, o.Logits)
	}
	for _, m := range metrics {
		a, b := *m.of(v), *m.of(o)
		if (a == nil) != (b == nil) {
			return fmt.Errorf("%s is missing on one side", m.name)
		}
		if a != nil && *a != *b && !(math.Abs(float64(*a-*b)) <= 1e-9*(1+math.Abs(float64(*b)))) {
			return fmt.Errorf("%s is %v, the bundle's %v", m.name, *a, *b)
		}
	}
	return nil
}

// Comparison is how two bundles differ.
type Comparison struct {
	Cells   int     `json:"cells"` // of both
	OnlyA   int     `json:"only_first"`
	OnlyB   int     `json:"only_second"`
	Same    int     `json:"same_logits"` // bit for bit
	Metrics []Apart `json:"metrics"`
}

// Apart returns the largest difference of a metric, and its cell.
type Apart struct {
	Metric string     `json:"metric"`
	Mean   lab.Number `json:"mean_difference"`
	Most   lab.Number `json:"largest_difference"`
	Node   string     `json:"node"`
	At     string     `json:"at"`
}

// Compare compares cells of the same pair, node, head and position.
func Compare(a, b *Bundle) *Comparison {
	others := map[string]*Cell{}
	for i := range b.Cells {
		others[b.Cells[i].key()] = &b.Cells[i]
	}
	c := &Comparison{}
	for _, m := range metrics {
		c.Metrics = append(c.Metrics, Apart{Metric: m.name})
	}
	counts := make([]lab.Number, len(metrics))
	for i := range a.Cells {
		x := &a.Cells[i]
		y := others[x.key()]
		if y == nil {
			c.OnlyA++
			continue
		}
		c.Cells++
		if x.Logits == y.Logits {
			c.Same++
		}
		for k, m := range metrics {
			v, w, apart := *m.of(&x.Values), *m.of(&y.Values), &c.Metrics[k]
			if v == nil || w == nil {
				continue
			}
			d := lab.Number(math.Abs(float64(*w - *v)))
			counts[k]++
			if apart.Mean += d; d > apart.Most {
				apart.Most, apart.Node, apart.At = d, x.Node, x.At
			}
		}
	}
	c.OnlyB = len(b.Cells) - c.Cells
	for k := range c.Metrics {
		c.Metrics[k].Mean /= max(1, counts[k])
	}
	return c
}

// Strongest returns, for each pair, the cells with the largest changes of the answer, in order. In a trace
// these cells give most of the clean answer back.
func (b *Bundle) Strongest(n int) (lines []string) {
	for i := range b.Manifest.Pairs {
		p := &b.Manifest.Pairs[i]
		base := &p.Base
		if p.Start != nil {
			base = p.Start
		}
		m := metrics[max(0, slices.IndexFunc(metrics, func(m metric) bool { return *m.of(base) != nil }))]
		number := func(v *Values) float64 { return float64(**m.of(v)) }
		moved := func(c *Cell) float64 { return math.Abs(number(&c.Values) - number(base)) }
		var cells []*Cell
		for k := range b.Cells {
			if b.Cells[k].Pair == i {
				cells = append(cells, &b.Cells[k])
			}
		}
		slices.SortStableFunc(cells, func(x, y *Cell) int { return cmp.Compare(moved(y), moved(x)) })
		lines = append(lines, fmt.Sprintf("%s: %s %.4f", p.Clean.Text, m.title, number(&p.Base)))
		if p.Start != nil {
			lines = append(lines, fmt.Sprintf("%s: %s %.4f", p.Corrupted.Text, m.title, number(p.Start)))
		}
		for _, c := range cells[:min(n, len(cells))] {
			at := c.At
			if c.Token != "" {
				at += fmt.Sprintf(" (%q)", c.Token)
			}
			if c.Head != "" {
				at += ", head " + c.Head
			}
			lines = append(lines, fmt.Sprintf("  %s at %s: %.4f", c.Node, at, number(&c.Values)))
		}
	}
	return lines
}

// maxMaps bounds the maps of a page.
const maxMaps = 60

// pageHead is the beginning of a page, with its title twice.
//
//go:embed page.html
var pageHead string

// page returns the bundle as a page without scripts and without network: a heat map for each pair and metric.
func (b *Bundle) page() []byte {
	m, w := &b.Manifest, &bytes.Buffer{}
	title := html.EscapeString(m.Name)
	if title == "" {
		title = "Experiment"
	}
	fmt.Fprintf(w, pageHead, title, title)
	fmt.Fprintf(w, "<p>%s. Model %s, fingerprint <code>%s</code>, precision %s, %d cells. Spec "+
		"<code>%.16s…</code>.</p>\n",
		html.EscapeString(m.Program), html.EscapeString(m.Model), m.Print, m.Precision, m.Cells, m.Spec)
	maps := 0
	for i := range m.Pairs {
		p := &m.Pairs[i]
		fmt.Fprintf(w, "<h2>%s</h2>\n", html.EscapeString(p.Clean.Text))
		if p.Corrupted != nil {
			reach := ""
			if len(m.Receivers) > 0 {
				reach = ", and reach only " + strings.Join(m.Receivers, ", ") + " there, on the residual stream"
			}
			fmt.Fprintf(w, "<p>Values of this run are written into that of: %s%s</p>\n",
				html.EscapeString(p.Corrupted.Text), html.EscapeString(reach))
		}
		for _, g := range b.maps(i) {
			if maps++; maps <= maxMaps {
				g.draw(w)
			}
		}
	}
	if maps > maxMaps {
		fmt.Fprintf(w, "<p>%d maps are left out: cells.jsonl has all.</p>\n", maps-maxMaps)
	}
	return w.Bytes()
}

// heat is a map: rows are nodes, columns positions or heads.
type heat struct {
	title         string
	rows, columns []string
	cells         map[[2]int]float64
	from, to      float64 // values of the runs without interventions: from is pale, to dark
}

// maps returns the maps of a pair.
func (b *Bundle) maps(pair int) (all []heat) {
	p := &b.Manifest.Pairs[pair]
	heads, ats := false, []string{}
	for i := range b.Cells {
		if c := &b.Cells[i]; c.Pair == pair {
			heads = heads || c.Head != "" && c.Column > 0
			if !slices.Contains(ats, c.At) {
				ats = append(ats, c.At)
			}
		}
	}
	if !heads {
		ats = []string{""}
	}
	for _, m := range metrics {
		base := *m.of(&p.Base)
		for _, at := range ats {
			if base == nil {
				continue
			}
			h := heat{title: m.title, cells: map[[2]int]float64{}}
			if h.from, h.to = float64(*base), 0; p.Start != nil {
				h.from, h.to = float64(**m.of(p.Start)), float64(*base)
			}
			if at != "" {
				h.title += ", positions " + at
			}
			b.fill(&h, pair, at, m)
			all = append(all, h)
		}
	}
	return all
}

// fill sets the cells of a map: of a single position if at is not empty.
func (b *Bundle) fill(h *heat, pair int, at string, m metric) {
	for i := range b.Cells {
		c := &b.Cells[i]
		v := *m.of(&c.Values)
		if c.Pair != pair || at != "" && c.At != at || v == nil {
			continue
		}
		row := slices.Index(h.rows, c.Node)
		if row < 0 {
			row, h.rows = len(h.rows), append(h.rows, c.Node)
		}
		for len(h.columns) <= c.Column {
			h.columns = append(h.columns, "")
		}
		switch {
		case at != "":
			h.columns[c.Column] = "head " + c.Head
		case c.Token != "":
			h.columns[c.Column] = strings.TrimSpace(lab.Printable(c.Token))
		default:
			h.columns[c.Column] = c.At
		}
		h.cells[[2]int{row, c.Column}] = float64(*v)
		if b.Manifest.Pairs[pair].Start == nil && math.Abs(float64(*v)-h.from) > math.Abs(h.to-h.from) {
			h.to = float64(*v)
		}
	}
}

// draw writes the map.
func (h *heat) draw(w io.Writer) {
	const row, wide, top = 18, 46, 70
	left := 60
	for _, r := range h.rows {
		left = max(left, 7*len(r)+10)
	}
	fmt.Fprintf(w, "<h3>%s</h3>\n<p>%s</p>\n", html.EscapeString(h.title), h.legend())
	fmt.Fprintf(w, `<svg viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">`+"\n", left+wide*len(h.columns)+20,
		top+row*len(h.rows)+10, left+wide*len(h.columns)+20, html.EscapeString(h.title))
	for i, c := range h.columns {
		x := left + i*wide + wide/2
		fmt.Fprintf(w, `<text x="%d" y="%d" transform="rotate(-40 %d %d)">%s</text>`+"\n", x, top-8, x, top-8,
			html.EscapeString(c))
	}
	for r, name := range h.rows {
		fmt.Fprintf(w, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n",
			left-6, top+r*row+13, html.EscapeString(name))
		for c := range h.columns {
			v, ok := h.cells[[2]int{r, c}]
			if !ok {
				continue
			}
			fmt.Fprintf(w, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"><title>%s, %s: %s</title></rect>`+"\n",
				left+c*wide, top+r*row, wide-1, row-1, shade(h.share(v)), html.EscapeString(name),
				html.EscapeString(h.columns[c]),
				lab.Digits(v))
		}
	}
	fmt.Fprintln(w, "</svg>")
}

// share returns how far v has come from pale to dark.
func (h *heat) share(v float64) float64 { return (v - h.from) / (h.to - h.from) }

// legend names the colors, red only where red appears.
func (h *heat) legend() string {
	for _, v := range h.cells {
		if h.share(v) < 0 {
			return fmt.Sprintf("Pale is %s, dark blue is %s, and dark red as far the other way.", lab.Digits(h.from),
				lab.Digits(h.to))
		}
	}
	return fmt.Sprintf("Pale is %s, dark is %s.", lab.Digits(h.from), lab.Digits(h.to))
}

// shade returns pale at 0, blue to 1, red to -1, and grey where there is no number.
func shade(share float64) string {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return "#999"
	}
	if share < 0 {
		s := min(1, -share)
		return fmt.Sprintf("#%02x%02x%02x", int(238-58*s), int(242-212*s), int(250-220*s))
	}
	s := min(1, share)
	return fmt.Sprintf("#%02x%02x%02x", int(238-210*s), int(242-160*s), int(250-90*s))
}
