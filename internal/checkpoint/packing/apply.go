package packing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/tensor"
)

// maxErrors bounds the report on a folder all of whose weights fail.
const maxErrors = 3

// Unpacked holds a folder's tensors, with a single tensor in place of each packed weight's parts. Scales of
// activations, which are computed in floating point here, are set aside.
type Unpacked struct {
	Tensors []tensor.Tensor
	Name    string // of the packing; "" where no weight is packed
	Aside   int    // number of scales set aside
	Scales  []Scales
}

// Scales are the scales of a weight, in sound folders greater than 0, or where Signed is set other than 0.
type Scales struct {
	tensor.Tensor
	Signed bool
}

// Apply makes the weights of a folder's tensors. File returns the name of the file with a tensor, for errors; turned
// reports whether a tensor of matrices outside modules has these as [in, out].
func (p *Packing) Apply(all []tensor.Tensor, file func(name string) string, turned func(name string) bool) (
	u Unpacked, err error) {
	if p, ok := p.method.(*plain); ok {
		return p.apply(all, file)
	}
	modules, split := map[string]*module{}, splitter(all)
	for _, t := range all {
		if name, ending := split(t.Name); ending != "" {
			if modules[name] == nil {
				modules[name] = &module{name: name, parts: map[string]tensor.Tensor{}, read: map[string]bool{}}
			}
			m := modules[name]
			m.parts[ending] = t
			if t.Name == name {
				m.bare, m.turned = true, turned(name)
			}
		}
	}
	var errs []error
	for _, t := range all {
		name, ending := split(t.Name)
		m := modules[name]
		if ending == "" || kinds[ending] == codesPart && m.plain() {
			u.Tensors = append(u.Tensors, t)
		} else if kinds[ending] == codesPart {
			w, err := p.weight(m)
			if err != nil {
				errs, m.failed = append(errs, fmt.Errorf("%s: tensor %s: %w", file(t.Name), name, err)), true
			}
			u.Tensors, u.Scales, u.Name = append(u.Tensors, w), append(u.Scales, m.scales...), p.Name()
		} else if k := kinds[ending]; k == ofCache || k == ofActivations && m.packed() {
			u.Aside++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		for _, ending := range m.unread() {
			of := m.parts[ending].Name
			errs = append(errs, fmt.Errorf("%s: tensor %s: no weight claims it%s", file(of), of, m.owner()))
		}
	}
	return u, joinErrors(errs)
}

// joinErrors returns the first errors, in a line, and the number of the others.
func joinErrors(errs []error) error {
	var texts []string
	for i, err := range errs {
		if i == maxErrors {
			texts = append(texts, fmt.Sprintf("and %d errors more", len(errs)-i))
			break
		}
		texts = append(texts, err.Error())
	}
	if texts == nil {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}
