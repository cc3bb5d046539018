package lint

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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

// vague matches phrases that stand where a noun would say more: "0 is what is free" for "0 is the free memory".
var vague = regexp.MustCompile(`(?i)//.*\b(what is|those that|that which)\b`)

// vagueMost only goes down.
const vagueMost = 1

func TestVagueComments(t *testing.T) {
	count, last := 0, ""
	for name, text := range files(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for i, line := range strings.Split(string(text), "\n") {
			if vague.MatchString(line) {
				count, last = count+1, fmt.Sprintf("%s:%d: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
	if count > vagueMost {
		t.Errorf("%d comments say what is, those that or that which, at most %d may: write a noun instead; one is %s", count, vagueMost, last)
	}
	if !vague.MatchString("// Close frees what is left.") {
		t.Error("the pattern finds nothing")
	}
}

// prefixed finds errors whose text begins with the name of their package, which tells a user nothing. A program's
// own name is printed by the program.
func prefixed(all []*source) (findings []string) {
	for _, s := range all {
		if s.test() {
			continue
		}
		names := []string{s.file.Name.Name + ": ", path.Base(s.dir()) + ": ", "karat: "}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				f, ok := call.Fun.(*ast.Ident)
				return !ok || f.Name != "panic" // which is for programmers
			}
			text, ok := n.(*ast.BasicLit)
			if ok && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(text.Value[1:], name) }) {
				findings = append(findings, s.at(text)+": the text begins with the package's name")
			}
			return true
		})
	}
	return findings
}

func TestErrorsNameNoPackage(t *testing.T) {
	var all []*source
	for _, s := range sources(t) {
		if s.dir() != "internal/dev/golden" && s.file.Name.Name != "main" { // a program says its own name
			all = append(all, s)
		}
	}
	report(t, prefixed(all))
	reject(t, prefixed, "a/a.go", "package a; import `fmt`; var x = fmt.Errorf(\"a: %d\", 1)")
	reject(t, prefixed, "b/a.go", "package a; import `errors`; var x = errors.New(\"karat: x\")")
}
