package engine

import (
	"crypto/sha256"
	"math"
	"sync"
)

// keyring gives each run of rows keys of its own. An equal run gets the same keys as long as its digest is held. No key
// is given twice, so a key never finds the rows of another run.
type keyring struct {
	mu   sync.Mutex
	runs map[[sha256.Size]byte]int32 // first keys, by the run's digest
	used int32                       // keys given
}

// mostRuns is the maximum number of digests held. A forgotten run gets new keys.
const mostRuns = 1 << 12

// keys returns the key of a run's first row, before the keys of the next; 0 if no keys are left.
func (r *keyring) keys(run [sha256.Size]byte, rows int) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.runs[run]; first < 0 {
		return first
	}
	if rows > math.MaxInt32-int(r.used) {
		return 0
	}
	if r.runs == nil || len(r.runs) >= mostRuns {
		r.runs = map[[sha256.Size]byte]int32{}
	}
	first := math.MinInt32 + r.used
	r.runs[run], r.used = first, r.used+int32(rows)
	return first
}
