package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sameBits are the folders, with those below them, whose results must be the
// same on every processor.
var sameBits = []string{"internal/rope", "internal/simd", "internal/backend/cpu"}

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
		if s.test() || !slices.ContainsFunc(sameBits, func(dir string) bool { return strings.HasPrefix(s.name, dir+"/") }) {
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

// cgo finds files that need a C compiler.
func cgo(all []*source) (findings []string) {
	for _, s := range all {
		if slices.Contains(s.imports(), "C") {
			findings = append(findings, s.name+": imports C")
		}
	}
	return findings
}

func TestNoCgo(t *testing.T) {
	report(t, cgo(sources(t)))
	reject(t, cgo, "a.go", `package a; import "C"`)
}

// later matches the marks of work that was put off. They are spelled so that
// this file has none.
var later = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME)\b`)

func TestNothingLeftForLater(t *testing.T) {
	for name, text := range files(t, ".go", ".s", ".md", ".js", ".wgsl", ".html", ".css") {
		for i, line := range strings.Split(string(text), "\n") {
			if m := later.FindString(line); m != "" {
				t.Errorf("%s:%d: %s", name, i+1, m)
			}
		}
	}
	if !later.MatchString("// TO" + "DO(me): later") {
		t.Error("the pattern finds nothing")
	}
}
