package sysinfo

import (
	"fmt"
	"testing"
)

func TestSiblings(t *testing.T) {
	machine := func(lists ...string) map[string]string {
		files := map[string]string{}
		for i, l := range lists {
			files[fmt.Sprintf("cpu%d/topology/thread_siblings_list", i)] = l
		}
		return files
	}
	for _, c := range []struct {
		name       string
		files      map[string]string
		processors []int
		want       int
	}{
		{"no files", nil, []int{0, 1, 5}, 3},
		{"no processors", nil, nil, 0},
		{"one thread a core", machine("0\n", "1\n"), []int{0, 1}, 2},
		{"two threads a core", machine("0,2\n", "1,3\n", "0,2\n", "1,3\n"), []int{0, 1, 2, 3}, 2},
		{"neighbours", machine("0-1\n", "0-1\n", "2-3\n", "2-3\n"), []int{0, 1, 2, 3}, 2},
		{"some of them", machine("0-1\n", "0-1\n", "2-3\n", "2-3\n"), []int{1, 2}, 2},
		{"two kinds of cores", machine("0-1\n", "0-1\n", "2\n", "3\n"), []int{0, 1, 2, 3}, 3},
		{"garbage", machine("", "x,y", "-1", "99999999999999999999", "7", "\x00\xff"), []int{0, 1, 2, 3, 4, 5}, 6},
	} {
		if n := siblings(folder(t, c.files), c.processors); n != c.want {
			t.Errorf("%s: %d, want %d", c.name, n, c.want)
		}
	}
	if n := cores(); n < 1 {
		t.Errorf("this machine has %d cores", n)
	}
}
