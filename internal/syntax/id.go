package syntax

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// IDs says which ids of calls a chat template takes.
type IDs string

// The kinds of ids.
const (
	AnyIDs     IDs = ""
	NineIDs    IDs = "nine"    // nine letters and digits
	IndexedIDs IDs = "indexed" // functions.NAME:INDEX, the index among the calls of a message
)

// Fit returns the id that a template takes for the call of a tool that is the n-th of its message. The same id gives
// the same.
func (k IDs) Fit(id, name string, n int) string {
	switch {
	case k == IndexedIDs:
		return fmt.Sprintf("functions.%s:%d", name, n)
	case k == NineIDs && (len(id) != 9 || strings.ContainsFunc(id, func(r rune) bool {
		return r > 'z' || r == '_' || !isWord(byte(r))
	})):
		const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
		fit := sha256.Sum256([]byte(id))
		for i := range fit {
			fit[i] = digits[int(fit[i])%len(digits)]
		}
		return string(fit[:9])
	}
	return id
}
