package experiment

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	Model     string            `json:"model"`             // as it was named
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
	maxBundle    = 1 << 30 // bytes of one of them
)

// Bundle is an experiment's folder.
type Bundle struct {
	Dir      string
	Manifest Manifest
	Cells    []Cell
}

// RunInto computes what dir lacks of r's cells, and writes the bundle. Cells are appended as they are computed, so an
// interrupted run goes on. tell is called after each.
func RunInto(ctx context.Context, dir, specText, model string, r *Runner, tell func(done, total int)) (*Bundle, error) {
	made, err := startable(dir, specText)
	if err != nil {
		return nil, err
	}
	print, err := r.Model.Fingerprint(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if !made { // only now: a spec that cannot be run leaves no folder
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, specFile), []byte(specText), 0o666); err != nil {
			return nil, err
		}
	}
	cells, err := resume(filepath.Join(dir, cellsFile), r, print)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, cellsFile), os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for i := len(cells); i < r.Len(); i++ {
		c, err := r.cell(ctx, i)
		if err != nil {
			return nil, err
		}
		line, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			return nil, err
		}
		cells = append(cells, *c)
		tell(len(cells), r.Len())
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	b := &Bundle{Dir: dir, Cells: cells, Manifest: Manifest{Program: "karat " + karat.Version(), Name: r.Spec.Name,
		Model: model, Print: print,
		Precision: r.Spec.Precision, Spec: r.Spec.Hash(), Kind: r.Spec.Kind, Receivers: r.Spec.Receivers, Cells: len(cells),
		Pairs: r.Pairs, Files: map[string]string{}}}
	return b, b.write()
}

// startable reports whether dir is of the same spec already. Another experiment's folder, one that has other files, and
// a finished one that was changed are errors: a new manifest would vouch for the changes.
func startable(dir, specText string) (made bool, err error) {
	path := filepath.Join(dir, specFile)
	had, err := readBounded(path)
	switch {
	case err == nil && string(had) != specText:
		return false, fmt.Errorf("%s: another experiment's: take another folder", path)
	case err == nil && exists(filepath.Join(dir, manifestFile)):
		_, _, err = Open(dir)
		return true, err
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || len(all) > 0 {
		return false, fmt.Errorf("%s: not an experiment's folder, and not empty", dir)
	}
	return false, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// header is the first line of the cells: what they were computed with.
type header struct {
	Print string `json:"model_fingerprint"`
}

// resume reads the cells that were computed before. A last line that was cut off is dropped.
func resume(path string, r *Runner, print string) ([]Cell, error) {
	first, err := json.Marshal(header{print})
	if err != nil {
		return nil, err
	}
	b, err := readBounded(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, os.WriteFile(path, append(first, '\n'), 0o666)
	}
	if err != nil {
		return nil, err
	}
	b = b[:bytes.LastIndexByte(b, '\n')+1]
	if len(b) == 0 {
		return nil, os.WriteFile(path, append(first, '\n'), 0o666)
	}
	h, cells, err := parseCells(b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case h.Print != print:
		return nil, fmt.Errorf("%s: computed with another model or precision (%s, this is %s): take another folder", path,
			h.Print, print)
	case len(cells) > r.Len():
		return nil, fmt.Errorf("%s: %d cells, the experiment has %d", path, len(cells), r.Len())
	}
	for i := range cells {
		if cells[i].key() != r.Key(i) {
			return nil, fmt.Errorf("%s: cell %d is %s, want %s", path, i, cells[i].key(), r.Key(i))
		}
		for _, m := range r.Spec.Metrics {
			if cells[i].metric(m) == nil {
				return nil, fmt.Errorf("%s: cell %d has no %s", path, i, m)
			}
		}
	}
	return cells, os.Truncate(path, int64(len(b)))
}

func parseCells(b []byte) (h header, cells []Cell, err error) {
	for i, line := range strings.Split(strings.TrimSuffix(string(b), "\n"), "\n") {
		if i == 0 {
			err = json.Unmarshal([]byte(line), &h)
		} else {
			var c Cell
			err = json.Unmarshal([]byte(line), &c)
			cells = append(cells, c)
		}
		if err != nil {
			return h, nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return h, cells, nil
}

func readBounded(path string) ([]byte, error) { return mmap.ReadFile(path, maxBundle) }

// write writes the page and the manifest.
func (b *Bundle) write() error {
	page := b.page()
	if err := atomicfile.Write(filepath.Join(b.Dir, pageFile), writes(page)); err != nil {
		return err
	}
	for _, name := range []string{specFile, cellsFile, pageFile} {
		sum, err := sumOf(filepath.Join(b.Dir, name))
		if err != nil {
			return err
		}
		b.Manifest.Files[name] = sum
	}
	m, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(b.Dir, manifestFile), writes(append(m, '\n')))
}

func sumOf(path string) (string, error) {
	x, err := readBounded(path)
	sum := sha256.Sum256(x)
	return hex.EncodeToString(sum[:]), err
}

// Open reads a bundle, and checks its files' hashes.
func Open(dir string) (*Bundle, string, error) {
	x, err := readBounded(filepath.Join(dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%s: no %s: not an experiment's folder, or the experiment is not finished", dir,
			manifestFile)
	}
	b := &Bundle{Dir: dir}
	if err == nil {
		err = json.Unmarshal(x, &b.Manifest)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", filepath.Join(dir, manifestFile), err)
	}
	for _, name := range []string{specFile, cellsFile, pageFile} {
		sum, err := sumOf(filepath.Join(dir, name))
		if err != nil {
			return nil, "", err
		}
		if want := b.Manifest.Files[name]; sum != want {
			return nil, "", fmt.Errorf("%s: changed after the experiment: its SHA-256 is %.12s…, the manifest says %.12s…",
				filepath.Join(dir, name), sum, want)
		}
	}
	spec, err := readBounded(filepath.Join(dir, specFile))
	if err != nil {
		return nil, "", err
	}
	cells, err := readBounded(filepath.Join(dir, cellsFile))
	if err != nil {
		return nil, "", err
	}
	if _, b.Cells, err = parseCells(cells); err != nil {
		return nil, "", fmt.Errorf("%s: %w", filepath.Join(dir, cellsFile), err)
	}
	return b, string(spec), nil
}

// Verify computes the bundle again, with a runner of its spec, and returns the first difference, as an error.
func (b *Bundle) Verify(ctx context.Context, r *Runner, tell func(done, total int)) error {
	print, err := r.Model.Fingerprint(ctx)
	if err != nil {
		return err
	}
	if print != b.Manifest.Print {
		return fmt.Errorf("another model, or other numerics: its fingerprint is %s, the bundle's %s", print, b.Manifest.Print)
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	if r.Len() != len(b.Cells) || len(r.Pairs) != len(b.Manifest.Pairs) {
		return fmt.Errorf("%d cells of %d pairs, the bundle has %d of %d", r.Len(), len(r.Pairs), len(b.Cells),
			len(b.Manifest.Pairs))
	}
	for i, p := range r.Pairs {
		if err := p.same(&b.Manifest.Pairs[i]); err != nil {
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
		if err := c.same(&b.Cells[i].Values); err != nil {
			return fmt.Errorf("cell %d, %s at %s: %w", i, c.Node, c.At, err)
		}
		tell(i+1, r.Len())
	}
	return nil
}

// same wants the same prompts, and runs of the same values.
func (p *Pair) same(o *Pair) error {
	if (p.Corrupted == nil) != (o.Corrupted == nil) || (p.Start == nil) != (o.Start == nil) || o.Clean == nil {
		return errors.New("prompts: one is missing on one side")
	}
	if !slices.Equal(p.Clean.IDs, o.Clean.IDs) || p.Corrupted != nil && !slices.Equal(p.Corrupted.IDs, o.Corrupted.IDs) {
		return errors.New("prompts: other ids")
	}
	if err := p.Base.same(&o.Base); err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	if p.Start == nil {
		return nil
	}
	if err := p.Start.same(o.Start); err != nil {
		return fmt.Errorf("corrupted: %w", err)
	}
	return nil
}

// same wants the same logits, bit for bit, and metrics that differ by the rounding of exp alone, which is the
// machine's.
func (v *Values) same(o *Values) error {
	if v.Logits != o.Logits {
		return fmt.Errorf("other logits: SHA-256 %.12s…, the bundle's %.12s…", v.Logits, o.Logits)
	}
	for _, x := range []struct {
		name string
		a, b *lab.Number
	}{{"logit_difference", v.Difference, o.Difference}, {"probability", v.Probability, o.Probability},
		{"kl", v.KL, o.KL}} {
		if (x.a == nil) != (x.b == nil) {
			return fmt.Errorf("%s is missing on one side", x.name)
		}
		if x.a != nil && *x.a != *x.b && !(math.Abs(float64(*x.a-*x.b)) <= 1e-9*(1+math.Abs(float64(*x.b)))) {
			return fmt.Errorf("%s is %v, the bundle's %v", x.name, *x.a, *x.b)
		}
	}
	return nil
}

// Comparison is how two bundles differ.
type Comparison struct {
	Cells   int     `json:"cells"` // that both have
	OnlyA   int     `json:"only_first"`
	OnlyB   int     `json:"only_second"`
	Same    int     `json:"same_logits"` // bit for bit
	Metrics []Apart `json:"metrics"`
}

// Apart is the largest difference of a metric, and where it is.
type Apart struct {
	Metric string     `json:"metric"`
	Mean   lab.Number `json:"mean_difference"`
	Most   lab.Number `json:"largest_difference"`
	Node   string     `json:"node"`
	At     string     `json:"at"`
}

// Compare compares cells of the same pair, node, head and position.
func Compare(a, b *Bundle) *Comparison {
	by := map[string]*Cell{}
	for i := range b.Cells {
		by[b.Cells[i].key()] = &b.Cells[i]
	}
	c := &Comparison{Metrics: []Apart{{Metric: "logit_difference"}, {Metric: "probability"}, {Metric: "kl"}}}
	counts := make([]int, len(c.Metrics))
	for i := range a.Cells {
		x := &a.Cells[i]
		y := by[x.key()]
		if y == nil {
			c.OnlyA++
			continue
		}
		c.Cells++
		if x.Logits == y.Logits {
			c.Same++
		}
		for k, v := range [][2]*lab.Number{{x.Difference, y.Difference}, {x.Probability, y.Probability}, {x.KL, y.KL}} {
			if v[0] == nil || v[1] == nil {
				continue
			}
			d, m := lab.Number(math.Abs(float64(*v[1]-*v[0]))), &c.Metrics[k]
			counts[k]++
			if m.Mean += d; d > m.Most {
				m.Most, m.Node, m.At = d, x.Node, x.At
			}
		}
	}
	c.OnlyB = len(b.Cells) - c.Cells
	for k := range c.Metrics {
		c.Metrics[k].Mean /= lab.Number(max(1, counts[k]))
	}
	return c
}

// Strongest says, for each pair, which cells change its answer most, in order. In a trace these cells give most of the
// clean answer back.
func (b *Bundle) Strongest(n int) (lines []string) {
	for i := range b.Manifest.Pairs {
		p := &b.Manifest.Pairs[i]
		base := p.Base
		if p.Start != nil {
			base = *p.Start
		}
		of, metric := func(v *Values) *lab.Number { return v.Difference }, "logit difference"
		if base.Difference == nil {
			of, metric = func(v *Values) *lab.Number { return v.Probability }, "probability"
		}
		if of(&base) == nil {
			of, metric = func(v *Values) *lab.Number { return v.KL }, "KL divergence"
		}
		var cells []*Cell
		for k := range b.Cells {
			if b.Cells[k].Pair == i {
				cells = append(cells, &b.Cells[k])
			}
		}
		moved := func(c *Cell) float64 { return math.Abs(float64(*of(&c.Values) - *of(&base))) }
		slices.SortStableFunc(cells, func(x, y *Cell) int { return cmp.Compare(moved(y), moved(x)) })
		lines = append(lines, fmt.Sprintf("%s: %s %.4f", p.Clean.Text, metric, float64(*of(&p.Base))))
		if p.Start != nil {
			lines = append(lines, fmt.Sprintf("%s: %s %.4f", p.Corrupted.Text, metric, float64(*of(p.Start))))
		}
		for _, c := range cells[:min(n, len(cells))] {
			at := c.At
			if c.Token != "" {
				at += fmt.Sprintf(" (%q)", c.Token)
			}
			if c.Head != "" {
				at += ", head " + c.Head
			}
			lines = append(lines, fmt.Sprintf("  %s at %s: %.4f", c.Node, at, float64(*of(&c.Values))))
		}
	}
	return lines
}
