package tokenizer_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/tokenizer"
)

const kimi = `{"tokenizer_class": "TikTokenTokenizer", "bos_token": "[BOS]", "eos_token": "[EOS]", "added_tokens_decoder": {
	"%d": {"content": "[BOS]", "special": true}, "%d": {"content": "[EOS]", "special": true}, "%d": {"content": "<think>", "special": false}}}`

// ranked returns a list of tiktoken with all bytes and the words behind them, its configuration, and its ranks.
func ranked(words ...string) (list, config []byte, ranks map[string]int) {
	ranks = map[string]int{}
	var b strings.Builder
	add := func(word string) {
		fmt.Fprintln(&b, base64.StdEncoding.EncodeToString([]byte(word)), len(ranks))
		ranks[word] = len(ranks)
	}
	for c := range 256 {
		add(string([]byte{byte(255 - c)}))
	}
	for _, word := range words {
		add(word)
	}
	n := len(ranks)
	return []byte(b.String()), fmt.Appendf(nil, kimi, n, n+1, n+2), ranks
}

// merged joins, of all neighbors that make a token, the leftmost of the lowest rank, as tiktoken does.
func merged(piece string, ranks map[string]int) (ids []int) {
	if id, ok := ranks[piece]; ok {
		return []int{id}
	}
	parts := strings.Split(strings.Repeat("x", len(piece)), "")
	for i := range parts {
		parts[i] = piece[i : i+1]
	}
	for {
		best, at := 1<<30, -1
		for i := range len(parts) - 1 {
			if r, ok := ranks[parts[i]+parts[i+1]]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	for _, p := range parts {
		ids = append(ids, ranks[p])
	}
	return ids
}

// TestTiktokenList reads tiktoken's list: in a folder, and in GGUF, words are merged by rank, and the tokens behind the
// list have the names of the configuration or of their ids.
func TestTiktokenList(t *testing.T) {
	list, config, ranks := ranked("ab", "bc", "abc", "ca", "cab", "aa", "aaa", "bcab", "\xe4\xb8", "中", "\xe6\x96", "文", "中文", " a", "  ")
	f := tokenizer.Files{Config: config}
	var err error
	if f.JSON, err = tokenizer.FromTiktoken(list, config); err != nil {
		t.Fatal(err)
	}
	folder, err := tokenizer.FromJSON(f.JSON, f.Config)
	if err != nil {
		t.Fatal(err)
	}
	g, _, err := tokenizer.ToGGUF(f, len(ranks)+256, false, "kimi-k2", nil)
	if err != nil || g.Pre != "kimi-k2" {
		t.Fatal(g.Pre, err)
	}
	file, err := tokenizer.FromGGUF(g)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		word := make([]byte, 1+r.IntN(12))
		for i := range word {
			word[i] = "abc"[r.IntN(3)]
		}
		for _, tok := range []*tokenizer.Tokenizer{folder, file} {
			if got, want := tok.Encode(string(word), tokenizer.Options{}), merged(string(word), ranks); !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", word, got, want)
			}
		}
	}
	n := len(ranks)
	want := append(append(merged("中文", ranks), merged(" a", ranks)...), n, n+2, n+7, n+255)
	text := fmt.Sprintf("中文 a[BOS]<think><|reserved_token_%d|><|reserved_token_%d|>", n+7, n+255)
	for _, tok := range []*tokenizer.Tokenizer{folder, file} {
		if ids := tok.Encode(text, tokenizer.Options{ParseSpecial: true}); !slices.Equal(ids, want) || tok.Decode(ids, false) != text {
			t.Errorf("%v, want %v", ids, want)
		}
	}
	if bos, ok := folder.BOS(); bos != n || !ok || folder.AddsBOS() {
		t.Errorf("BOS %d, %v", bos, folder.AddsBOS())
	}
}

// TestTiktokenLines refuses lists with lines that are none, ranks out of order, and tokens that come again.
func TestTiktokenLines(t *testing.T) {
	_, config, _ := ranked()
	dense := ""
	for i := range 200 {
		dense += fmt.Sprintf("%s %d\n", base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), i+1)), i)
	}
	for list, want := range map[string]string{
		"IQ== 0\nIg== 2\n": "line 2 is", "IQ== 0\nIQ== 1\n": "line 2 is", "IQ 0\n": "line 1 is", " 0\n": "line 1 is", "IQ==\n": "line 1 is",
		"IQ== 0\n\n": "line 2 is", "": "the byte 0x00 alone", "AA== 0\nIQ== 1\n": "the byte 0x01 alone", base64.StdEncoding.EncodeToString(make([]byte, 513)) + " 0": "at most 512 bytes", dense: "merges up to line",
	} {
		if _, err := tokenizer.FromTiktoken([]byte(list), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", list, err)
		}
	}
	for config, want := range map[string]string{`{"tokenizer_class": "X"}`: `tokenizer_class "X"`, `{`: "tokenizer_config.json"} {
		if _, err := tokenizer.FromTiktoken([]byte("IQ== 0"), []byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", config, err)
		}
	}
	if _, err := tokenizer.FromTiktoken([]byte("IQ== 0"), nil); err == nil {
		t.Error("no configuration is no error")
	}
}
