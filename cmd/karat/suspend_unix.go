//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// suspend stops all programs of the job, as Ctrl-Z does at a terminal in its usual mode: in
// "karat | tee" both stop. It returns when the shell continues the job. A program that no shell
// watches does not stop: the system ignores the signal, and no signal to continue comes.
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
