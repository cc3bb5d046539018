package receipt

import "crypto/sha256"

// Root returns the root of a Merkle tree over leaves: the hash of a byte 1 and of two nodes is the node above them, and
// a node without a partner goes up as it is. Leaves are hashes of a byte 0 and of a tensor (Leaf), in order of the
// tensors' names. So a tensor can be shown to belong to a root by the hashes beside its way up. (RFC 6962, section 2.1,
// with the last nodes of uneven rows carried up)
func Root(leaves []Hash) Hash {
	if len(leaves) == 0 {
		return sha256.Sum256(nil)
	}
	row := append([]Hash(nil), leaves...)
	for len(row) > 1 {
		above := row[:0]
		for i := 0; i < len(row); i += 2 {
			if i+1 == len(row) {
				above = append(above, row[i])
				break
			}
			both := append(append([]byte{1}, row[i][:]...), row[i+1][:]...)
			above = append(above, sha256.Sum256(both))
		}
		row = above
	}
	return row[0]
}

// Leaf returns the leaf of a tensor's hash.
func Leaf(tensor []byte) Hash { return sha256.Sum256(append([]byte{0}, tensor...)) }
