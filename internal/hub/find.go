package hub

import (
	"os"

	"github.com/karat-run/karat/internal/hub/local"
)

// Find finds as local.Find does, with an error for a reference that is a wrong one.
func Find(name string) (local.Found, error) {
	if _, err := os.Stat(name); err != nil && IsReference(name) {
		r, err := ParseReference(name)
		if err != nil {
			return local.Found{}, err
		}
		return local.Find(r.String())
	}
	return local.Find(name)
}
