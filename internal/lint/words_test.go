package lint

import (
	"fmt"
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
const vagueMost = 3

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
