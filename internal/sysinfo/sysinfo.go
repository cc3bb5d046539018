// Package sysinfo reports the processors, memory and disk open to the process.
//
// Files in reading order: threads.go (threads), sysinfo.go (memory and control groups), disk.go (disk), then per system
// cores_linux.go, cores_darwin.go, cores_windows.go and cores_other.go, memory_linux.go and its like, disk_unix.go and
// its like.
package sysinfo

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Memory returns the bytes left to the process without swapping, as far as the system and its control groups report; 0
// if unknown.
func Memory() int64 {
	free := available()
	if runtime.GOOS != "linux" {
		return free
	}
	for _, dir := range controlGroups("/", "memory") {
		if n, ok := unused(dir); ok && (free == 0 || n < free) {
			free = n
		}
	}
	return free
}

// unused returns the bytes left in the control group in dir. Pages of files count as free, since the system drops them
// when memory is short: a model read a moment ago must not stand in its own way.
func unused(dir string) (int64, bool) {
	limit, ok := readNumber(filepath.Join(dir, "memory.max"))
	used, _ := readNumber(filepath.Join(dir, "memory.current"))
	prefix := ""
	if !ok { // version 1
		limit, ok = readNumber(filepath.Join(dir, "memory.limit_in_bytes"))
		used, _ = readNumber(filepath.Join(dir, "memory.usage_in_bytes"))
		prefix = "total_"
	}
	return max(limit-max(used-fileCache(dir, prefix), 0), 1), ok
}

// fileCache returns the memory holding pages of files.
func fileCache(dir, prefix string) (n int64) {
	b, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == prefix+"inactive_file" || key == prefix+"active_file" {
			v, _ := strconv.ParseInt(value, 10, 64)
			n += v
		}
	}
	return n
}

// controlGroups lists the folders of the process's control group and the folders above, as possible limits of
// controller. root has /proc and /sys.
func controlGroups(root, controller string) []string {
	b, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(b)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		mount := filepath.Join(root, "sys/fs/cgroup")
		if slices.Contains(strings.Split(part[1], ","), controller) {
			mount = filepath.Join(mount, controller)
		} else if part[1] != "" {
			continue
		}
		for group := path.Clean("/" + part[2]); ; group = path.Dir(group) {
			dirs = append(dirs, filepath.Join(mount, group))
			if group == "/" {
				break
			}
		}
	}
	return dirs
}

func readNumber(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// Fits returns an error, to follow the model's name, if a model's weights, and keys and values for context tokens, in
// bytes, are more than the free memory.
func Fits(weights, cache int64, context int) error { return FitsIn(weights, cache, context, 0) }

// FitsIn returns the error of Fits for a model limited to most bytes; 0 stands for the free memory.
func FitsIn(weights, cache int64, context int, most int64) error {
	text := func(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30)) }
	free := Memory()
	if most > 0 && (free == 0 || most < free) {
		free = most
	}
	if need := weights + cache; free > 0 && need > free {
		return fmt.Errorf("needs %s (weights %s, keys and values of %d tokens %s), but only %s of memory is free",
			text(need), text(weights), context, text(cache), text(free))
	}
	return nil
}
