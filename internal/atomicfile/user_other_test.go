//go:build !linux

package atomicfile

import "testing"

func unprivileged(*testing.T) {}
