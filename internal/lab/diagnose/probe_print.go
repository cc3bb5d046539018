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

// print is what a tap looks like.
type print struct {
	cause, computed string
	detail          detail
}

// fingerprint compares a tap with what it should be: the beginning of it, in another
// type, another row's, another tap's.
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
			continue // this prompt's is right
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

// unfilled finds values that no arithmetic gave: zeros throughout, or not finite where
// what they follow from is.
func unfilled(got, want []float64) *print {
	zeros, broken := 0, 0
	for i, v := range got {
		if v == 0 {
			zeros++
		}
		if math.IsNaN(v-v) && !math.IsNaN(want[i]-want[i]) {
			broken++
		}
	}
	switch {
	case broken > 0:
		return &print{"unknown", fmt.Sprintf("does nothing wrong: %d of the tap's %d values are NaN or infinite, and what comes after is not", broken, len(got)), detail{"values": float64(broken)}}
	case zeros == len(got):
		return &print{"unknown", "does nothing wrong: the tap holds zeros alone, as of a buffer that was never written", detail{"values": float64(zeros)}}
	}
	return nil
}

// reinterpreted finds values of 16 bits that were read as float32: two in each.
func reinterpreted(got, want []float64, limit float64) *print {
	for _, format := range []struct {
		name string
		to   func(uint16) float64
	}{{"float16", func(b uint16) float64 { return float64(float16.F16(b)) }}, {"bfloat16", func(b uint16) float64 { return float64(float16.BF16(b)) }}} {
		var x []float64
		for _, v := range got {
			bits := math.Float32bits(float32(v))
			x = append(x, format.to(uint16(bits)), format.to(uint16(bits>>16)))
		}
		half := len(want) / 2
		if half > 0 && lab.RelativeL2(want, x[:half*2][:len(want)]) <= limit+0x1p-7 || near(x[:half], want[:half], limit+0x1p-7) {
			return &print{"probe_dtype", "does nothing wrong: the probe reads " + format.name + " values as float32", detail{"stored": format.name, "read": "float32"}}
		}
	}
	return nil
}

func near(a, b []float64, limit float64) bool { return len(a) > 0 && lab.RelativeL2(b, a) <= limit }

// prefix finds taps of which only the first values, of each row or of all, are there.
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
		if near(a, b, limit) {
			return &print{"probe_prefix", fmt.Sprintf("does nothing wrong: the probe reads the first %d of %d values of the %s", end, of.size, of.what),
				detail{"values": float64(end), "of": of.what}}
		}
	}
	return nil
}

// otherRows finds rows at other positions.
func otherRows(got, want []float64, w int, limit float64) *print {
	n := len(got) / w
	if stuck(got, w) && !stuck(want, w) {
		return &print{"probe_rows", stuckWords, detail{"order": "stuck"}}
	}
	for shift := 1; shift <= 2 && shift < n; shift++ {
		if near(got[shift*w:], want[:len(want)-shift*w], limit) {
			return &print{"probe_rows", fmt.Sprintf("does nothing wrong: the probe's rows lie %d too late", shift), detail{"shift": float64(shift)}}
		}
		if near(got[:len(got)-shift*w], want[shift*w:], limit) {
			return &print{"probe_rows", fmt.Sprintf("does nothing wrong: the probe's rows lie %d too early", shift), detail{"shift": float64(-shift)}}
		}
	}
	backward := make([]float64, 0, len(got))
	for i := n - 1; i >= 0; i-- {
		backward = append(backward, got[i*w:(i+1)*w]...)
	}
	if n > 1 && near(backward, want, limit) {
		return &print{"probe_rows", "does nothing wrong: the probe's rows are in reverse order", detail{"order": "reversed"}}
	}
	return nil
}

// otherTap finds the same values under another name, or in another prompt.
func otherTap(m *measurement, i int, n *graph.Node, got []float64) *print {
	w := n.Shape.Size()
	for j, q := range m.dump.prompts {
		for _, x := range m.dump.graph.Nodes {
			k := q.known[x]
			if k == nil || j == i && x == n || x.Shape.Size() != w {
				continue
			}
			first, count := k.Rows()
			count = min(count, len(got)/w)
			rows := make([]int, count)
			for t := range rows {
				rows[t] = first + t
			}
			if count == 0 || !slices.Equal(q.read(x, rows), got[:count*w]) {
				continue
			}
			if j != i {
				return &print{"probe_stale", fmt.Sprintf("does nothing wrong: the tap holds what %s was in prompt %d", m.dump.tapName(x), q.Index), detail{"prompt": float64(q.Index), "tap": m.dump.tapName(x)}}
			}
			return &print{"probe_duplicate", "does nothing wrong: the tap holds " + m.dump.tapName(x), detail{"tap": m.dump.tapName(x)}}
		}
	}
	return nil
}

// otherValue finds what n should be in another prompt, or what the same node of another
// layer should be: all taps may be broken in the same way, so that none holds what another shows.
func otherValue(m *measurement, i int, n *graph.Node, got []float64, limit float64) *print {
	w := n.Shape.Size()
	shows := func(q *prompt, x *graph.Node) bool {
		rows := make([]int, min(len(q.IDs), len(got)/w))
		for t := range rows {
			rows[t] = t
		}
		want, err := m.engine.center[q].Compute(x, rows)
		return err == nil && len(rows) > 1 && near(got[:len(want)], want, limit)
	}
	for j, q := range m.dump.prompts {
		if j != i && q.tapped && shows(q, n) {
			return &print{"probe_stale", fmt.Sprintf("does nothing wrong: the tap holds what it should be in prompt %d", q.Index), detail{"prompt": float64(q.Index)}}
		}
	}
	for _, x := range m.dump.wiring.Siblings(n) {
		if x.Shape.Size() == w && shows(m.dump.prompts[i], x) {
			return &print{"probe_duplicate", "does nothing wrong: the tap holds what " + m.dump.tapName(x) + " should be", detail{"tap": m.dump.tapName(x)}}
		}
	}
	return nil
}
