package check

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/karat-run/karat/internal/registry"
)

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

// catalogue returns all findings by ID: those of catalogueText, and what each family's files leave to guess.
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
