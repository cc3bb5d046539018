package check

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/family"
	"github.com/karat-run/karat/internal/registry"
)

// Severity is how bad a finding is.
type Severity string

// The severities. A note reports an assumption, or something odd and most likely right: notes do not make a model
// suspect.
const (
	Error   Severity = "error"   // logits are wrong, or the model does not run
	Warning Severity = "warning" // logits are likely wrong
	Note    Severity = "note"
)

// Finding is a fault, with all of its places.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Area     Area     `json:"area"`
	What     string   `json:"what"`  // a sentence with the numbers
	Where    []string `json:"where"` // tensors, keys or files, by their own names
	Means    string   `json:"means"` // for the logits
	Fix      string   `json:"fix"`
}

// Report holds the result of a check.
type Report struct {
	Path         string    `json:"path"`
	Format       string    `json:"format"`
	Architecture string    `json:"architecture"`
	Against      string    `json:"against,omitempty"`
	Tensors      int       `json:"tensors"`
	Bytes        int64     `json:"bytes"`              // of the tensors
	Compared     int       `json:"compared,omitempty"` // tensors compared with their source
	Findings     []Finding `json:"findings"`
	// Unproven lists the faults of this model that a check of the files alone cannot see.
	Unproven []string `json:"unproven"`
}

// Clean reports whether there is nothing but notes.
func (r *Report) Clean() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity != Note })
}

// Area is the part of a model that a finding is about.
type Area string

// areas lists the areas in the order of a report.
var areas = []Area{"configuration", "tensors", "values", "text", "source"}

// kind is an entry of the catalogue.
type kind struct {
	area     Area
	severity Severity // usual severity
	title    string
	means    string // for the logits
	fix      string
}

// catalogueText has a heading for each area, and a line of docs/checking.md for each finding. IDs are stable: programs
// read them.
//
//go:embed catalogue.txt
var catalogueText string

// kinds keeps the result of catalogue, like knownTemplates.
var kinds struct {
	once sync.Once
	all  map[string]kind
}

// catalogue returns all findings by ID: the entries of catalogueText, and the guesses for each family's files.
func catalogue() map[string]kind {
	kinds.once.Do(func() { kinds.all = readCatalogue() })
	return kinds.all
}

func readCatalogue() map[string]kind {
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
}

// checker is a check under way.
type checker struct {
	Options
	ctx    context.Context
	report Report
	files  *files                 // contents of the file
	model  *checkpoint.Checkpoint // nil if the model cannot be opened
	source *checkpoint.Checkpoint // set during a comparison
	stats  []stats                // of files.tensors

	spoiled map[string]bool // tensors with findings about their values, by their names in the file

	arch    string // architecture of the tensors; differs from the report's after arch-key
	unfit   bool   // the tensors or the settings do not fit the architecture
	refused error  // why the model cannot be opened

	told        chan struct{} // signals that done grew
	mu          sync.Mutex    // of the rest
	done, total int64         // bytes
}

// family returns the family of the tensors; an empty family if unknown.
func (c *checker) family() *family.Family {
	if f := registry.Find(c.arch); f != nil {
		return f
	}
	return &family.Family{}
}

// number returns a setting by its canonical key, 0 if it is no number.
func (c *checker) number(key string) float64 {
	if c.model == nil {
		return 0
	}
	x, _ := c.model.Setting(key).(float64)
	return x
}

// add adds a finding. The sentence becomes its What; where may be long.
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

// addAt adds a finding about a tensor, whose name begins the sentence.
func (c *checker) addAt(id, tensor, format string, args ...any) {
	c.add(id, []string{tensor}, "%s: %s", tensor, fmt.Sprintf(format, args...))
}

// addKey adds a finding about a setting, given its canonical key.
func (c *checker) addKey(id, key, format string, args ...any) {
	c.add(id, []string{c.model.Key(key)}, format, args...)
}

// addText adds a finding about a key of the tokenizer, or the corresponding file of a folder.
func (c *checker) addText(id, key, format string, args ...any) {
	c.add(id, []string{c.textKey(key)}, format, args...)
}

// hasFinding reports whether any of ids was found already.
func (c *checker) hasFinding(ids ...string) bool {
	return slices.ContainsFunc(c.report.Findings, func(f Finding) bool { return slices.Contains(ids, f.ID) })
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

// pattern compiles a regular expression, once. Expressions compiled when a program starts would link regexp and its
// tables into every program that imports karat.
func pattern(text string) *regexp.Regexp {
	if p, ok := patterns.Load(text); ok {
		return p.(*regexp.Regexp)
	}
	p := regexp.MustCompile(text)
	patterns.Store(text, p)
	return p
}

var patterns sync.Map // of *regexp.Regexp, by their text
