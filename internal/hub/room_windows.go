package hub

import (
	"errors"
	"fmt"

	"github.com/karat-run/karat/internal/hub/local"
	"golang.org/x/sys/windows"
)

// room says what to do where a disk is full.
func room(err error) error {
	if errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) {
		return fmt.Errorf("%w: make room and pull again, it goes on where it is (%s may name a folder on another disk)", err,
			local.Variable)
	}
	return err
}
