package engine

import (
	"crypto/sha256"
	"math"
	"testing"
)

// TestKeyring gives no key twice, also when digests are forgotten, and none when all are given.
func TestKeyring(t *testing.T) {
	var r keyring
	first, used := sha256.Sum256([]byte("first")), map[int32]bool{}
	give := func(run [sha256.Size]byte, rows int) int32 {
		k := r.keys(run, rows)
		for i := range int32(rows) {
			if k >= 0 || used[k+i] {
				t.Fatalf("key %d of %d rows, negative and new is wanted", k+i, rows)
			}
			used[k+i] = true
		}
		return k
	}
	k := give(first, 3)
	if again := r.keys(first, 3); again != k {
		t.Errorf("an equal run has keys from %d on, not from %d", again, k)
	}
	for i := range mostRuns {
		give(sha256.Sum256([]byte{byte(i), byte(i >> 8)}), 1+i%2)
	}
	give(first, 3)
	r.used = math.MaxInt32 - 3
	if k := r.keys(sha256.Sum256(nil), 4); k != 0 {
		t.Errorf("key %d where none is left", k)
	}
	m := Mixed{Embeddings: [][]float32{{1}, {2}, {3}, {4}}}
	if b := newExtras(m, &r); b.name == "" || b.keys != nil {
		t.Error("rows without keys share pages with others")
	}
}
