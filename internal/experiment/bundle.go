package experiment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
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

// checkFolder reports whether dir holds an unfinished bundle of the same spec. Another experiment's folder, a
// folder with other files, and a finished experiment with changes are errors: a new manifest would vouch for
// the changes.
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

// same wants the same prompts, and runs of the same values.
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

// compare wants equal logits, bit for bit, and metrics equal up to the rounding of exp, different on other
// machines.
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
