//go:build !windows

package hub

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/karat-run/karat/internal/hub/local"
)

// room says what to do where a disk is full.
func room(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: make room and pull again, it goes on where it is (%s may name a folder on another disk)", err,
			local.Variable)
	}
	return err
}
