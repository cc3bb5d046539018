package hub

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Found is a model that was named.
type Found struct {
	Path string // of its file or folder
	Name string // in the store; "" for a path
}

// Find is the model that a user names: a path that exists, else the name of a model in the default store, else a
// reference that was pulled. What looks like a path is one, whether it exists or not: who opens it knows what to say.
func Find(name string) (Found, error) {
	if _, err := os.Stat(name); err == nil || !IsReference(name) && CheckName(name) != nil {
		return Found{Path: name}, nil
	}
	dir, err := DefaultDir()
	if err != nil {
		return Found{}, fmt.Errorf("%q: %w: it is no file or folder, and no folder of pulled models is known: set HOME, or %s", name, ErrNoModel, Variable)
	}
	s, err := Open(dir)
	if err != nil {
		return Found{}, err
	}
	defer s.Close()
	return s.find(name)
}

func (s *Store) find(name string) (Found, error) {
	if IsReference(name) {
		return s.findReference(name)
	}
	m, err := s.Get(name)
	if errors.Is(err, ErrNoModel) {
		return Found{}, fmt.Errorf("%q: %w: it is no file or folder, and no name in %s%s; \"karat list\" shows the names there, and \"karat pull hf:ORG/NAME\" adds one", name, ErrNoModel, s.dir, s.unfinished(name))
	}
	if err != nil {
		return Found{}, err
	}
	p, err := s.Path(m)
	return Found{p, m.Name}, err
}

// unfinished says that a pull of that name was cut off, if it was.
func (s *Store) unfinished(name string) string {
	all, _ := s.Unfinished() // a hint only
	for _, u := range all {
		if nameKey(u.Name) == nameKey(name) {
			return fmt.Sprintf(" (its pull has not ended: \"karat pull %s\" goes on)", u.Source)
		}
	}
	return ""
}

// findReference finds the model that came from a reference.
func (s *Store) findReference(name string) (Found, error) {
	r, err := ParseReference(name)
	if err != nil {
		return Found{}, err
	}
	all, broken := s.List()
	for _, m := range all {
		if strings.EqualFold(m.Source, r.String()) {
			p, err := s.Path(m)
			return Found{p, m.Name}, err
		}
	}
	what := "it was not pulled"
	if isBare(name) {
		what = "it is no file or folder, and was not pulled"
	}
	return Found{}, errors.Join(fmt.Errorf("%s: %w: %s; \"karat pull %s\" gets it", name, ErrNoModel, what, r), broken)
}
