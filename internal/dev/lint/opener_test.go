package lint

import (
	"go/ast"
	"testing"
)

// opener is the package that alone makes graphs of files, and engines of graphs: what all who run a
// model need (a context that ends it, the memory that it needs, its notes) is there once.
const opener = "internal/model"

// opened finds calls of arch.Load and engine.New outside of it.
func opened(all []*source) (findings []string) {
	for _, s := range all {
		if s.test() || s.dir() == opener {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			f, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if p, ok := f.X.(*ast.Ident); ok && (p.Name == "arch" && f.Sel.Name == "Load" || p.Name == "engine" && f.Sel.Name == "New") {
				findings = append(findings, s.at(n)+": "+p.Name+"."+f.Sel.Name+" is for "+opener+" alone: use model.Open, Graph or Compile")
			}
			return true
		})
	}
	return findings
}

func TestOneOpener(t *testing.T) {
	report(t, opened(sources(t)))

	reject(t, opened, "internal/server/server.go", `package server; import "github.com/karat-run/karat/internal/arch"; var load = arch.Load`)
	reject(t, opened, "internal/server/server.go", `package server; import "github.com/karat-run/karat/internal/engine"; func f() { engine.New(nil, nil, engine.Options{}) }`)
}
