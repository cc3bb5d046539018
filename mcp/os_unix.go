//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// own has a program begin a new group, out of reach of Ctrl-C at the terminal.
func own(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// end kills a program with all programs of the group.
func end(c *exec.Cmd) { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
