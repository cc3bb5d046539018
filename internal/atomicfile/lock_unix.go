//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package atomicfile

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// hold locks the file or folder at path until the result is closed, or the program ends in any way.
// It is nil if another holds the lock, which is busy then, or if there are no locks there.
func hold(path string) (lock io.Closer, busy bool) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.Is(err, syscall.EWOULDBLOCK)
	}
	return f, false
}
