//go:build unix

package bench

import (
	"os"
	"os/exec"
	"syscall"
)

// group lets c begin a group of processes, with all descendants: llama-bench may be a script around the program.
func group(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// interrupt sends Ctrl-C to p's group.
func interrupt(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGINT) }

// kill ends the remaining processes of p's group, if any.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
