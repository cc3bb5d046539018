package main

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

var (
	hangup  = []os.Signal{syscall.SIGHUP}
	suspend func() // nil: no program can be stopped here
)

// isBrokenPipe reports whether err comes from a write without a reader, as in "karat run | more".
func isBrokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
