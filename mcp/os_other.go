//go:build !unix

package mcp

import "os/exec"

func own(*exec.Cmd) {}

// end ends a program.
func end(c *exec.Cmd) { _ = c.Process.Kill() }
