package bench

import (
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
