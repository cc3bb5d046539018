package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/karat-run/karat/internal/hub"
	"golang.org/x/term"
	"golang.org/x/text/width"
)

// progress reports the state of a long work: on a terminal in a line written again and again, elsewhere in a line every
// ten seconds. Several goroutines may report.
type progress struct {
	w           io.Writer
	columns     func() int // the terminal's width at this moment; nil where w is no terminal
	name        string     // the file, or the work
	start, last time.Time
	all         int64 // bytes of the work
	before      int   // pieces done by earlier work
	shown       bool
	mu          sync.Mutex
}

// newProgress begins the work on a file, whose path is shortened to its name.
func newProgress(w io.Writer, path string) *progress {
	p := &progress{w: w, start: time.Now()}
	if path != "" {
		p.name = oneLine(filepath.Base(path))
	}
	if isTerminal(w) {
		p.columns = func() int {
			n, _, err := term.GetSize(int(w.(*os.File).Fd()))
			if err != nil || n <= 0 {
				return 80
			}
			return n
		}
	}
	return p
}

// bytes reports the number of bytes done.
func (p *progress) bytes(done, all int64) {
	p.all = all
	p.downloadThen(hub.Progress{Done: done, Came: done, All: all}, "")
}

// download reports the bytes of a download, whose total may be unknown.
func (p *progress) download(at hub.Progress) { p.downloadThen(at, "verifying") }

// downloadThen reports the bytes of a download, and the next work once all are present.
func (p *progress) downloadThen(at hub.Progress, next string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, ok := p.isDue()
	if !ok {
		return
	}
	rate := float64(at.Came) / now.Sub(p.start).Seconds()
	if at.All <= 0 || at.Done > at.All {
		p.show(bytesIn(at.Done), perSecond(rate))
		return
	}
	left := leftAt(at.All-at.Done, rate)
	if at.Done == at.All && next != "" {
		left = next
	}
	percent := fmt.Sprintf("%d %%", int(100*float64(at.Done)/float64(at.All)))
	p.show(percent, fmt.Sprintf("%s of %s", bytesLike(at.Done, at.All), bytesIn(at.All)), perSecond(rate), left)
}

// pieces reports the pieces of work done, with a text about them.
func (p *progress) pieces(text string, done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.isDue(); ok {
		p.tell(text, done, all)
	}
}

// tell shows pieces of work.
func (p *progress) tell(text string, done, all int) {
	left := ""
	if now := done - p.before; now > 0 {
		left = leftIn(time.Duration(float64(time.Since(p.start)) / float64(now) * float64(all-done)))
	}
	p.show(fmt.Sprintf("%d of %d", done, all), left, text)
}

// isDue reports whether a report is due, and the time.
func (p *progress) isDue() (time.Time, bool) {
	now, pause := time.Now(), 10*time.Second
	if p.last.IsZero() {
		p.last = p.start
	}
	if p.columns != nil {
		pause = time.Second / 10
	}
	if now.Sub(p.last) < pause {
		return now, false
	}
	p.last, p.shown = now, true
	return now, true
}

// show writes the name and the nonempty parts of a line. A terminal gets as many parts as fit: first the name is
// shortened, then the last parts go.
func (p *progress) show(parts ...string) {
	if p.columns == nil {
		fmt.Fprintln(p.w, "karat:", joinParts(p.name, parts))
		return
	}
	fmt.Fprintf(p.w, "\r%s\x1b[K", fitLine(p.name, parts, p.columns()-1)) // a line of the whole width would wrap
}

// end clears the terminal's line.
func (p *progress) end() {
	if p.columns != nil && p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// stages shows the progress of stages of work, whose number of pieces is known or 0.
type stages struct {
	*progress
	ends bool // each stage has a line at its end, where w is no terminal
}

func (s *stages) report(stage string, done, total int) {
	if stage != s.name {
		s.end()
		last, w := s.last, s.w
		s.progress = newProgress(w, "")
		s.name, s.last = stage, last
		if s.ends {
			s.last = s.start
		}
	}
	switch {
	case s.ends && s.columns == nil && done == total:
		s.tell("", done, total)
	case total > 0:
		s.pieces("", done, total)
	default:
		if _, ok := s.isDue(); ok {
			s.show()
		}
	}
}

func joinParts(name string, parts []string) string {
	line := name
	for _, part := range parts {
		if line != "" && part != "" {
			line += "  "
		}
		line += part
	}
	return line
}

// shortName is the minimum width of a name in a line.
const shortName = 12

// fitLine joins a name and parts within a number of columns.
func fitLine(name string, parts []string, columns int) string {
	for n := len(parts); ; n-- {
		line := joinParts(name, parts[:n])
		over := textWidth(line) - columns
		if over <= 0 {
			return line
		}
		if room := textWidth(name) - over; room >= shortName || n == 1 && room > 1 {
			return joinParts(cutWidth(name, room), parts[:n])
		}
		if n <= 1 {
			return cutWidth(joinParts("", parts[:n]), columns)
		}
	}
}

// cutWidth shortens a text to a number of columns.
func cutWidth(s string, columns int) string {
	if textWidth(s) <= columns {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if columns -= runeWidth(r); columns < 1 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// textWidth counts the columns of a text on a terminal.
func textWidth(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch k := width.LookupRune(r).Kind(); {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case k == width.EastAsianWide || k == width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// perSecond returns a rate of bytes.
func perSecond(rate float64) string {
	if rate < 1e6 {
		return fmt.Sprintf("%.0f kB/s", rate/1e3)
	}
	return fmt.Sprintf("%.0f MB/s", rate/1e6)
}

// leftAt returns the time left for the rest at a rate, "" if unknown.
func leftAt(rest int64, rate float64) string {
	if !(rate > 0) || float64(rest)/rate > 3.6e6 {
		return ""
	}
	return leftIn(time.Duration(float64(rest) / rate * float64(time.Second)))
}

// leftIn returns a time as "8 s left", "3 min 5 s left" or "2 h 5 min left".
func leftIn(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%d s left", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s left", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min left", s/3600, s/60%60)
}

// bytesIn returns bytes in the largest unit below them: "763 MiB".
func bytesIn(n int64) string {
	unit, name := unitOf(n)
	return inUnit(n, unit) + " " + name
}

// bytesLike returns n in the unit of all, without its name.
func bytesLike(n, all int64) string {
	unit, _ := unitOf(all)
	return inUnit(n, unit)
}

func unitOf(n int64) (unit float64, name string) {
	unit, name = 1, "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if float64(n) < 1024*unit {
			break
		}
		unit, name = 1024*unit, u
	}
	return unit, name
}

// inUnit writes decimals only for large units: 293 MiB, 4.51 GiB.
func inUnit(n int64, unit float64) string {
	if unit >= 1<<30 {
		return fmt.Sprintf("%.2f", float64(n)/unit)
	}
	return fmt.Sprintf("%.0f", float64(n)/unit)
}

// bytesText returns a size in bytes, and legible: "799,539,200 B (762.5 MiB)".
func bytesText(n int64) string {
	unit, name := unitOf(n)
	if unit == 1 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%s B (%.1f %s)", digits(n), float64(n)/unit, name)
}

// digits groups an integer's digits by three.
func digits(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// gibibytes returns a size in memory.
func gibibytes(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
