//go:build !js

package main

import (
	"os"
	"syscall"
)

// hangup is the signal that a terminal went away.
var hangup = []os.Signal{syscall.SIGHUP}
