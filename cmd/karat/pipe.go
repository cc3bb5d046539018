//go:build !windows

package main

import (
	"errors"
	"syscall"
)

// brokenPipe reports whether err is of a write that nobody reads any more, such as
// in karat run | head. Go ends a program that writes so to standard output
// with SIGPIPE; this is for systems that have no signals.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
