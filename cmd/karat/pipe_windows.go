package main

import (
	"errors"

	"golang.org/x/sys/windows"
)

// brokenPipe reports whether err is of a write that nobody reads any more, such as
// in karat run | more.
func brokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
