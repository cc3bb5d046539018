//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// own has a program begin a group of its own, which Ctrl-C at the terminal does not reach.
func own(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// end ends a program and what it started.
func end(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
