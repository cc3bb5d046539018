//go:build !unix

package bench

import (
	"os"
	"os/exec"
)

// group does nothing: these systems have no groups of processes.
func group(*exec.Cmd) {}

// interrupt ends p: these systems send no Ctrl-C to a single process.
func interrupt(p *os.Process) error { return p.Kill() }

// kill has nothing to do: p has ended.
func kill(*os.Process) {}
