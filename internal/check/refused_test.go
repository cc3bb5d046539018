package check

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/arch"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
)

// refused returns why what runs a model refuses it; nil if it does not.
func refused(path string) error {
	c, err := checkpoint.Open(path)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, _, err := arch.Load(c); err != nil {
		return err
	}
	_, err = c.Tokenizer()
	return err
}

// wrong are values that a setting may not have, or may.
var wrong = []any{nil, "x", uint32(0), uint32(1), uint32(7), int32(-1), uint32(1 << 31), float32(math.NaN()), float32(-1), float32(1e30), true, []uint32{1, 2}, []string{"a"}}

// TestRefused spoils each setting in turn: a model that does not load has at least one error, whatever else is found.
func TestRefused(t *testing.T) {
	g := &good{t: t, models: map[string]*model{}}
	for _, base := range []string{"tiny-gemma4.Q8_0", "tiny-llama"} {
		m := g.get(t, base)
		var keys []string
		for _, kv := range m.meta {
			keys = append(keys, kv.Key)
		}
		for k := range m.config {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		n, quiet := 0, 0
		for k, key := range keys {
			for i, v := range wrong {
				if !golden.Slow() && (i+k)%13 != 0 {
					continue
				}
				if strings.HasPrefix(key, "general.") && key != "general.architecture" || key == "general.architecture" && v == nil {
					continue
				}
				c := m.clone(t)
				if f, ok := v.(float32); ok && m.config != nil && math.IsNaN(float64(f)) {
					continue // JSON has none
				}
				c.set(key, v)
				path := c.write()
				why := refused(path)
				if why == nil {
					continue
				}
				n++
				r := g.run(t, path, Options{})
				if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == Error }) {
					quiet++
					t.Errorf("%s, %s = %v: refused (%v), but found %s", base, key, v, why, brief(r))
				}
			}
		}
		t.Logf("%s: %d refused, %d without an error", base, n, quiet)
	}
}

func brief(r *Report) (list []string) {
	for _, f := range r.Findings {
		list = append(list, fmt.Sprintf("%s %s", f.Severity, f.ID))
	}
	return list
}
