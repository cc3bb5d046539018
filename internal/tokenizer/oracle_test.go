package tokenizer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

var ask = flag.Bool("oracle", false, "ask the oracle (internal/dev/oracle) how regular expressions cut, and write testdata/pieces.json")

// record is what an oracle of regular expressions said: a digest of the pieces, by one of the patterns and texts.
var record struct {
	sync.Mutex
	digests map[string]string
	told    map[string]string // the oracle's digests of this run
}

func TestMain(m *testing.M) {
	flag.Parse()
	data, err := os.ReadFile("testdata/pieces.json")
	if err == nil {
		err = json.Unmarshal(data, &record.digests)
	}
	record.told = map[string]string{}
	status := m.Run()
	if *ask && status == 0 {
		maps.Copy(record.digests, record.told)
		if data, err = json.MarshalIndent(record.digests, "", " "); err == nil {
			err = os.WriteFile("testdata/pieces.json", append(data, '\n'), 0o666)
		}
	}
	if err != nil {
		panic(err)
	}
	os.Exit(status)
}

// compare compares how a function cuts texts with how regular expressions do, each applied to the pieces of the one
// before. The record has a digest of that alone: with -oracle the test shows the pieces that differ.
func compare(t *testing.T, split func(text string) []string, texts []string, patterns ...string) {
	t.Helper()
	got := make([][]string, len(texts))
	for i, text := range texts {
		got[i] = split(text)
	}
	key := digest(t, [][]string{patterns, texts})
	if *ask {
		want, bad := oracle(t, patterns, texts), 0
		for i, text := range texts {
			if !slices.Equal(got[i], want[i]) && bad < 10 {
				bad++
				t.Errorf("%+q:\n got %+q\nwant %+q", text, got[i], want[i])
			}
		}
		record.Lock()
		defer record.Unlock()
		record.told[key] = digest(t, want)
		return
	}
	switch want := record.digests[key]; {
	case want == "":
		t.Error("testdata/pieces.json does not have these patterns and texts: run the test with -oracle")
	case want != digest(t, got):
		t.Error("texts are not cut as the regular expression does it: run the test with -oracle to see which")
	}
}

// digest returns the first 8 bytes of a SHA-256.
func digest(t *testing.T, lists [][]string) string {
	data, err := json.Marshal(lists)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

var built = sync.OnceValues(func() (path string, err error) {
	dir, err := os.MkdirTemp("", "oracle")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "oracle")
	c := exec.Command("go", "build", "-o", path, ".")
	c.Dir, c.Stderr = "../dev/oracle", os.Stderr
	return path, c.Run()
})

// oracle returns the pieces of each text.
func oracle(t *testing.T, patterns, texts []string) (pieces [][]string) {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	question, err := json.Marshal(map[string][]string{"patterns": patterns, "texts": texts})
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path)
	c.Stdin, c.Stderr = bytes.NewReader(question), os.Stderr
	answer, err := c.Output()
	if err == nil {
		err = json.Unmarshal(answer, &pieces)
	}
	if err != nil || len(pieces) != len(texts) {
		t.Fatalf("oracle: %v, the pieces of %d texts of %d", err, len(pieces), len(texts))
	}
	return pieces
}
