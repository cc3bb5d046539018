package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestProgressFits draws on terminals of several widths, also while the width changes. No line reaches the last
// column, since a terminal would wrap it, and each keeps the part that is done.
func TestProgressFits(t *testing.T) {
	names := []string{"", "a.gguf", strings.Repeat("Qwen3-Coder-480B-A35B-Instruct-", 4) + "Q4_K_M.gguf", strings.Repeat("模型", 40) + ".gguf", "e\u0301" + strings.Repeat("ä", 90)}
	for _, columns := range []int{200, 80, 60, 40, 20, 8} {
		for _, name := range names {
			var b bytes.Buffer
			p := newProgress(&b, name)
			at := columns
			p.columns, p.start = func() int { return at }, time.Now().Add(-time.Minute)
			p.bytes(293<<20, 763<<20)
			at = columns / 2
			p.last = p.start
			p.bytes(294<<20, 763<<20)
			for i, line := range strings.Split(b.String(), "\r")[1:] {
				line = strings.TrimSuffix(line, "\x1b[K")
				if most := columns>>i - 1; textWidth(line) > most {
					t.Errorf("%d columns: %q has %d", columns>>i, line, textWidth(line))
				} else if most > 8 && !strings.Contains(line, "38 %") || most > 34 && !strings.Contains(line, "  29") {
					t.Errorf("%d columns: %q", columns>>i, line)
				} else if most > 30 && name != "" && !strings.Contains(line, name[:1]) {
					t.Errorf("%d columns: %q has no name", columns>>i, line)
				}
			}
		}
	}
}

// TestProgressLines has the line of each kind of work, where there is no terminal.
func TestProgressLines(t *testing.T) {
	var b bytes.Buffer
	past := time.Now().Add(-100 * time.Second)
	p := newProgress(&b, "dir/m.gguf")
	p.start = past
	p.bytes(5<<30, 10<<30)
	e := newProgress(&b, "")
	e.start = past
	e.pieces("perplexity 5", 10, 40)
	s := stages{progress: newProgress(&b, ""), ends: true}
	for i := range 3 {
		s.report("errors", i, 2)
		s.report("errors", i, 2)
	}
	want := []string{"karat: m.gguf  50 %  5.00 of 10.00 GiB  54 MB/s  1 min 40 s left", "karat: 10 of 40  5 min 0 s left  perplexity 5", "karat: errors  2 of 2  0 s left"}
	for _, w := range want {
		if !strings.Contains(b.String(), w) {
			t.Errorf("no %q in:\n%s", w, &b)
		}
	}
	if n := strings.Count(b.String(), "errors"); n < 1 || strings.Contains(b.String(), "0 of 2") {
		t.Errorf("stages:\n%s", &b)
	}
	for d, want := range map[time.Duration]string{0: "0 s left", 59 * time.Second: "59 s left", 61 * time.Second: "1 min 1 s left", 3*time.Hour + 5*time.Minute: "3 h 5 min left"} {
		if got := leftIn(d); got != want {
			t.Errorf("%v: %s", d, fmt.Sprintf("%s, want %s", got, want))
		}
	}
}
