package parity

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text writes the scores as tables.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.summary())
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "\n%s\n", t.title)
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(tw, "\t%s\n", strings.Join(t.columns, "\t"))
		for _, row := range t.rows {
			fmt.Fprintf(tw, "%s\t%s\n", row.name, strings.Join(row.texts(), "\t"))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// JSON writes everything.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(r)
}

func (r *Report) summary() string {
	s := fmt.Sprintf("ParityBench: %d engines of %d planned, seed %d", len(r.Results), r.Cases-r.Unmade, r.Seed)
	if r.Every > 1 {
		s += fmt.Sprintf(", one case in %d", r.Every)
	}
	if r.Most > 0 {
		s += fmt.Sprintf(", at most %d of a kind and model", r.Most)
	}
	if r.Numerics != "" {
		s += ", engines with " + r.Numerics
	}
	return s + fmt.Sprintf(", %.0f s", r.Seconds)
}

// table is one for people: conditions or models in columns, scores in rows.
type table struct {
	title   string
	columns []string
	rows    []row
}

type row struct {
	name  string
	less  bool // is better
	cells []cell
}

// cell is a count or, where it has none, a text.
type cell struct {
	count Count
	text  string
}

func (c cell) String() string {
	switch {
	case c.text != "":
		return c.text
	case c.count.Of == 0:
		return "-"
	}
	return fmt.Sprintf("%v %.4g%%", c.count, c.count.Share())
}

func (r row) texts() (all []string) {
	for _, c := range r.cells {
		all = append(all, c.String())
	}
	return all
}

// tables are that of all conditions and, of several models, one for each condition.
func (r *Report) tables() []table {
	var names []string
	var sums []*Sum
	for _, c := range Conditions {
		if s := r.Total[c]; s != nil {
			names, sums = append(names, string(c)), append(sums, s)
		}
	}
	tables := []table{newTable("all models", names, sums)}
	if len(r.Models) > 1 {
		tables = append(tables, r.families())
	}
	if r.Total[Right] != nil {
		tables = append(tables, r.accused())
	}
	if len(r.Models) < 2 {
		tables[0].title = "conditions"
		return tables
	}
	for _, c := range Conditions {
		names, sums = nil, nil
		for _, m := range r.Models {
			if s := m.Total[c]; s != nil {
				names, sums = append(names, m.Model), append(sums, s)
			}
		}
		if len(names) > 0 {
			tables = append(tables, newTable(string(c), names, sums))
		}
	}
	return tables
}

func newTable(title string, columns []string, sums []*Sum) table {
	t := table{title: title, columns: columns}
	for _, k := range scores {
		r := row{name: k.Name, less: k.Less}
		any := false
		for _, s := range sums {
			c := *k.Count(&s.Scores)
			any = any || c.Of > 0
			r.cells = append(r.cells, cell{count: c})
		}
		if any {
			t.rows = append(t.rows, r)
		}
	}
	text := func(name string, of func(s *Sum) string) {
		r := row{name: name}
		for _, s := range sums {
			r.cells = append(r.cells, cell{text: of(s)})
		}
		t.rows = append(t.rows, r)
	}
	text("F1", func(s *Sum) string {
		if s.Recalled.Of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3f", s.F1())
	})
	text("engine runs", func(s *Sum) string { return fmt.Sprint(s.Runs) })
	text("seconds a diagnosis", func(s *Sum) string {
		return fmt.Sprintf("%.2g, at most %.2g", s.Seconds/float64(s.Runs), s.Slowest)
	})
	return t
}

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

// accused is the table of right engines that are accused: how they round, by the taps that they have.
func (r *Report) accused() (t table) {
	byClass := map[string][]Count{}
	for _, x := range r.Results {
		at := slices.Index(Coarseness, x.Taps)
		if x.Condition != Right || at < 0 {
			continue
		}
		engine, _, _ := strings.Cut(x.Case, " through ")
		engine = strings.TrimSuffix(engine, " declared")
		if byClass[engine] == nil {
			byClass[engine] = make([]Count, len(Coarseness))
		}
		c := &byClass[engine][at]
		c.Hit, c.Of = c.Hit+x.Scores.False.Hit, c.Of+x.Scores.False.Of
	}
	t.title = "right engines that are accused, by what of them is seen"
	for _, taps := range Coarseness {
		t.columns = append(t.columns, string(taps))
	}
	for _, engine := range slices.Sorted(maps.Keys(byClass)) {
		row := row{name: engine, less: true}
		for _, c := range byClass[engine] {
			row.cells = append(row.cells, cell{count: c})
		}
		t.rows = append(t.rows, row)
	}
	return t
}
