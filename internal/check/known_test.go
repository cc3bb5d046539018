package check

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
)

// honest returns the chat templates that there are, by name: those of publishers, if the goldens are there, and else
// those that package chat keeps.
func honest(t *testing.T) map[string]string {
	t.Helper()
	dir := ""
	t.Run("shared", func(t *testing.T) { dir = golden.Shared(t, "chat/templates") })
	if dir == "" {
		dir = filepath.Join(golden.Root(t), "internal/chat/testdata/templates")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
	if err != nil || len(files) < 14 {
		t.Fatalf("%d templates in %s, %v", len(files), dir, err)
	}
	all := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(f), ".jinja")] = string(b)
	}
	return all
}

// TestKnown wants known.txt to be what the templates make; -update writes it.
func TestKnown(t *testing.T) {
	all := honest(t)
	var b bytes.Buffer
	b.WriteString("# name, SHA-256 of the source (first 16 digits), sample of its shingles, hashes of its sentences; TestKnown -update writes this file\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintln(&b, describe(name, all[name]))
	}
	if *update && len(all) > 50 {
		if err := os.WriteFile("known.txt", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for line := range strings.Lines(b.String()) {
		if !bytes.Contains(knownText, []byte(line)) {
			t.Errorf("known.txt has no line\n%s", line)
		}
	}
}

// TestHonest wants nothing but notes for the templates of publishers, also where none of them is known: each is judged
// as if nobody had seen it before.
func TestHonest(t *testing.T) {
	clean := 0
	for name, source := range honest(t) {
		if faults, _, err := judgeTemplate(t.Context(), source, "<s>", "</s>", publishers()); err != nil || len(faults) > 0 {
			t.Errorf("%s, known: %v %v", name, faults, err)
		}
		faults, _, err := judgeTemplate(t.Context(), source, "<s>", "</s>", readKnown(knownText, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(faults) == 0 {
			clean++
		}
		for _, f := range faults {
			if f.severity != Note {
				t.Errorf("%s: %s: %s", name, f.id, f.what)
			} else {
				t.Logf("%s: %s: %s", name, f.id, f.what)
			}
		}
	}
	t.Logf("%d without notes", clean)
}

// describe makes the line of a template.
func describe(name, source string) knownTemplate {
	t := knownTemplate{name: name, hash: sourceHash(source)}
	for h := range shingles(source) {
		t.sample = append(t.sample, h)
	}
	slices.Sort(t.sample)
	t.sample = t.sample[:min(len(t.sample), sampleSize)]
	for _, text := range literals(source) {
		for _, line := range sentences(text) {
			t.lines = append(t.lines, hash24(strings.Join(proseOf(line), " ")))
		}
	}
	slices.Sort(t.lines)
	t.lines = slices.Compact(t.lines)
	return t
}

// String returns a line of known.txt.
func (t knownTemplate) String() string {
	return strings.TrimSpace(t.name + " " + t.hash + " " + pack(t.sample) + " " + pack(t.lines))
}

func pack(hashes []uint32) string {
	b := make([]byte, 0, 3*len(hashes))
	for _, h := range hashes {
		b = append(b, byte(h>>16), byte(h>>8), byte(h))
	}
	return base64.RawStdEncoding.EncodeToString(b)
}
