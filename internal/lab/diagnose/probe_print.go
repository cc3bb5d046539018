package diagnose

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/karat-run/karat/internal/float16"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
)

// print says what a tap looks like.
type print struct {
	cause, computed string
	detail          detail
}

// innocent begins what findings say of an engine whose probe is broken.
const innocent = "does nothing wrong: "

// newPrint returns the print of a broken probe.
func newPrint(cause string, d detail, format string, args ...any) *print {
	return &print{cause, innocent + fmt.Sprintf(format, args...), d}
}

// fingerprint compares a tap with its right value: the beginning of the value, another type, another row, another
// tap.
func fingerprint(m *measurement, eq *equation) *print {
	n, w := eq.target, eq.target.Shape.Size()
	for i, p := range m.dump.prompts {
		if p.known[n] == nil || !p.tapped {
			continue
		}
		rows := p.rows(n)
		want, err := m.engine.center[p].Compute(n, rows)
		if err != nil {
			return nil
		}
		got := p.read(n, rows)
		limit := max(1e-3, 30*worst(eq.errors).floor)
		if lab.RelativeL2(want, got) <= limit {
			continue // this prompt is right
		}
		if x := reinterpreted(got, want, limit); x != nil {
			return x
		}
		if x := prefix(got, want, w, limit); x != nil {
			return x
		}
		if x := otherRows(got, want, w, limit); x != nil {
			return x
		}
		if x := unfilled(got, want); x != nil {
			return x
		}
		if x := cmp.Or(otherTap(m, i, n, got), otherValue(m, i, n, got, limit)); x != nil {
			return x
		}
	}
	return nil
}

// unfilled finds values no arithmetic gave: zeros throughout, or infinite values that follow from finite
// values.
func unfilled(got, want []float64) *print {
	zeros, bad := 0, 0
	for i, v := range got {
		if v == 0 {
			zeros++
		}
		if math.IsNaN(v-v) && !math.IsNaN(want[i]-want[i]) {
			bad++
		}
	}
	switch {
	case bad > 0:
		return newPrint("unknown", detail{"values": float64(bad)},
			"%d of the tap's %d values are NaN or infinite, and what comes after is not", bad, len(got))
	case zeros == len(got):
		return newPrint("unknown", detail{"values": float64(zeros)},
			"the tap holds zeros alone, as of a buffer that was never written")
	}
	return nil
}

// reinterpreted finds values of 16 bits that were read as float32: two in each.
func reinterpreted(got, want []float64, limit float64) *print {
	for _, format := range []struct {
		name string
		to   func(uint16) float64
	}{
		{"float16", func(b uint16) float64 { return float64(float16.F16(b)) }},
		{"bfloat16", func(b uint16) float64 { return float64(float16.BF16(b)) }},
	} {
		var x []float64
		for _, v := range got {
			bits := math.Float32bits(float32(v))
			x = append(x, format.to(uint16(bits)), format.to(uint16(bits>>16)))
		}
		half := len(want) / 2
		if half > 0 && lab.RelativeL2(want, x[:half*2][:len(want)]) <= limit+0x1p-7 ||
			isNear(x[:half], want[:half], limit+0x1p-7) {
			return newPrint("probe_dtype", detail{"stored": format.name, "read": "float32"},
				"the probe reads %s values as float32", format.name)
		}
	}
	return nil
}

func isNear(a, b []float64, limit float64) bool { return len(a) > 0 && lab.RelativeL2(b, a) <= limit }

// prefix finds taps with only the first values, of each row or of all rows.
func prefix(got, want []float64, w int, limit float64) *print {
	for _, of := range []struct {
		what string
		size int
	}{{"row", w}, {"tensor", len(got)}} {
		end := 0
		for i, v := range got {
			if v != 0 && v == v {
				end = max(end, i%of.size+1)
			}
		}
		if end == 0 || end == of.size {
			continue
		}
		var a, b []float64
		for at := 0; at < len(got); at += of.size {
			a, b = append(a, got[at:at+end]...), append(b, want[at:at+end]...)
		}
		if isNear(a, b, limit) {
			return newPrint("probe_prefix", detail{"values": float64(end), "of": of.what},
				"the probe reads the first %d of %d values of the %s", end, of.size, of.what)
		}
	}
	return nil
}

// otherRows finds rows at other positions.
func otherRows(got, want []float64, w int, limit float64) *print {
	n := len(got) / w
	if isStuck(got, w) && !isStuck(want, w) {
		return stuckRows
	}
	for shift := 1; shift <= 2 && shift < n; shift++ {
		if isNear(got[shift*w:], want[:len(want)-shift*w], limit) {
			return newPrint("probe_rows", detail{"shift": float64(shift)}, "the probe's rows lie %d too late", shift)
		}
		if isNear(got[:len(got)-shift*w], want[shift*w:], limit) {
			return newPrint("probe_rows", detail{"shift": float64(-shift)}, "the probe's rows lie %d too early", shift)
		}
	}
	backward := make([]float64, 0, len(got))
	for i := n - 1; i >= 0; i-- {
		backward = append(backward, got[i*w:(i+1)*w]...)
	}
	if n > 1 && isNear(backward, want, limit) {
		return newPrint("probe_rows", detail{"order": "reversed"}, "the probe's rows are in reverse order")
	}
	return nil
}

// otherTap finds the same values under another name, or in another prompt.
func otherTap(m *measurement, i int, n *graph.Node, got []float64) *print {
	w := n.Shape.Size()
	for j, q := range m.dump.prompts {
		for _, x := range m.dump.graph.Nodes {
			if q.known[x] == nil || j == i && x == n || x.Shape.Size() != w {
				continue
			}
			rows := q.rows(x)
			rows = rows[:min(len(rows), len(got)/w)]
			if len(rows) == 0 || !slices.Equal(q.read(x, rows), got[:len(rows)*w]) {
				continue
			}
			name := m.dump.tapName(x)
			if j != i {
				return newPrint("probe_stale", detail{"prompt": float64(q.Index), "tap": name},
					"the tap holds what %s was in prompt %d", name, q.Index)
			}
			return newPrint("probe_duplicate", detail{"tap": name}, "the tap holds %s", name)
		}
	}
	return nil
}

// otherValue finds what n should be in another prompt, or what the same node of another
// layer should be: all taps may be broken in the same way, so that none holds what another shows.
func otherValue(m *measurement, i int, n *graph.Node, got []float64, limit float64) *print {
	w := n.Shape.Size()
	shows := func(q *prompt, x *graph.Node) bool {
		rows := upTo(0, min(len(q.IDs), len(got)/w))
		want, err := m.engine.center[q].Compute(x, rows)
		return err == nil && len(rows) > 1 && isNear(got[:len(want)], want, limit)
	}
	for j, q := range m.dump.prompts {
		if j != i && q.tapped && shows(q, n) {
			return newPrint("probe_stale", detail{"prompt": float64(q.Index)},
				"the tap holds what it should be in prompt %d", q.Index)
		}
	}
	for _, x := range m.dump.wiring.Siblings(n) {
		if x.Shape.Size() == w && shows(m.dump.prompts[i], x) {
			return newPrint("probe_duplicate", detail{"tap": m.dump.tapName(x)},
				"the tap holds what %s should be", m.dump.tapName(x))
		}
	}
	return nil
}
