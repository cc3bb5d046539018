package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersion has the program's origin as JSON, and finds the program in files of sums, in the forms that they have.
func TestVersion(t *testing.T) {
	version := func(args ...string) (string, error) {
		root := newRootCommand()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"version"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	text, err := version("--json")
	if err != nil {
		t.Fatal(err)
	}
	var b build
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	has := false
	for _, m := range b.Modules {
		has = has || m.Path == "github.com/spf13/cobra" && m.Version != "" && m.Sum != ""
	}
	if b.SHA256 != programHash() || len(b.SHA256) != 64 || !strings.HasPrefix(b.Go, "go1.") || b.Version == "" || !has {
		t.Errorf("version --json: %s", text)
	}
	other := strings.Repeat("0", 64)
	for _, x := range []struct{ sums, want string }{
		{other + "  a.deb\n" + b.SHA256 + "  karat_1_linux_amd64\n", "this program is karat_1_linux_amd64 in "},
		{strings.ToUpper(b.SHA256) + " *karat.exe\r\n", "this program is karat.exe in "},
		{"SHA256 (a (1) = 2) = " + other + "\nSHA256 (karat (1).exe) = " + strings.ToUpper(b.SHA256) + "\r\n", "this program is karat (1).exe in "},
		{"SHA512 (karat) = " + b.SHA256 + "\n", "no line has this program's SHA-256"},
		{"\ufeff" + b.SHA256 + "  karat", "this program is karat in "},
		{`\` + b.SHA256 + "  a\\\\b\n" + b.SHA256 + " *c d", `this program is a\\b and c d in `},
		{other + "\n" + b.SHA256 + "\n", "this program is a file without a name in "},
		{other + "  karat\n", "no line has this program's SHA-256, " + b.SHA256},
		{other + "  " + b.SHA256 + "\n", "no line has this program's SHA-256"},
		{b.SHA256[:63] + "  karat\n", "no line has this program's SHA-256"},
		{"", "no line has this program's SHA-256"},
	} {
		path := filepath.Join(t.TempDir(), "checksums.txt")
		if err := os.WriteFile(path, []byte(x.sums), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := version("--verify", path)
		if good := strings.HasPrefix(x.want, "this"); (err == nil) != good {
			t.Errorf("%q: error %v", x.sums, err)
		}
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, x.want) {
			t.Errorf("%q: %q, want %q", x.sums, got, x.want)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := version("--verify", path); err == nil || strings.Count(err.Error(), path) != 1 {
			t.Errorf("no file of sums: %v", err)
		}
	}
}
