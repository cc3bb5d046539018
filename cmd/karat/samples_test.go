package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

var update = flag.Bool("update", false, "write the sample outputs of README.md and docs again")

// shownOutput is a block of output in a page, after a line <!-- sample -->, and the
// commands that make it: those of the block before, or what follows in
// <!-- sample: COMMANDS -->.
type shownOutput struct {
	commands string
	from, to int // its lines in the page
}

// shownOutputs lists the samples of a page, in order.
func shownOutputs(lines []string) (list []shownOutput) {
	before, marked, commands := "", false, ""
	for i := 0; i < len(lines); i++ {
		if rest, ok := strings.CutPrefix(lines[i], "<!-- sample"); ok {
			marked, commands = true, strings.TrimSpace(strings.TrimPrefix(strings.TrimSuffix(rest, "-->"), ":"))
			continue
		}
		if !strings.HasPrefix(lines[i], "```") {
			continue
		}
		from := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if !marked {
			before = strings.Join(lines[from:i], "\n")
			continue
		}
		if commands == "" {
			commands = before
		}
		list = append(list, shownOutput{commands, from, i})
		marked = false
	}
	return list
}

// outputs runs the commands of all samples in one shell, and gives what each wrote.
func outputs(t *testing.T, testdata string, list []shownOutput) [][]string {
	dir := t.TempDir()
	for name, to := range map[string]string{"testdata": testdata, "docs": filepath.Join(golden.Root(t), "docs")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var script strings.Builder
	for i, s := range list {
		fmt.Fprintf(&script, "{ %s\n} > out.%d 2> err.%d\n", s.commands, i, i)
	}
	cmd := exec.Command("sh")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(script.String())
	_ = cmd.Run() // diagnose exits with 1 where it finds something
	all := make([][]string, len(list))
	for i := range list {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("out.%d", i)))
		if told, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("err.%d", i))); err != nil || len(b) == 0 {
			t.Fatalf("%s: wrote nothing: %v\n%s", list[i].commands, err, told)
		}
		all[i] = strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	}
	return all
}

// holds reports whether a line of a sample stands for one of an output: "..." in it
// stands for any text.
func holds(line, output string) bool {
	parts := strings.Split(strings.TrimRight(line, " "), "...")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.TrimRight(output, " "))
}

var figure = regexp.MustCompile(`[0-9][0-9.,e-]*`)

// alike reports whether two lines differ in numbers, or after their first words.
func alike(line, output string) bool {
	a, b := figure.ReplaceAllString(line, "#"), figure.ReplaceAllString(output, "#")
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a == b || n >= 12 && n*3 > len(a)
}

// disagree is the first line of a sample that the output does not have where it
// should be; a line "..." stands for any lines. With -update the lines are mended
// where the output has one like it.
func disagree(lines, output []string) (wrong string) {
	at, any := 0, false
	for i, line := range lines {
		if strings.TrimSpace(line) == "..." {
			any = true
			continue
		}
		end := min(at+1, len(output))
		if any {
			end = len(output)
		}
		found := -1
		for k := at; k < end && found < 0; k++ {
			if holds(line, output[k]) {
				found = k
			}
		}
		for k := at; *update && k < end && found < 0; k++ {
			if alike(line, output[k]) {
				found, lines[i] = k, output[k]
			}
		}
		if found < 0 {
			return line
		}
		at, any = found+1, false
	}
	if at < len(output) && !any {
		return "the end, before " + output[at]
	}
	return ""
}

// TestSamples runs the commands whose outputs README.md and docs show, and wants
// these: numbers, names and words. -update mends them.
func TestSamples(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil || runtime.GOOS == "windows" || runtime.GOARCH != "amd64" {
		t.Skip("the samples are of a shell, and figures of rounding of amd64")
	}
	root, testdata, n := golden.Root(t), golden.Unpacked(t), 0
	pages, _ := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(b), "\n")
		list := shownOutputs(lines)
		if len(list) == 0 {
			continue
		}
		n += len(list)
		if !golden.Slow() && !*update {
			list = list[:1]
		}
		for i, output := range outputs(t, testdata, list) {
			if wrong := disagree(lines[list[i].from:list[i].to], output); wrong != "" {
				t.Errorf("%s:%d: the sample has %q, but the commands write\n%s", filepath.Base(page), list[i].from, wrong, strings.Join(output, "\n"))
			}
		}
		if now := []byte(strings.Join(lines, "\n")); *update && !bytes.Equal(now, b) {
			if err := os.WriteFile(page, now, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n < 7 {
		t.Errorf("%d samples, want 7 or more", n)
	}
}
