package parity

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// everyCase is a mistake in a model, and another mistake beside it; the first alone if the second is the zero value.
type everyCase struct {
	model         *Model
	fault, beside mistake.Fault
}

// every lists each mistake with each value at each place of a layer, in one model for each operation there: alone, and
// beside the next one that the model can have as well.
func every(t *testing.T) (all []everyCase) {
	seen := map[string]bool{}
	names := slices.Concat(golden.Models(t), golden.Families(t), golden.Encoders(t))
	if !golden.Slow() {
		names = []string{"gemma2", "olmo3", "mixtral"}
	}
	for _, name := range names {
		m := load(t, name)
		wrong, _ := m.applicable()
		var faults []mistake.Fault
		for _, f := range wrong {
			_, _, in, err := mistake.Inject(m.Graph, []mistake.Fault{f})
			if err != nil {
				t.Fatal(err)
			}
			if key := strings.Join([]string{f.ID, f.Value, f.Where, in[0].Op}, " "); !seen[key] {
				seen[key] = true
				faults = append(faults, f)
			}
		}
		for i, f := range faults {
			all = append(all, everyCase{model: m, fault: f})
			if i%2 == 0 {
				r := random(1, m.Name+f.String())
				if set := mistake.DrawBeside(m.Graph, []mistake.Fault{f}, faults, 2, r); len(set) == 2 {
					all = append(all, everyCase{m, f, set[1]})
				}
			}
		}
	}
	return all
}

// TestEveryEntry wants each mistake of the table named at each place, or called unknown if it is on no list, alone and
// beside another one. It prints how many of each entry were.
func TestEveryEntry(t *testing.T) {
	all := every(t)
	if !golden.Slow() {
		all = slices.DeleteFunc(all, func(c everyCase) bool { return random(2, c.fault.String()).IntN(len(all)) > 8 })
	}
	type count struct{ engines, placed, named, misnamed int }
	counts := map[string]*count{}
	try := func(t *testing.T, c everyCase) {
		e := &example{model: c.model, condition: Single, faults: []mistake.Fault{c.fault}, taps: AllTaps, longest: 24, seed: 5}
		if c.beside.ID != "" {
			e.condition, e.faults = Multi, append(e.faults, c.beside)
		}
		x, err := e.run(t.Context())
		if err != nil {
			t.Errorf("%s: %v: %v", c.model.Name, e.faults, err)
		}
		if x == nil {
			return // no prompt of so few tokens shows it
		}
		if counts[c.fault.ID] == nil {
			counts[c.fault.ID] = &count{}
		}
		n := counts[c.fault.ID]
		n.engines++
		n.placed += x.Scores.Layers.Hit / max(x.Scores.Layers.Of, 1)
		n.named += x.Scores.Exact.Hit
		n.misnamed += x.Scores.Misnamed.Hit
		if len(x.Failed) > 0 {
			t.Error(x.Line())
		}
	}
	for len(all) > 0 {
		m := all[0].model
		of := slices.IndexFunc(all, func(c everyCase) bool { return c.model != m })
		if of < 0 {
			of = len(all)
		}
		t.Run(m.Name, func(t *testing.T) {
			for _, c := range all[:of] {
				try(t, c)
			}
		})
		all = all[of:]
	}
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		n := counts[id]
		t.Logf("%-24s %4d engines, %4d placed, %4d exact, %3d misnamed", id, n.engines, n.placed, n.named, n.misnamed)
	}
}
