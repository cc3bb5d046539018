package backend

import "fmt"

// Pooled lists, for each output of s, the first of the rows that a Pool makes one of;
// the output's own is the last. It is an error if a sequence does not begin and end in
// s: an encoder's prompt must be in one step.
func (s *Step) Pooled() ([]int32, error) {
	first := make([]int32, len(s.Outputs))
	for i, r := range s.Outputs {
		if int(r)+1 < len(s.Seqs) && s.Seqs[r+1] == s.Seqs[r] {
			return nil, fmt.Errorf("row %d is wanted, and is not the last of its sequence: rows are pooled when all of them are there", r)
		}
		f := r
		for f > 0 && s.Seqs[f-1] == s.Seqs[r] {
			f--
		}
		if s.Pos[f] != 0 {
			return nil, fmt.Errorf("rows from position %d on: a prompt whose rows are pooled must be in one step", s.Pos[f])
		}
		first[i] = f
	}
	return first, nil
}
