//go:build !unix

package bench

import (
	"os"
	"os/exec"
)

// group does nothing: what a program starts is its own here.
func group(*exec.Cmd) {}

// interrupt ends p: there is no Ctrl-C for one process here.
func interrupt(p *os.Process) error { return p.Kill() }

// kill has nothing to do: p has ended.
func kill(*os.Process) {}
