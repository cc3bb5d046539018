package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// Digest is the SHA-256 of a file. It is the only way from what a stranger wrote to a blob's path. The zero value is
// none.
type Digest struct {
	sum [sha256.Size]byte
	ok  bool
}

const algorithm = "sha256:"

// ParseDigest reads sha256:HEX, with 64 digits in lower case as the OCI image specification has them.
func ParseDigest(s string) (d Digest, err error) {
	digits, ok := strings.CutPrefix(s, algorithm)
	if !ok || len(digits) != 2*sha256.Size || strings.ToLower(digits) != digits {
		return Digest{}, fmt.Errorf("digest %q: want sha256: and 64 hexadecimal digits in lower case", clip(s))
	}
	if _, err := hex.Decode(d.sum[:], []byte(digits)); err != nil {
		return Digest{}, fmt.Errorf("digest %q: want sha256: and 64 hexadecimal digits in lower case", clip(s))
	}
	d.ok = true
	return d, nil
}

// digestOf returns the digest of all that r has.
func digestOf(r io.Reader) (d Digest, err error) {
	h := sha256.New()
	_, err = io.Copy(h, r)
	h.Sum(d.sum[:0])
	d.ok = err == nil
	return d, err
}

// digestBytes returns the digest of b.
func digestBytes(b []byte) Digest { return Digest{sha256.Sum256(b), true} }

// IsZero reports whether there is none.
func (d Digest) IsZero() bool { return !d.ok }

// hex returns the digest's digits.
func (d Digest) hex() string { return hex.EncodeToString(d.sum[:]) }

// String returns sha256:HEX, or "" for none.
func (d Digest) String() string {
	if !d.ok {
		return ""
	}
	return algorithm + d.hex()
}

// MarshalText writes what UnmarshalText reads.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads sha256:HEX.
func (d *Digest) UnmarshalText(b []byte) (err error) {
	*d, err = ParseDigest(string(b))
	return err
}

// clip returns the beginning of a text of unknown length and origin, for an error.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
