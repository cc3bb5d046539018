// Package lint holds the tests of the repository's own source: the order of its
// packages, the size of its files, the functions that numeric code may call, and the
// exported surface of the library. It has no other code.
//
// Each check is a function from parsed files to a list of findings, so that a
// test can also give it a file that it must reject.
package lint

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

const modulePath = "github.com/karat-run/karat"

// A source is one parsed Go file.
type source struct {
	name      string // slash-separated path from the root
	file      *ast.File
	fset      *token.FileSet
	lines     int
	generated bool
}

// dir returns the folder of the file, which names its package: "." or "internal/graph".
func (s *source) dir() string { return path.Dir(s.name) }

func (s *source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

// at returns "file:line" of a node.
func (s *source) at(n ast.Node) string {
	return s.name + ":" + strconv.Itoa(s.line(n.Pos()))
}

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

// imports returns the paths that the file imports.
func (s *source) imports() []string {
	var paths []string
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		paths = append(paths, p)
	}
	return paths
}

// parse reads one Go file.
func parse(t *testing.T, fset *token.FileSet, name string, text []byte) *source {
	t.Helper()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return &source{name, f, fset, bytes.Count(text, []byte("\n")), ast.IsGenerated(f)}
}

// sources returns every Go file of the module, whatever its build constraints,
// in order of name and in one file set. The files are parsed once for all tests.
func sources(t *testing.T) []*source {
	t.Helper()
	parsing.Do(func() {
		fset, texts := token.NewFileSet(), files(t, ".go")
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			parsed = append(parsed, parse(t, fset, name, texts[name]))
		}
	})
	if len(parsed) == 0 {
		t.Fatal("the sources were not parsed: another test says why")
	}
	return slices.Clone(parsed)
}

// parsed holds the module's files.
var (
	parsing sync.Once
	parsed  []*source
)

// files returns the text of the module's files that end in one of the given ways, by name.
func files(t *testing.T, ends ...string) map[string][]byte {
	t.Helper()
	root := os.DirFS(golden.Root(t))
	texts := map[string][]byte{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != "." && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains(ends, path.Ext(name)) {
			texts[name], err = fs.ReadFile(root, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// snippet returns a file of the given name and text, as if it were in the module.
func snippet(t *testing.T, name, text string) []*source {
	t.Helper()
	return []*source{parse(t, token.NewFileSet(), name, []byte(text))}
}

// report fails the test with each finding.
func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}

// reject fails the test unless check finds something in a file of the given
// name and text.
func reject(t *testing.T, check func([]*source) []string, name, text string) {
	t.Helper()
	if len(check(snippet(t, name, text))) == 0 {
		t.Errorf("%s passes:\n%s", name, text)
	}
}
