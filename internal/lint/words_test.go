package lint

import (
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
