package chat

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
)

func TestDiffTool(t *testing.T) {
	path := os.Getenv("DIFF_IN")
	if path == "" {
		t.Skip()
	}
	f, _ := os.Create(path + ".out")
	w := bufio.NewWriter(f)
	for _, s := range readLines[snippet](t, path) {
		out, err := s.render(t)
		m := map[string]any{}
		if err != nil {
			m["error"] = err.Error()
		} else {
			m["render"] = out
		}
		b, _ := json.Marshal(m)
		w.Write(b)
		w.WriteByte('\n')
	}
	w.Flush()
	f.Close()
}
