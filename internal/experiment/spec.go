package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Spec is an experiment: interventions at a grid of sites, heads and positions, for each stimulus.
type Spec struct {
	Name      string   `toml:"name"`
	Model     string   `toml:"model"`     // file, folder or name; "" is whatever the command is given
	Precision string   `toml:"precision"` // fast, f32 or f64; "" is fast
	Kind      string   `toml:"kind"`      // trace, path, ablate or mean; "" is trace
	Sites     []string `toml:"sites"`     // nodes, as in Place.Node
	Layers    string   `toml:"layers"`    // "" is all
	// "" is whole values, "each" single heads, or a Set of heads together
	Heads         string     `toml:"heads"`
	Receivers     []string   `toml:"receivers"`      // nodes at the ends of paths, in every layer with the names
	ReceiverHeads string     `toml:"receiver_heads"` // a Set of their heads; "" is whole values
	Positions     []string   `toml:"positions"`      // each, mean, or as for ParsePositions; none is each
	Metrics       []string   `toml:"metrics"`        // logit_difference, probability and kl; none is all
	Templates     []string   `toml:"templates"`      // with {} for a stimulus' words; none is the words alone
	Stimuli       []Stimulus `toml:"stimuli"`

	hash string
}

// Stimulus is a pair of prompts. In a trace, values of the clean prompt are written into the run of the
// corrupted prompt, and along a path the values reach the receivers alone; the other kinds have no corrupted
// prompt.
type Stimulus struct {
	Clean     string `toml:"clean"`
	Corrupted string `toml:"corrupted"`
	Target    string `toml:"target"` // right token after the clean prompt: an id, or its text
	Foil      string `toml:"foil"`   // token after the corrupted prompt; "" leaves logit_difference the target's logit
}

// Values of the keys with few.
var (
	kinds       = []string{"trace", "path", "ablate", "mean"}
	precisions  = []string{"fast", "f32", "f64"}
	metricNames = func() (names []string) {
		for _, m := range metrics {
			names = append(names, m.name)
		}
		return names
	}()
)

// MaxSpec is the size of the largest file, in bytes, and maxCells the largest grid.
const (
	MaxSpec  = 4 << 20
	maxCells = 1 << 22
)

// ParseSpec reads a TOML file's text.
func ParseSpec(text string) (*Spec, error) {
	if len(text) > MaxSpec {
		return nil, fmt.Errorf("more than %d bytes", MaxSpec)
	}
	s := &Spec{}
	m, err := toml.Decode(text, s)
	if err != nil {
		return nil, err
	}
	if unknown := m.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown key %s", unknown[0])
	}
	s.hash = hashOf([]byte(text))
	s.Kind, s.Precision = cmp.Or(s.Kind, kinds[0]), cmp.Or(s.Precision, precisions[0])
	for _, x := range []struct {
		to   *[]string
		with []string
	}{{&s.Positions, []string{"each"}}, {&s.Metrics, metricNames}, {&s.Templates, []string{"{}"}}} {
		if len(*x.to) == 0 {
			*x.to = x.with
		}
	}
	return s, s.check()
}

func (s *Spec) check() error {
	for _, x := range []struct {
		key   string
		said  []string
		known []string
	}{{"kind", []string{s.Kind}, kinds}, {"metrics", s.Metrics, metricNames},
		{"precision", []string{s.Precision}, precisions}} {
		for _, v := range x.said {
			if !slices.Contains(x.known, v) {
				return fmt.Errorf("%s: %q, want %s", x.key, v, strings.Join(x.known, ", "))
			}
		}
	}
	switch {
	case len(s.Sites) == 0:
		return fmt.Errorf("sites: none, want names of nodes such as \"blk.*.out\"")
	case len(s.Stimuli) == 0:
		return fmt.Errorf("stimuli: none")
	case len(s.Sites)*len(s.Positions)*len(s.Stimuli)*len(s.Templates) > maxCells:
		return fmt.Errorf("more than %d cells", maxCells)
	}
	if _, err := ParseSet(s.Layers); err != nil {
		return fmt.Errorf("layers: %w", err)
	}
	if s.Heads != "each" {
		if _, err := ParseSet(s.Heads); err != nil {
			return fmt.Errorf("heads: %w, or each", err)
		}
	}
	if _, err := ParseSet(s.ReceiverHeads); err != nil {
		return fmt.Errorf("receiver_heads: %w", err)
	}
	if path := s.Kind == "path"; path != (len(s.Receivers) > 0) || !path && s.ReceiverHeads != "" {
		return fmt.Errorf("receivers: a path needs nodes at which it ends, and other kinds have none")
	}
	for _, p := range s.Positions {
		if _, err := ParsePositions(p); err != nil && p != "each" && p != "mean" {
			return err
		}
	}
	for _, t := range s.Templates {
		if strings.Count(t, "{}") != 1 {
			return fmt.Errorf("templates: %q: want {} once", t)
		}
	}
	for i, x := range s.Stimuli {
		switch {
		case x.Clean == "":
			return fmt.Errorf("stimuli %d: no clean", i)
		case s.writes() && x.Corrupted == "":
			return fmt.Errorf("stimuli %d: no corrupted, which a %s writes into", i, s.Kind)
		case !s.writes() && x.Corrupted != "":
			return fmt.Errorf("stimuli %d: corrupted is for a trace or a path", i)
		case x.Target == "":
			return fmt.Errorf("stimuli %d: no target", i)
		}
	}
	return nil
}

// writes reports whether values of a clean run are written into a corrupted one.
func (s *Spec) writes() bool { return s.Kind == "trace" || s.Kind == "path" }

// Hash returns the SHA-256 of the spec's text.
func (s *Spec) Hash() string { return s.hash }
