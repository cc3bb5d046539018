package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/karat-run/karat/internal/dev/golden"
)

// console is a terminal that programs run at.
type console struct {
	*os.File
	tty  *os.File
	seen string // and not waited for yet
}

func openConsole(t *testing.T) *console {
	t.Helper()
	p, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		golden.Lacking(t, err) // pseudo-terminals
	}
	t.Cleanup(func() { p.Close() })
	n, err := unix.IoctlGetInt(int(p.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(p.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return &console{File: p, tty: tty}
}

// wait reads until text was printed; the test ends where the programs do before.
func (c *console) wait(t *testing.T, text string) {
	t.Helper()
	for {
		if _, after, ok := strings.Cut(c.seen, text); ok {
			c.seen = after
			return
		}
		var b [256]byte
		n, err := c.Read(b[:])
		if c.seen += string(b[:n]); err != nil {
			t.Fatalf("%v before %q, after %q", err, text, c.seen)
		}
	}
}

func (c *console) send(t *testing.T, keys string) {
	t.Helper()
	if _, err := c.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// cooked reports whether the terminal hands over lines, and not keys.
func (c *console) cooked(t *testing.T) bool {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(c.tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return s.Lflag&unix.ICANON != 0 && s.Lflag&unix.ECHO != 0
}

// TestSuspend: Ctrl-Z in a chat's line stops the program and gives the terminal back to the shell; when
// the shell continues it, the line is there as it was.
func TestSuspend(t *testing.T) {
	program, err := exec.LookPath("karat")
	if err != nil {
		t.Fatal(err)
	}
	c := openConsole(t)
	sh := exec.Command("sh", "-c", `set -m; "$0" run; echo "stopped $?"; read x; fg >/dev/null; echo "ended $?, $x"`, program)
	sh.Stdin, sh.Stdout, sh.Stderr = c.tty, c.tty, c.tty
	sh.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := sh.Start(); err != nil {
		golden.Lacking(t, err) // a shell
	}
	defer func() {
		_ = sh.Process.Kill() // and with it the terminal's other programs, by SIGHUP
		_ = sh.Wait()
	}()
	c.wait(t, ">>> ")
	c.send(t, "/hel\x1a")
	c.wait(t, "stopped 148")
	if !c.cooked(t) {
		t.Error("the shell has a terminal that sends keys")
	}
	c.send(t, "typed\n")
	c.wait(t, ">>> /hel")
	c.send(t, "p\r")
	c.wait(t, "leave (or press Ctrl-D)") // which /help says
	c.wait(t, ">>> ")
	c.send(t, "/bye\r")
	c.wait(t, "ended 0, typed")
}
