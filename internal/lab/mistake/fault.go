package mistake

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/graph"
)

// Fault is a mistake, written ID[:WHERE][=VALUE][@LAYERS].
type Fault struct {
	ID     string // a cause's ID; x_... for a fault on no list, same_... for an equal function
	Where  string // names of nodes without their layer, joined by +; "" for the usual nodes
	Value  string // number or word; "" for the usual value
	Tower  bool   // whether the mistake is in the part that sees: written tower.ID
	Layers string // "" and all: all possible layers; full, sliding, shared, moe, outside; or 0,2-3
}

func (f Fault) String() string {
	s := f.ID
	if f.Tower {
		s = towerMark + s
	}
	for _, part := range []struct{ sign, text string }{{":", f.Where}, {"=", f.Value}, {"@", f.Layers}} {
		if part.text != "" {
			s += part.sign + part.text
		}
	}
	return s
}

// towerMark begins a mistake in the tower.
const towerMark = "tower."

// Parse reads faults separated by semicolons.
func Parse(text string) ([]Fault, error) {
	var faults []Fault
	for s := range strings.SplitSeq(text, ";") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		var f Fault
		f.ID, f.Layers, _ = strings.Cut(s, "@")
		f.ID, f.Value, _ = strings.Cut(f.ID, "=")
		f.ID, f.Where, _ = strings.Cut(f.ID, ":")
		for _, part := range []*string{&f.ID, &f.Where, &f.Value, &f.Layers} {
			*part = strings.TrimSpace(*part)
		}
		f.Tower = strings.HasPrefix(f.ID, towerMark)
		f.ID = strings.TrimPrefix(f.ID, towerMark)
		if c, _ := Find(f.ID); c.Kind == Numeric {
			return nil, fmt.Errorf("%s: rounding is no fault; it is a class of numerics", f.ID)
		}
		if !known(f.ID) {
			return nil, fmt.Errorf("%q: no such fault: \"karat lab causes\" lists them", f.ID)
		}
		if strings.HasSuffix(s, "@") {
			return nil, fmt.Errorf("%s: no layers after @", f.ID)
		}
		if _, err := f.layers(1 << 20); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ID, err)
		}
		faults = append(faults, f)
	}
	if len(faults) == 0 {
		return nil, errors.New("no fault is given")
	}
	return faults, nil
}

// known reports whether a fault has the ID.
func known(id string) bool { return entryOf(id) != nil || isInput(id) || isProbe(id) || isLook(id) }

// Split separates the faults of the engine's graphs from faults of the input, of the probe and of preparing pictures.
func Split(faults []Fault) (engine, input, probe, looks []Fault) {
	for _, f := range faults {
		switch {
		case !f.Tower && isInput(f.ID):
			input = append(input, f)
		case isProbe(f.ID):
			probe = append(probe, f)
		case f.Tower || isLook(f.ID):
			looks = append(looks, f)
		default:
			engine = append(engine, f)
		}
	}
	return engine, input, probe, looks
}

// outside stands for the nodes before and after the layers.
const outside = -1

// words are the sets of layers with a name. Each keeps a layer or not.
var words = map[string]func(l *layer) bool{
	"":        func(l *layer) bool { return l.index != outside },
	"all":     func(l *layer) bool { return l.index != outside },
	"full":    func(l *layer) bool { return l.attention() != nil && window(l.attention()) == 0 },
	"sliding": func(l *layer) bool { return l.attention() != nil && window(l.attention()) > 0 },
	"shared":  func(l *layer) bool { return l.attention() != nil && l.first(graph.StoreKV) == nil },
	"moe":     func(l *layer) bool { return l.first(graph.Route) != nil },
	"outside": func(l *layer) bool { return l.index == outside },
}

// layers resolves a list of numbers and ranges below count; nil for a word.
func (f Fault) layers(count int) ([]int, error) {
	if words[f.Layers] != nil {
		return nil, nil
	}
	var list []int
	for part := range strings.SplitSeq(f.Layers, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil {
			return nil, fmt.Errorf("layers %q: want numbers and ranges as in 0,2-3, or all, full, sliding, shared, "+
				"moe or outside", f.Layers)
		}
		if a < 0 || b < a || b >= count {
			return nil, fmt.Errorf("layers %q: there are 0 to %d", f.Layers, count-1)
		}
		if b-a > 1<<16 {
			return nil, fmt.Errorf("layers %q: too many", f.Layers)
		}
		for i := a; i <= b; i++ {
			list = append(list, i)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
