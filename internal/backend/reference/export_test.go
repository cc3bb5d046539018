package reference

import "github.com/karat-run/karat/internal/backend"

// Stored returns all that a cache holds of keys and values.
func Stored(c backend.Cache) (all []float64) {
	for _, s := range c.(*cache).stores {
		all = append(append(all, s.k...), s.v...)
	}
	return all
}
