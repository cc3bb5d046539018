package lint

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// maxFamilyLines is how long family.go may be for each family that it has.
const maxFamilyLines = 120

// longFamilies are those that may be longer, and why.
var longFamilies = map[string]string{
	"internal/arch/gemma4/family.go":     "each format says in its own way which layers have sizes of their own",
	"internal/arch/kimilinear/family.go": "a folder has delta attention in an object, and numbers of layers from 1",
}

// longFamily finds families that take more than a page to describe: what they need is an
// operation, a habit or a key that others could have, too.
func longFamily(all []*source) (findings []string) {
	for _, s := range all {
		families := 0
		ast.Inspect(s.file, func(n ast.Node) bool {
			if c, ok := n.(*ast.CompositeLit); ok {
				if x, ok := c.Type.(*ast.SelectorExpr); ok && x.Sel.Name == "Family" {
					families++
				}
			}
			return true
		})
		if most := families * maxFamilyLines; path.Base(s.name) == "family.go" && s.lines > most && longFamilies[s.name] == "" {
			findings = append(findings, fmt.Sprintf("%s: %d lines for %d families, at most %d", s.name, s.lines, families, most))
		}
	}
	return findings
}

func TestLongFamily(t *testing.T) {
	all := sources(t)
	report(t, longFamily(slices.DeleteFunc(slices.Clone(all), func(s *source) bool { return s.dir() == "internal/family" })))
	for _, s := range all {
		if longFamilies[s.name] != "" && s.lines <= maxFamilyLines {
			t.Errorf("%s: %d lines, no longer an exception", s.name, s.lines)
		}
	}

	one := "package a\nvar f = family.Family{}\n"
	reject(t, longFamily, "a/family.go", one+strings.Repeat("\n", maxFamilyLines))
	report(t, longFamily(snippet(t, "a/family.go", one+"var g = family.Family{}\n"+strings.Repeat("\n", maxFamilyLines))))
}
