//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package atomicfile

import "io"

func hold(string) io.Closer { return nil }
