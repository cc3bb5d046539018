//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package hub

import (
	"errors"
	"fmt"
	"os"
)

// lockFile is not to be had here: nothing can be pulled or removed, but what is there is found.
func lockFile(*os.File) (bool, error) {
	return false, fmt.Errorf("hub: this system locks no files: %w", errors.ErrUnsupported)
}
