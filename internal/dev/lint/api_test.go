package lint

import (
	"bytes"
	"flag"
	"go/ast"
	"go/doc"
	"go/printer"
	"go/token"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/*api.txt")

// surface returns the exported declarations of a package without their
// comments, in a fixed order.
func surface(t *testing.T, pkg []*source) string {
	t.Helper()
	if len(pkg) == 0 {
		return ""
	}
	fset := pkg[0].fset
	var files []*ast.File
	for _, s := range pkg {
		files = append(files, s.file)
	}
	p, err := doc.NewFromFiles(fset, files, modulePath)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	decl := func(d ast.Decl) {
		ast.Inspect(d, dropComments)
		if err := printer.Fprint(&b, fset, d); err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n")
	}
	values := func(vs []*doc.Value) {
		for _, v := range vs {
			decl(v.Decl)
		}
	}
	funcs := func(fs []*doc.Func) {
		for _, f := range fs {
			decl(f.Decl)
		}
	}
	values(p.Consts)
	values(p.Vars)
	funcs(p.Funcs)
	for _, typ := range p.Types {
		decl(typ.Decl)
		values(typ.Consts)
		values(typ.Vars)
		funcs(typ.Funcs)
		funcs(typ.Methods)
	}
	return b.String()
}

// dropComments removes the comments of one node of a declaration.
func dropComments(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		n.Doc = nil
	case *ast.FuncDecl:
		n.Doc = nil
	case *ast.TypeSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.ValueSpec:
		n.Doc, n.Comment = nil, nil
	case *ast.Field:
		n.Doc, n.Comment = nil, nil
	}
	return true
}

// TestExportedSurface compares the exported names of the packages that others may
// import with testdata/*api.txt, so that a change of them is seen in review.
func TestExportedSurface(t *testing.T) {
	testSurface(t, ".", "testdata/api.txt")
	testSurface(t, "jinja", "testdata/jinja_api.txt")
	testSurface(t, "mcp", "testdata/mcp_api.txt")
}

func testSurface(t *testing.T, dir, name string) {
	t.Helper()
	var pkg []*source // parsed anew, since package doc takes comments away
	fset := token.NewFileSet()
	for file, text := range files(t, ".go") {
		if path.Dir(file) == dir && !strings.HasSuffix(file, "_test.go") {
			pkg = append(pkg, parse(t, fset, file, text))
		}
	}
	slices.SortFunc(pkg, func(a, b *source) int { return strings.Compare(a.name, b.name) })
	got := surface(t, pkg)
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the exported surface differs from %s (go test ./internal/dev/lint -update writes it):\n%s", name, got)
	}
}

func TestSurface(t *testing.T) {
	got := surface(t, snippet(t, "a.go", `package a
// Doc.
type T struct { A int // a
	b int }
func (t *T) M() error { return nil }
func (t *T) m() {}
const C, c = 1, 2
func New() (*T, error) { return nil, nil }
func F[K comparable](k K) {}
`))
	want, err := os.ReadFile("testdata/surface.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("surface is\n%s", got)
	}
}
