package lint

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// sameBits are the folders, with those below them, whose results must be the
// same on every processor.
var sameBits = []string{"internal/rope", "internal/simd", "internal/backend/cpu", "internal/quant", "internal/float16", "internal/sample"}

// countsBits reports whether a file lies in one of those folders.
func countsBits(name string) bool {
	return slices.ContainsFunc(sameBits, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// exact matches what those may use of package math: constants, and functions
// whose result is exact or correctly rounded. The others (Exp, Sin, Log ...) are
// approximations that differ between architectures.
var exact = regexp.MustCompile(`^(` +
	`Pi|E|Ln2|Ln10|Log2E|Log10E|Sqrt2|((Max|Min)(Uint|Int)\d*|(Max|SmallestNonzero)Float(32|64))|` +
	`Float(32|64)(frombits|bits)|Abs|Ceil|Copysign|FMA|Floor|Frexp|Inf|IsInf|IsNaN|Ldexp|Max|Min|Modf|NaN|Round|RoundToEven|Signbit|Sqrt|Trunc` +
	`)$`)

// inexact finds uses of package math that are not exact in the folders where
// bits count. A dot import is one, too: it hides them.
func inexact(all []*source) (findings []string) {
	for _, s := range all {
		if s.test() || !countsBits(s.name) {
			continue
		}
		name := localName(s, "math")
		if name == "." {
			findings = append(findings, s.name+": dot import of math")
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && !exact.MatchString(sel.Sel.Name) {
					findings = append(findings, fmt.Sprintf("%s: math.%s differs between architectures", s.at(sel), sel.Sel.Name))
				}
			}
			return true
		})
	}
	return findings
}

// localName returns the name under which a file knows an import, "" if it does not.
func localName(s *source, importPath string) string {
	for _, spec := range s.file.Imports {
		if spec.Path.Value != strconv.Quote(importPath) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

func TestExactMath(t *testing.T) {
	report(t, inexact(sources(t)))

	reject(t, inexact, "internal/rope/rope.go", `package rope; import "math"; var x = math.Cos(1)`)
	reject(t, inexact, "internal/simd/exp.go", `package simd; import m "math"; var f = m.Exp`)
	reject(t, inexact, "internal/backend/cpu/cpu.go", `package cpu; import . "math"; var x = Log(2)`)
	report(t, inexact(snippet(t, "internal/simd/a.go", `package simd; import "math"; var x = math.Sqrt(math.Ln2)`)))
}

// fused finds the sums x*y + z of floats whose product is not converted
// explicitly. The language lets a compiler fuse them, and on arm64 it does, so
// that they round differently there: float32(x*y) + z and math.FMA(x, y, z) are
// the same everywhere.
func fused(s *source, info *types.Info) (findings []string) {
	product := func(e ast.Expr) bool {
		e = ast.Unparen(e)
		if u, ok := e.(*ast.UnaryExpr); ok {
			e = ast.Unparen(u.X)
		}
		m, ok := e.(*ast.BinaryExpr)
		if !ok || m.Op != token.MUL || info.Types[m].Value != nil {
			return false
		}
		typ := info.TypeOf(m)
		if typ == nil {
			return false
		}
		b, ok := typ.Underlying().(*types.Basic)
		return ok && b.Info()&types.IsFloat != 0
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		var found bool
		switch n := n.(type) {
		case *ast.BinaryExpr:
			found = (n.Op == token.ADD || n.Op == token.SUB) && (product(n.X) || product(n.Y))
		case *ast.AssignStmt:
			found = (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && product(n.Rhs[0])
		}
		if found {
			findings = append(findings, fmt.Sprintf("%s: product in a sum, which arm64 fuses: convert it", s.at(n)))
		}
		return true
	})
	return findings
}

// check types the files of one package.
func check(t *testing.T, imp types.Importer, pkg []*source) *types.Info {
	t.Helper()
	var files []*ast.File
	for _, s := range pkg {
		files = append(files, s.file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imp, Sizes: types.SizesFor("gc", "arm64")}
	if _, err := conf.Check(modulePath+"/"+pkg[0].dir(), pkg[0].fset, files, info); err != nil {
		t.Fatal(err)
	}
	return info
}

func TestNoFusing(t *testing.T) {
	if build.Default.GOROOT == "" { // a test built with -trimpath
		build.Default.GOROOT = strings.TrimSpace(goTool(t, "env", "GOROOT"))
	}
	arm := build.Default
	arm.GOARCH = "arm64"
	root := golden.Root(t)
	pkgs := map[string][]*source{}
	for _, s := range sources(t) {
		if s.test() || !countsBits(s.name) {
			continue
		}
		match, err := arm.MatchFile(filepath.Join(root, filepath.FromSlash(s.dir())), filepath.Base(s.name))
		if err != nil {
			t.Fatal(err)
		}
		if match {
			pkgs[s.dir()] = append(pkgs[s.dir()], s)
		}
	}
	var imported types.Importer // shared, so that each package below is read once
	for _, pkg := range pkgs {
		if imported == nil {
			imported = importer.ForCompiler(pkg[0].fset, "source", nil)
		}
		info := check(t, imported, pkg)
		for _, s := range pkg {
			report(t, fused(s, info))
		}
	}
}

func TestFused(t *testing.T) {
	for text, want := range map[string]int{
		"z + x*y":           1,
		"(x*y) - z":         1,
		"-(x*y) + z":        1,
		"x*y + z*x":         1,
		"z + x*y + x*y":     2,
		"float32(x*y) + z":  0,
		"x * (y + z)":       0,
		"z + 2*3":           0,
		"float32(i*i + i)":  0,
		"x*float32(i+i*i)":  0,
		"float32(x*y+z) *x": 1,
	} {
		pkg := snippet(t, "a.go", "package a; func f(x, y, z float32, i int) float32 { return "+text+" }")
		if got := fused(pkg[0], check(t, nil, pkg)); len(got) != want {
			t.Errorf("%s: %d findings, want %d", text, len(got), want)
		}
	}
	pkg := snippet(t, "a.go", "package a; func f(x, y []float64, z float64) float64 { z += x[0]*y[0]; return z }")
	if got := fused(pkg[0], check(t, nil, pkg)); len(got) != 1 {
		t.Errorf("z += x*y: %d findings, want 1", len(got))
	}
}
