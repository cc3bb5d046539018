package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestSigningKey: an absent key is made whole, for the user alone, and not in silence.
func TestSigningKey(t *testing.T) {
	var said bytes.Buffer
	x, path := &call{log: &said}, filepath.Join(t.TempDir(), "key.pem")
	key, err := signingKey(x, path)
	if err != nil || !strings.Contains(said.String(), "key.pem: there was no such file") {
		t.Fatalf("%v: %q", err, said.String())
	}
	if st, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	said.Reset()
	if again, err := signingKey(x, path); err != nil || !again.Equal(key) || said.Len() > 0 {
		t.Errorf("a second time: %v: %q", err, said.String())
	}
}
