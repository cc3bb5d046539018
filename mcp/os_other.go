//go:build !unix

package mcp

import "os/exec"

func own(*exec.Cmd) {}

// end kills a program.
func end(c *exec.Cmd) { _ = c.Process.Kill() }
