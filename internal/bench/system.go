package bench

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// resident is the process's memory, now and at most, as Linux tells it in
// /proc/self/status, without what was there all the time for other ends; 0 elsewhere.
func resident(without int64) (now, peak int64) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64) // 0 where it is no number
		switch f[0] {
		case "VmRSS:":
			now = n<<10 - without
		case "VmHWM:":
			peak = n<<10 - without
		}
	}
	return now, peak
}

// others is the processor time in seconds that programs have taken but this one
// and those that it ran, as Linux tells it; 0 elsewhere.
func others() (seconds float64) {
	const tick = 0.01 // of /proc, whatever the kernel's is
	system, err := os.ReadFile("/proc/stat")
	process, err2 := os.ReadFile("/proc/self/stat")
	if err != nil || err2 != nil {
		return 0
	}
	line, _, _ := bytes.Cut(system, []byte("\n"))
	for i, f := range strings.Fields(string(line)) { // cpu user nice system idle iowait irq softirq steal guest guest_nice
		if n, err := strconv.ParseFloat(f, 64); err == nil && i != 4 && i != 5 && i < 9 {
			seconds += n * tick
		}
	}
	f := strings.Fields(string(process[bytes.LastIndexByte(process, ')')+1:])) // what follows the name may be trusted
	if len(f) > 14 {
		for _, n := range f[11:15] { // utime, stime, and those of children
			x, _ := strconv.ParseFloat(n, 64)
			seconds -= x * tick
		}
	}
	return seconds
}
