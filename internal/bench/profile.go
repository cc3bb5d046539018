package bench

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/backend"
)

// nameOf returns the kernel's name; the time of a step before its first kernel has none.
func nameOf(k backend.KernelProfile) string { return cmp.Or(k.Name, "(before the first)") }

// profileText is where the time of t's steps went, of each step in µs: by kernel, and by
// thread.
func profileText(t *Result) string {
	var b strings.Builder
	p := t.Profile
	us := func(d time.Duration) float64 { return float64(d) / 1e3 / float64(max(p.Steps, 1)) }
	fmt.Fprintf(&b, "%s: %d steps of %.1f µs\n\n", t.name(), p.Steps, us(p.Time))
	if len(p.Threads) == 1 { // without shared loops and waits
		fmt.Fprintf(&b, "| kernel | µs | share |\n| --- | ---: | ---: |\n")
		for _, k := range p.Kernels {
			fmt.Fprintf(&b, "| %s | %.1f | %.1f %% |\n", nameOf(k), us(k.Time),
				100*float64(k.Time)/float64(max(p.Time, 1)))
		}
		return b.String() + "\n"
	}
	fmt.Fprintf(&b, "| kernel | loops | µs | one thread alone | threads busy |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, k := range p.Kernels {
		busy := ""
		if d := k.Time - k.Alone; d > 0 && k.Loops > 0 {
			busy = fmt.Sprintf("%.0f %%", 100*float64(k.Busy)/float64(d)/float64(len(p.Threads)))
		}
		fmt.Fprintf(&b, "| %s | %.1f | %.1f | %.1f | %s |\n", nameOf(k), float64(k.Loops)/float64(max(p.Steps, 1)),
			us(k.Time), us(k.Alone), busy)
	}
	fmt.Fprintf(&b, "\n| thread | busy, µs | waiting | between loops |\n| ---: | ---: | ---: | ---: |\n")
	for i, w := range p.Threads {
		fmt.Fprintf(&b, "| %d | %.1f | %.1f | %.1f |\n", i, us(w.Busy), us(w.Waiting), us(w.Between))
	}
	return b.String() + "\n"
}
