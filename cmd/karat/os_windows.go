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

// brokenPipe reports whether err comes from a write that nobody reads any more, as in "karat run | more".
func brokenPipe(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
