//go:build unix

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// hangup is the signal of a lost terminal.
var hangup = []os.Signal{syscall.SIGHUP}

// isBrokenPipe reports whether err comes from a write without a reader, as in "karat run | head". A system with SIGPIPE
// ends the program before.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }

// suspend stops all programs of the job, as Ctrl-Z does at a terminal in its usual mode: in "karat | tee" both stop.
// suspend returns when the shell continues the job. Without a shell's watch the program does not stop: the system
// ignores the signal, and no signal to continue comes.
var suspend = func() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGCONT)
	defer signal.Stop(again)
	if syscall.Kill(0, syscall.SIGTSTP) != nil {
		return
	}
	select {
	case <-again:
	case <-time.After(time.Second):
	}
}
