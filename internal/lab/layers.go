package lab

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/mmap"
)

// LayerDistance measures a value against the golden value, over the last positions common to both in all prompts.
type LayerDistance struct {
	Name   string  `json:"name"`
	Rows   int     `json:"rows"`
	Cosine Number  `json:"cosine"`      // of the worst row
	L2     Number  `json:"relative_l2"` // of all rows
	Golden Number  `json:"golden_norm"` // mean L2 norm of a row
	Record Number  `json:"record_norm"`
	Floor  *Number `json:"floor_l2,omitempty"` // L2 of the floor's record from the golden one
}

// Layers compares hidden states, or where a record has none its taps, in the order of layers. floor is a record of the
// golden engine in less precision, which shows what rounding alone does, or nil.
func Layers(golden, record, floor *Record) (all []LayerDistance, err error) {
	err = mmap.Guard(func() error {
		names, err := commonNames(golden, record)
		if err != nil {
			return err
		}
		for _, name := range names {
			d, ok := layerDistance(name, golden, record)
			if !ok {
				continue
			}
			if floor != nil {
				if f, ok := layerDistance(name, golden, floor); ok {
					d.Floor = &f.L2
				}
			}
			all = append(all, d)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("layers: %s and %s have no value of one shape in common", golden.Path, record.Path)
	}
	return all, err
}

// commonNames returns the names of the hidden states that both records have, or of the taps, by layer.
func commonNames(golden, record *Record) (names []string, err error) {
	seen := map[string]bool{}
	prompts := 0
	for _, g := range golden.Prompts {
		r := record.Prompt(g.Index)
		if r == nil {
			continue
		}
		if prompts++; compareIDs(g, r) == IDsDifferent {
			return nil, fmt.Errorf("layers: the ids of prompt %d differ: its values cannot be compared", g.Index)
		}
		b := r.rows()
		for name := range g.rows() {
			if _, ok := b[name]; ok {
				seen[name] = true
			}
		}
	}
	hidden := false
	for name := range seen {
		hidden = hidden || strings.HasPrefix(name, "hidden.")
	}
	for name := range seen {
		if !hidden || strings.HasPrefix(name, "hidden.") {
			names = append(names, name)
		}
	}
	if prompts == 0 || len(names) == 0 {
		return nil, fmt.Errorf("layers: %s and %s have no hidden states and no taps in common", golden.Path,
			record.Path)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(layerIn(a), layerIn(b)), cmp.Compare(a, b))
	})
	return names, nil
}

var numberIn = regexp.MustCompile(`\.(\d+)(\.|$)`)

// layerIn returns the layer in a name: -1 for the embedding, and a number behind all layers for the values that
// follow them.
func layerIn(name string) int {
	if m := numberIn.FindStringSubmatch(name); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	if strings.Contains(name, "embed") || strings.Contains(name, "inp") {
		return -1
	}
	return math.MaxInt
}

func layerDistance(name string, golden, record *Record) (LayerDistance, bool) {
	d := LayerDistance{Name: name, Cosine: 1}
	var whole squares
	var norms [2]float64
	for _, p := range golden.Prompts {
		q := record.Prompt(p.Index)
		if q == nil {
			continue
		}
		g, ok := p.rows()[name]
		r, ok2 := q.rows()[name]
		if !ok || !ok2 || g.width != r.width {
			continue
		}
		eachRow(g, r, func(_ int, x, y []float64) {
			addSquares(&whole, x, y)
			if c := Number(Cosine(x, y)); c < d.Cosine || c != c {
				d.Cosine = c
			}
			norms[0] += norm(x)
			norms[1] += norm(y)
			d.Rows++
		})
	}
	d.L2 = Number(whole.relative())
	d.Golden, d.Record = Number(norms[0]/float64(d.Rows)), Number(norms[1]/float64(d.Rows))
	return d, d.Rows > 0
}

func norm(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v * v)
	}
	return math.Sqrt(sum)
}

// WriteLayers writes a table.
func WriteLayers(w io.Writer, all []LayerDistance) error {
	t := table(w, "value", "rows", "cosine", "relative L2", "floor", "of floor", "golden norm", "record norm", "ratio")
	for _, d := range all {
		floor, times := "-", "-"
		if d.Floor != nil {
			if floor = small(*d.Floor); *d.Floor > 0 {
				times = Digits(float64(d.L2 / *d.Floor))
			}
		}
		row(t, Printable(d.Name), fmt.Sprint(d.Rows), fmt.Sprintf("%.7f", float64(d.Cosine)), small(d.L2), floor, times,
			fmt.Sprintf("%.4g", float64(d.Golden)), fmt.Sprintf("%.4g", float64(d.Record)),
			fmt.Sprintf("%.4f", float64(d.Record/d.Golden)))
	}
	return t.Flush()
}

// Era holds a record in the succession of a port's records.
type Era struct {
	Record string `json:"record"`
	Inside *bool  `json:"inside,omitempty"` // nil if the golden record has no limits
	Distance
}

// WriteHistory writes a table of eras.
func WriteHistory(w io.Writer, all []Era) error {
	t := table(w, "record", "KL", "max|Δ|", "cosine", "top-1", "top-10")
	for _, e := range all {
		row(t, Printable(e.Record), small(e.KLMean), small(e.MaxAbsDiff), fmt.Sprintf("%.7f", float64(e.CosineMin)),
			share(e.Top1), share(e.Top10))
	}
	return t.Flush()
}

// HistorySVG draws the KL divergence of successive records, on a logarithmic scale, as a picture by itself.
func HistorySVG(w io.Writer, all []Era) error {
	const left, top, high, step = 60, 20, 240, 90
	low, most := math.Inf(1), math.Inf(-1)
	for _, e := range all {
		if k := float64(e.KLMean); k > 0 && !math.IsInf(k, 0) {
			low, most = min(low, math.Floor(math.Log10(k))), max(most, math.Ceil(math.Log10(k)))
		}
	}
	if math.IsInf(low, 0) {
		low, most = -1, 0
	}
	if most <= low {
		most = low + 1
	}
	at := func(k float64) float64 {
		share := (math.Log10(k) - low) / (most - low)
		return top + high*(1-min(1, max(0, share)))
	}
	wide := left + step*len(all)
	b := &strings.Builder{}
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" `+
		`font-family="system-ui,sans-serif" font-size="11">`+"\n", wide+20, top+high+60, wide+20)
	fmt.Fprintf(b, "<title>KL divergence from the golden record, in nats</title>"+
		`<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for e := low; e <= most; e++ {
		y := at(math.Pow(10, e))
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">1e%d</text>`+"\n",
			left, y, wide, left-6, y+4, int(e))
	}
	line := ""
	for i, e := range all {
		x, k := left+step*i+step/2, float64(e.KLMean)
		name := []rune(Printable(strings.TrimSuffix(e.Record, ".safetensors")))
		if len(name) > 14 {
			name = append([]rune("…"), name[len(name)-13:]...)
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", x, top+high+20,
			html.EscapeString(string(name)))
		if math.IsNaN(k) {
			fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">NaN</text>`+"\n", x, top+12)
			continue
		}
		command := "L"
		if line == "" {
			command = "M"
		}
		line += fmt.Sprintf("%s%d %.1f", command, x, at(k))
		fmt.Fprintf(b, `<circle cx="%d" cy="%.1f" r="4" fill="#1f5fa8"><title>%s nats</title></circle>`+"\n", x, at(k),
			Digits(k))
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="#1f5fa8" stroke-width="2"/>`+"\n", line)
	fmt.Fprintf(b, `<text x="%d" y="%d">KL divergence from the golden record, in nats</text>`+"\n</svg>\n", left,
		top+high+44)
	_, err := io.WriteString(w, b.String())
	return err
}
