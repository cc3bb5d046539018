package bench

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/backend"
)

// memory reads /proc/self/status. Arguments are the bytes of b's keys and values, and for other ends.
func memory(b backend.Backend, kv, without int64) (m Memory) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return m
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64) // 0 without a number
		switch f[0] {
		case "VmRSS:":
			m.Resident = n<<10 - without
		case "VmHWM:":
			m.Peak = n<<10 - without
		case "RssFile:":
			m.Files = n << 10
		}
	}
	if p, ok := b.(interface{ Packed() int64 }); ok { // else weights, keys and values are elsewhere
		m.Weights, m.KV = p.Packed(), kv
	}
	m.Heap = m.Resident - m.Files - m.Weights - m.KV
	return m
}

// otherTime returns the processor time in seconds of all other programs, except children, as Linux reports; 0
// elsewhere.
func otherTime() (seconds float64) {
	const tick = 0.01 // of /proc, whatever the kernel's is
	system, err := os.ReadFile("/proc/stat")
	process, err2 := os.ReadFile("/proc/self/stat")
	if err != nil || err2 != nil {
		return 0
	}
	line, _, _ := bytes.Cut(system, []byte("\n"))
	// cpu user nice system idle iowait irq softirq steal guest guest_nice
	for i, f := range strings.Fields(string(line)) {
		if n, err := strconv.ParseFloat(f, 64); err == nil && i != 4 && i != 5 && i < 9 {
			seconds += n * tick
		}
	}
	// fields behind the name are safe to split
	f := strings.Fields(string(process[bytes.LastIndexByte(process, ')')+1:]))
	if len(f) > 14 {
		for _, n := range f[11:15] { // utime, stime, and both of the children
			x, _ := strconv.ParseFloat(n, 64)
			seconds -= x * tick
		}
	}
	return seconds
}
