package parity

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// everyCase is a mistake in a model, and another mistake beside it; the first alone if the second is the zero value.
type everyCase struct {
	model         *Model
	fault, beside mistake.Fault
}

// together calls do for each of n numbers, as many at a time as there are processors.
func together(n int, do func(i int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// every lists each mistake with each value at each place of a layer, in one model for each operation there: alone, and
// beside the next one that the model can have as well.
func every(t *testing.T) (all []everyCase) {
	names := slices.Concat(golden.Models(t), golden.Families(t), golden.Encoders(t))
	if !golden.Slow() {
		names = []string{"gemma2", "olmo3", "mixtral"}
	}
	type placed struct {
		fault mistake.Fault
		key   string
	}
	models, faults := make([]*Model, len(names)), make([][]placed, len(names))
	for i, name := range names {
		models[i] = load(t, name)
	}
	together(len(names), func(i int) {
		wrong, _ := models[i].applicable()
		for _, f := range wrong {
			_, _, in, err := mistake.Inject(models[i].Graph, []mistake.Fault{f})
			if err != nil {
				t.Error(err)
				continue
			}
			faults[i] = append(faults[i], placed{f, strings.Join([]string{f.ID, f.Value, f.Where, in[0].Op}, " ")})
		}
	})
	seen := map[string]bool{}
	for i, m := range models {
		var kept []mistake.Fault
		for _, f := range faults[i] {
			if !seen[f.key] {
				seen[f.key] = true
				kept = append(kept, f.fault)
			}
		}
		for i, f := range kept {
			all = append(all, everyCase{model: m, fault: f})
			if i%2 == 0 {
				r := random(1, m.Name+f.String())
				if set := mistake.DrawBeside(m.Graph, []mistake.Fault{f}, kept, 2, r); len(set) == 2 {
					all = append(all, everyCase{m, f, set[1]})
				}
			}
		}
	}
	return all
}

// part keeps one case in n of all, from the i-th on, if KARAT_PART is i/n, i in 1 to n.
func part(t *testing.T, all []everyCase) (kept []everyCase) {
	s := os.Getenv("KARAT_PART")
	var i, n int
	if _, err := fmt.Sscanf(cmp.Or(s, "1/1"), "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		t.Fatalf("KARAT_PART is %q, not i/n with i in 1 to n", s)
	}
	for k, c := range all {
		if k%n == i-1 {
			kept = append(kept, c)
		}
	}
	t.Logf("part %d of %d: %d of %d engines", i, n, len(kept), len(all))
	return kept
}

// TestEveryEntry wants each mistake of the table named at each place, or called unknown if it is on no list, alone and
// beside another one: of the few engines of a short run all, of all engines 19 in 20, and no wrong name. It prints how
// many of each entry were, and each miss under its entry. KARAT_PART=2/8 runs the second of eight parts.
func TestEveryEntry(t *testing.T) {
	all := every(t)
	if !golden.Slow() {
		all = slices.DeleteFunc(all, func(c everyCase) bool { return random(2, c.fault.String()).IntN(len(all)) > 8 })
	}
	all = part(t, all)
	type count struct {
		engines, failed, faults, placed, exact, misnamed, unmade int
		missed                                                   []string
	}
	counts, total := map[string]*count{}, &count{}
	var mu sync.Mutex // of counts and done
	done := 0
	together(len(all), func(i int) {
		c := all[i]
		e := &example{model: c.model, condition: Single, faults: []mistake.Fault{c.fault}, taps: AllTaps, longest: 24, seed: 5}
		if c.beside.ID != "" {
			e.condition, e.faults = Multi, append(e.faults, c.beside)
		}
		x, err := e.run(t.Context())
		mu.Lock()
		defer mu.Unlock()
		if counts[c.fault.ID] == nil {
			counts[c.fault.ID] = &count{}
		}
		for _, n := range []*count{counts[c.fault.ID], total} {
			switch {
			case err != nil:
				n.engines++
				n.failed++
				n.missed = append(n.missed, fmt.Sprintf("%s: %v: %v", c.model.Name, e.faults, err))
			case x == nil:
				n.unmade++ // no prompt of so few tokens shows it
			default:
				n.engines++
				n.faults += x.Scores.Layers.Of
				n.placed += x.Scores.Layers.Hit
				n.exact += x.Scores.Exact.Hit
				n.misnamed += x.Scores.Misnamed.Hit
				if slices.Contains(x.Failed, "errors") {
					n.failed++
				}
				if len(x.Failed) > 0 {
					n.missed = append(n.missed, x.Line())
				}
			}
		}
		if done++; done%20 == 0 {
			t.Logf("%d of %d, %d exact of %d", done, len(all), total.exact, total.engines)
		}
	})
	line := func(id string, n *count) string {
		return fmt.Sprintf("%-24s %4d engines, %4d of %4d faults placed, %4d exact, %3d misnamed, %3d not shown", id,
			n.engines, n.placed, n.faults, n.exact, n.misnamed, n.unmade)
	}
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		n := counts[id]
		if t.Log(line(id, n)); len(n.missed) > 0 {
			miss := t.Error
			if golden.Slow() {
				miss = t.Log
			}
			miss(strings.Join(n.missed, "\n"))
		}
	}
	t.Log(line("together", total))
	if total.failed > 0 || total.misnamed > 0 || 20*total.exact < 19*total.engines || 20*total.placed < 19*total.faults {
		t.Errorf("%d engines failed, %d were misnamed, %d of %d sets are exact", total.failed, total.misnamed,
			total.exact, total.engines)
	}
}
