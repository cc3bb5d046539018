//go:build !linux && !darwin && !windows

package machine

// cores is not known here.
func cores() int { return 0 }
