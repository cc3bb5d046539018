//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"fmt"
	"os"
)

// Try fails with errors.ErrUnsupported.
func Try(*os.File) (bool, error) {
	return false, fmt.Errorf("this system locks no files: %w", errors.ErrUnsupported)
}
