//go:build unix

package mcp

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestNothingIsLeft: the end of a server is also the end of what it started.
func TestNothingIsLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	all := begin(t, []Server{like(t, "good")}, Options{Allow: []string{"*"}})
	if r, err := call(t, all, "child", path); err != nil || r.Content != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(b))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatal(err)
	}
	all.Close()
	for {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil && syscall.Kill(pid, 0) != nil || strings.Contains(string(state), ") Z ") {
			return // else this never ends
		}
	}
}
