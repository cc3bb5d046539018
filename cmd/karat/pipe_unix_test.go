//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"testing"
)

// TestReaderGone: a command ends without a word where its own reader has gone, and nowhere else.
func TestReaderGone(t *testing.T) {
	for want, errs := range map[bool][]error{true: {&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}},
		false: {&fs.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, &net.OpError{Op: "write", Err: syscall.EPIPE},
			&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.ENOSPC}}} {
		for _, err := range errs {
			if isReaderGone(fmt.Errorf("in: %w", err)) != want {
				t.Errorf("%v: want %v", err, want)
			}
		}
	}
}
