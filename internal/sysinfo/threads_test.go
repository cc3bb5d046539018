package sysinfo

import (
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

func TestThreads(t *testing.T) {
	if n := Threads(); n < 1 || n > runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads, Go uses %d", n, runtime.GOMAXPROCS(0))
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if n := Threads(); n != 1 {
		t.Errorf("%d threads, Go uses 1", n)
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int // 0 for none
	}{
		{"none", nil, 0},
		{"version 2", map[string]string{"cpu.max": "200000 100000\n"}, 2},
		{"rounded up", map[string]string{"cpu.max": "200001 100000\n"}, 3},
		{"less than one", map[string]string{"cpu.max": "1000 100000\n"}, 1},
		{"unlimited", map[string]string{"cpu.max": "max 100000\n"}, 0},
		{"version 1", map[string]string{"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}, 2},
		{"version 1, unlimited", map[string]string{"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 0},
		{"no period", map[string]string{"cpu.max": "200000\n"}, 0},
		{"no time", map[string]string{"cpu.max": "200000 0\n"}, 0},
		{"empty", map[string]string{"cpu.max": ""}, 0},
		{"absurd", map[string]string{"cpu.max": "9223372036854775807 1\n"}, 1 << 30},
		{"too large for a number", map[string]string{"cpu.max": "99999999999999999999 100000"}, 1 << 30},
		{"other text", map[string]string{"cpu.max": "\x00\xff -5 \n\n 7"}, 0},
	} {
		n, ok := quota(folder(t, c.files))
		if ok != (c.want != 0) || n != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, n, ok, c.want)
		}
	}
}

// TestControlGroups reads what /proc tells, of both versions and of neither.
func TestControlGroups(t *testing.T) {
	const text = "garbage\n5:memory:/m\n4:cpu,cpuacct:/a/b\n3:cpuset:/c\n1:name=systemd:/d\n0::/../e\n"
	root := folder(t, map[string]string{"proc/self/cgroup": text})
	var got []string
	for _, dir := range controlGroups(root, "cpu") {
		rel, err := filepath.Rel(filepath.Join(root, "sys/fs/cgroup"), dir)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, filepath.ToSlash(rel))
	}
	if want := []string{"cpu/a/b", "cpu/a", "cpu", "e", "."}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := controlGroups(t.TempDir(), "cpu"); got != nil {
		t.Errorf("no file: %q", got)
	}
}
