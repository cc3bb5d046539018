package parity

import (
	"fmt"
	"slices"
)

// families is the table with a row for each model: how its faults were placed and named, how many of its
// right engines were accused, and what a diagnosis takes.
func (r *Report) families() table {
	t := table{title: "by model: single faults and right engines", columns: []string{"faults", "operation and layers",
		"name", "misnamed", "right engines", "accused", "seconds, median", "most"}}
	for _, m := range r.Models {
		var wrong, right Scores
		if s := m.Total[Single]; s != nil {
			wrong = s.Scores
		}
		for _, c := range []Condition{Clean, Right} {
			if s := m.Total[c]; s != nil {
				right.add(&s.Scores)
			}
		}
		var seconds []float64
		for _, x := range r.Results {
			if x.Model == m.Model && (x.Condition == Single || x.Condition == Clean || x.Condition == Right) {
				seconds = append(seconds, x.seconds())
			}
		}
		if len(seconds) == 0 {
			continue
		}
		slices.Sort(seconds)
		text := func(format string, v any) cell { return cell{text: fmt.Sprintf(format, v)} }
		t.rows = append(t.rows, row{name: m.Model, cells: []cell{
			text("%d", wrong.Layers.Of), {count: wrong.Layers}, {count: wrong.Named}, {count: wrong.Misnamed},
			text("%d", right.False.Of), {count: right.False}, text("%.2g", seconds[len(seconds)/2]),
			text("%.2g", seconds[len(seconds)-1]),
		}})
	}
	return t
}

// seconds is the processor time of a case, or else how long its diagnosis took.
func (x *Result) seconds() float64 {
	if x.Processor > 0 {
		return x.Processor
	}
	return x.Scores.Seconds
}
