// Package check finds the faults of a model's files before any forward pass: settings that nothing reads, tensors that
// are missing or hold other data, damaged values, a tokenizer or a chat template that does not fit. Given the folder
// that a file was made from, it compares both, tensor by tensor.
//
// catalogue.txt lists all findings; docs/checking.md is its table. A file is read once, a few rows of a tensor at a
// time.
//
// check.go has the report and the order of a check, files.go opens a model as it lies on disk. structure.go judges
// which tensors and settings there are, settings.go the settings; text.go judges the tokenizer and the template,
// template.go the template's conversations, which probe.go renders, and prose.go its own text. scan.go reads tensors,
// values.go judges each, siblings.go sets them beside each other. compare.go compares with the source, explain.go names
// a difference.
package check

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/gguf"
	"github.com/karat-run/karat/internal/registry"
	"github.com/karat-run/karat/internal/tensor"
)

// Options say what else to look at. The zero value checks a model by itself.
type Options struct {
	// Against is the Hugging Face folder that the model was made from; "" for none.
	Against string
	// Progress is called with the bytes of tensors that are done, and all. It may be nil. Calls come one at a time, on the
	// goroutine of the caller.
	Progress func(done, total int64)
}

// Severity is how bad a finding is.
type Severity string

// The severities. A note tells of something that is assumed, or odd, and most likely right: it does not make a model
// suspect.
const (
	Error   Severity = "error"   // logits are wrong, or the model does not run
	Warning Severity = "warning" // logits are likely wrong
	Note    Severity = "note"
)

// Finding is one thing that is wrong, wherever it occurs.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Area     Area     `json:"area"`
	What     string   `json:"what"`  // a sentence with the numbers
	Where    []string `json:"where"` // tensors, keys or files, as these name them
	Means    string   `json:"means"` // for the logits
	Fix      string   `json:"fix"`
}

// Report is what a check found.
type Report struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"`
	Architecture string    `json:"architecture"`
	Against      string    `json:"against,omitempty"`
	Tensors      int       `json:"tensors"`
	Bytes        int64     `json:"bytes"`              // of the tensors
	Compared     int       `json:"compared,omitempty"` // tensors with their source
	Findings     []Finding `json:"findings"`
	// Unproven tells what a check of the files alone cannot see in this model.
	Unproven []string `json:"unproven"`
}

// Clean reports whether there is nothing but notes.
func (r *Report) Clean() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// family returns the one that the tensors are of; an empty one where nobody knows it.
func (c *checker) family() *family.Family {
	if f := registry.Find(c.arch); f != nil {
		return f
	}
	return &family.Family{}
}

// checker is a check under way.
type checker struct {
	Options
	ctx    context.Context
	report Report
	files  *files                 // what the file holds, as it is
	model  *checkpoint.Checkpoint // nil if it cannot be opened
	source *checkpoint.Checkpoint // while it is compared
	stats  []stats                // of files.tensors

	spoiled map[string]bool // tensors whose values something was found in, by their names in the file

	arch    string // that the tensors are of; differs from the report's where arch-key was found
	unfit   bool   // the tensors or the settings do not fit the architecture
	refused error  // why the model cannot be opened

	told        chan struct{} // that done grew
	mu          sync.Mutex    // of the rest
	done, total int64         // bytes
}

// Run checks the model at path, a GGUF file (any part of a split one) or a Hugging Face folder. The error is of files
// that cannot be read as what they are, or of a source that cannot: faults of a model are in the report.
func Run(ctx context.Context, path string, o Options) (*Report, error) {
	f, err := open(path)
	var row *tensor.RowError
	var at *gguf.Error
	if errors.As(err, &row) && errors.As(err, &at) { // nothing else can be said of such a file
		c := &checker{report: Report{Path: path, Format: string(checkpoint.GGUF), Unproven: []string{}}}
		c.add("row-blocks", []string{at.Name}, "%s: %v", at.Name, row)
		return &c.report, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.close()
	c := &checker{Options: o, ctx: ctx, files: f, report: Report{Path: path, Format: string(f.format), Against: o.Against,
		Tensors: len(f.tensors), Findings: []Finding{}, Unproven: []string{}}}
	for _, t := range f.tensors {
		c.report.Bytes += int64(len(t.Data))
	}
	if err := c.run(path); err != nil {
		return nil, err
	}
	c.sort()
	return &c.report, nil
}

func (c *checker) run(path string) error {
	m, err := checkpoint.Open(path)
	if err == nil {
		defer m.Close()
		c.model = m
	}
	c.refused = err
	c.arch = c.files.arch
	c.report.Architecture = c.files.arch
	judgeStructure(c)
	if c.model != nil && !c.unfit {
		judgeSettings(c)
	}
	if err := c.guard(func() { judgeText(c) }); err != nil {
		return err
	}
	c.runs()
	if err := c.scan(); err != nil {
		return err
	}
	judgeValues(c)
	judgeSiblings(c)
	judgeNorms(c)
	c.unproven()
	if c.Against == "" {
		return nil
	}
	return compareSource(c)
}

// runs makes sure that a model which cannot be loaded has an error, whatever was found so far.
func (c *checker) runs() {
	err := c.refused
	if c.model != nil {
		_, _, err = arch.Stored(c.model)
	}
	if err != nil && !slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return f.Severity == Error }) {
		c.add("not-loaded", nil, "%s", plain(err))
	}
}

// add takes a finding in. Its What is one sentence; its Where may be long.
func (c *checker) add(id string, where []string, format string, args ...any) {
	k := catalogue()[id]
	c.addAs(k.severity, id, where, format, args...)
}

// addAs adds a finding with another severity than the catalogue's.
func (c *checker) addAs(s Severity, id string, where []string, format string, args ...any) {
	k, ok := catalogue()[id]
	if !ok {
		panic("check: no finding " + id) // a mistake in this package
	}
	if where == nil {
		where = []string{}
	}
	if k.area == "values" {
		if c.spoiled == nil {
			c.spoiled = map[string]bool{}
		}
		for _, name := range where {
			c.spoiled[name] = true
		}
	}
	c.report.Findings = append(c.report.Findings, Finding{ID: id, Severity: s, Area: k.area,
		What: fmt.Sprintf(format, args...), Where: where, Means: k.means, Fix: k.fix})
}

// found reports whether one of ids was found already.
func (c *checker) found(ids ...string) bool {
	return slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
}

// sort puts the worst first in each area.
func (c *checker) sort() {
	severities := []Severity{Error, Warning, Note}
	slices.SortStableFunc(c.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(areas, a.Area), slices.Index(areas, b.Area)),
			cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)))
	})
}

// layerNumber matches the number of a layer in a tensor's name.
const layerNumber = `(?:^|\.)(?:blk|layers)\.(\d+)\.`

// kindOf returns a tensor's name with * for its layer, and the layer; -1 for none.
func kindOf(name string) (kind string, layer int) {
	m := pattern(layerNumber).FindStringSubmatchIndex(name)
	if m == nil {
		return name, -1
	}
	layer, err := strconv.Atoi(name[m[2]:m[3]])
	if err != nil {
		return name, -1
	}
	return name[:m[2]] + "*" + name[m[3]:], layer
}

// unproven lists what needs --against, or a run, to be seen.
func (c *checker) unproven() {
	square := 0
	for _, t := range c.files.tensors {
		if len(t.Shape) == 2 && t.Shape[0] == t.Shape[1] {
			square++
		}
	}
	list := &c.report.Unproven
	if square > 0 && c.Against == "" {
		*list = append(*list,
			fmt.Sprintf("%d matrices are square: that they are not transposed cannot be told by their shape", square))
	}
	if c.Against == "" {
		*list = append(*list,
			"values that are wrong but plausible (scaled by less than 8, permuted, of an older checkpoint) need the source: "+
				"--against")
	}
}

// addAt adds a finding about one tensor, whose name begins the sentence.
func (c *checker) addAt(id, tensor, format string, args ...any) {
	c.add(id, []string{tensor}, "%s: %s", tensor, fmt.Sprintf(format, args...))
}

// addKey adds a finding about one setting, given its canonical key.
func (c *checker) addKey(id, key, format string, args ...any) {
	c.add(id, []string{c.model.Key(key)}, format, args...)
}

// addText adds a finding about one key of the tokenizer, or the file of a folder that has the like.
func (c *checker) addText(id, key, format string, args ...any) {
	c.add(id, []string{c.textKey(key)}, format, args...)
}

// number returns a setting by its canonical key, 0 where there is no number.
func (c *checker) number(key string) float64 {
	x, _ := c.model.Setting(key).(float64)
	return x
}

// Area is the part of a model that a finding is about.
type Area string

// areas lists the areas in the order of a report.
var areas = []Area{"configuration", "tensors", "values", "text", "source"}

// kind is an entry of the catalogue.
type kind struct {
	area     Area
	severity Severity // the usual one
	title    string
	means    string // for the logits
	fix      string
}

// catalogueText has a heading for each area, and a line of docs/checking.md for each finding. IDs are stable: programs
// read them.
//
//go:embed catalogue.txt
var catalogueText string

// catalogue returns all findings by ID: the entries of catalogueText, and what each family's files leave to guess.
var catalogue = sync.OnceValue(func() map[string]kind {
	all := map[string]kind{}
	var area Area
	for line := range strings.Lines(catalogueText) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "# "); ok {
			area = Area(name)
		} else if f := strings.Split(strings.Trim(line, "| "), " | "); len(f) == 5 {
			all[strings.Trim(f[0], "`")] = kind{area, Severity(f[1]), f[2], f[3], f[4]}
		}
	}
	for _, f := range registry.Families {
		for _, a := range f.Expect.Assumed {
			all[a.ID] = kind{"configuration", Warning, a.What, a.Means, a.Fix}
		}
	}
	return all
})
