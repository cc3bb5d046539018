package tensor

import "slices"

// Set holds tensors by their names, in order.
type Set struct {
	Names  []string
	ByName map[string]Tensor
}

// Drop removes a tensor, if present.
func (s *Set) Drop(name string) {
	delete(s.ByName, name)
	if i := slices.Index(s.Names, name); i >= 0 {
		s.Names = slices.Delete(s.Names, i, i+1)
	}
}
