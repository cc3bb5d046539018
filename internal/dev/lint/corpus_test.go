package lint

import (
	"go/ast"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// bareTargets finds fuzz targets without a corpus of their own: go test runs no more than their
// seeds, and what fuzzing found has no place.
func bareTargets(all []*source, root string) (findings []string) {
	for _, s := range all {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !s.test() || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			dir := filepath.Join(root, s.dir(), "testdata", "fuzz", f.Name.Name)
			if inputs, err := os.ReadDir(dir); err != nil || len(inputs) == 0 {
				findings = append(findings, s.at(f)+": "+f.Name.Name+" has no inputs in testdata/fuzz")
			}
		}
	}
	return findings
}

func TestCorpora(t *testing.T) {
	root := golden.Root(t)
	report(t, bareTargets(sources(t), root))
	reject(t, func(all []*source) []string { return bareTargets(all, root) }, "internal/gguf/a_test.go", "package gguf\nfunc FuzzNothing(f *testing.F) {}\n")
}
