package golden

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSeeded: the files equal the ones of the definition in Python, to the byte.
func TestSeeded(t *testing.T) {
	families := Shared(t, "goldens/families")
	sums, err := os.ReadFile(filepath.Join(families, "sha256.txt"))
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		want, file, _ := strings.Cut(strings.TrimSpace(line), "  ")
		family, rest, _ := strings.Cut(file, "/")
		if made[family] == "" {
			made[family] = Seeded(t, filepath.Join(families, family))
		}
		b, err := os.ReadFile(filepath.Join(made[family], filepath.FromSlash(rest)))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want {
			t.Errorf("%s: SHA-256 %s, want %s", file, got, want)
		}
	}
	if len(made) < 28 {
		t.Errorf("%d families", len(made))
	}
}
