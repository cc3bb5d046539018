package sysinfo

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cores returns the number of physical cores open to the process; 0 if unknown.
func cores() int {
	const most = 8192 // the maximum of Linux's builds
	set := unix.NewCPUSet(most)
	if err := unix.SchedGetaffinityDynamic(0, set); err != nil {
		return 0
	}
	var processors []int
	for i := range most {
		if set.IsSet(i) {
			processors = append(processors, i)
		}
	}
	return siblings("/sys/devices/system/cpu", processors)
}

// siblings counts the cores of processors, given their numbers. dir has a folder for each. A processor without a
// readable folder counts as a core of its own.
func siblings(dir string, processors []int) int {
	seen := map[int]bool{}
	for _, p := range processors {
		b, _ := os.ReadFile(filepath.Join(dir, "cpu"+strconv.Itoa(p), "topology", "thread_siblings_list"))
		list := strings.TrimSpace(string(b)) // "0,64" or "0-1": the first names the core
		if i := strings.IndexAny(list, ",-"); i >= 0 {
			list = list[:i]
		}
		core, err := strconv.Atoi(list)
		if err != nil || core < 0 || core > p {
			core = p
		}
		seen[core] = true
	}
	return len(seen)
}
