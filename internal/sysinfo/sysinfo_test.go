package sysinfo

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestMemory(t *testing.T) {
	n := Memory()
	if runtime.GOOS == "linux" && (n < 1<<20 || n > 1<<50) {
		t.Errorf("%d bytes", n)
	}
}

// TestUnused reads control groups of both versions.
func TestUnused(t *testing.T) {
	const stat = "anon 100\nfile 900\ninactive_file 500\nactive_file 300\ntotal_inactive_file 50\ntotal_active_file 20\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
		ok    bool
	}{
		{"none", nil, 1, false},
		{"version 2", map[string]string{"memory.max": "2000\n", "memory.current": "1100\n", "memory.stat": stat}, 1700, true},
		{"version 2, unlimited", map[string]string{"memory.max": "max\n", "memory.current": "1100\n"}, 1, false},
		{"version 2, full", map[string]string{"memory.max": "1000\n", "memory.current": "1100\n"}, 1, true},
		{"version 2, no stat", map[string]string{"memory.max": "2000\n", "memory.current": "1100\n"}, 900, true},
		{"more cache than use", map[string]string{"memory.max": "2000\n", "memory.current": "10\n", "memory.stat": stat}, 2000, true},
		{"version 1", map[string]string{"memory.limit_in_bytes": "2000\n", "memory.usage_in_bytes": "1100\n", "memory.stat": stat}, 970, true},
	} {
		n, ok := unused(folder(t, c.files))
		if ok != c.ok || ok && n != c.want {
			t.Errorf("%s: %d, %v, want %d, %v", c.name, n, ok, c.want, c.ok)
		}
	}
}

// folder makes a folder of files, which may be in folders of their own.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
