//go:build !linux && !darwin && !windows

package sysinfo

// available returns 0: this system does not say.
func available() int64 { return 0 }
