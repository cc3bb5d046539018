package sysinfo

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Threads returns the number of threads computing at full speed: the physical cores open to the process, bounded by its
// control groups' share of time and by GOMAXPROCS; at least 1. A second thread on a core would share its arithmetic
// units with the first.
func Threads() int {
	n := runtime.GOMAXPROCS(0)
	if c := cores(); c > 0 {
		n = min(n, c)
	}
	if runtime.GOOS == "linux" {
		for _, dir := range controlGroups("/", "cpu") {
			if q, ok := quota(dir); ok {
				n = min(n, q)
			}
		}
	}
	return max(n, 1)
}

// quota returns how many processors' time the control group in dir may use, rounded up.
func quota(dir string) (int, bool) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
	if err != nil { // version 1
		time, _ := readNumber(filepath.Join(dir, "cpu.cfs_quota_us"))
		period, _ := readNumber(filepath.Join(dir, "cpu.cfs_period_us"))
		return share(time, period)
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	time, _ := strconv.ParseInt(first, 10, 64) // "max" is no number
	period, _ := strconv.ParseInt(second, 10, 64)
	return share(time, period)
}

// share returns time/period rounded up; the time of a group without a limit is not positive.
func share(time, period int64) (int, bool) {
	if time <= 0 || period <= 0 {
		return 0, false
	}
	return int(min((time-1)/period+1, 1<<30)), true
}
