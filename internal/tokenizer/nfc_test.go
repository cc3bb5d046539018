package tokenizer

import (
	"compress/bzip2"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// TestNFC runs Unicode's own test suite for the Normalization Forms C and KC.
func TestNFC(t *testing.T) {
	if norm.Version != unicode.Version {
		t.Errorf("normal forms are those of Unicode %s, classes of %s", norm.Version, unicode.Version)
	}
	f, err := os.Open("testdata/NormalizationTest.txt.bz2")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(bzip2.NewReader(f))
	if err != nil {
		t.Fatal(err)
	}
	cases, listed, part1 := 0, map[rune]bool{}, false
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if strings.HasPrefix(line, "@") {
			part1 = strings.HasPrefix(line, "@Part1")
			continue
		}
		columns := strings.Split(strings.TrimSpace(line), ";")
		if len(columns) < 5 {
			continue
		}
		cases++
		var c [5]string
		for i := range c {
			for _, field := range strings.Fields(columns[i]) {
				r, err := strconv.ParseUint(field, 16, 32)
				if err != nil {
					t.Fatal(err)
				}
				c[i] += string(rune(r))
			}
		}
		for i, want := range []string{c[1], c[1], c[1], c[3], c[3]} {
			if got := nfc(c[i], &watch{}); got != want {
				t.Errorf("nfc(%+q) = %+q, want %+q", c[i], got, want)
			}
			if got := nfkc(c[i], &watch{}); got != c[3] {
				t.Errorf("nfkc(%+q) = %+q, want %+q", c[i], got, c[3])
			}
		}
		if r, n := utf8.DecodeRuneInString(c[0]); part1 && n == len(c[0]) {
			listed[r] = true
		}
	}
	if cases < 19000 {
		t.Fatalf("%d cases", cases)
	}
	for r := rune(0); r <= unicode.MaxRune; r++ { // what part 1 does not list is its own form
		if s := string(r); !listed[r] && nfc("\x00"+s+"\x00", &watch{}) != "\x00"+s+"\x00" {
			t.Errorf("nfc of %+q is %+q", s, nfc(s, &watch{}))
		}
		if s := string(r); !listed[r] && nfkc("\x00"+s+"\x00", &watch{}) != "\x00"+s+"\x00" {
			t.Errorf("nfkc of %+q is %+q", s, nfkc(s, &watch{}))
		}
	}
}

// TestNFCInvalid checks that bytes that are no UTF-8 stay, and separate the text around them.
func TestNFCInvalid(t *testing.T) {
	for in, want := range map[string]string{
		"e\u0301\xff\u0301e\u0301":      "é\xff\u0301é",
		"\xe2\x82e\u0301":               "\xe2\x82é",
		"e\xcc":                         "e\xcc",
		"\ufffd\u0301 \u212b":           "\ufffd\u0301 Å",
		strings.Repeat("a\u0301", 1000): strings.Repeat("á", 1000),
	} {
		if got := nfc(in, &watch{}); got != want {
			t.Errorf("nfc(%+q) = %+q, want %+q", in, got, want)
		}
	}
}

// TestNFCLinear normalizes a megabyte of combining characters in the worst order, for which quadratic time would be
// many minutes.
func TestNFCLinear(t *testing.T) {
	const marks = "\u0301\u0316" // classes 230 and 220
	in := "e" + strings.Repeat(marks, 1<<18)
	got := nfc(in, &watch{})
	want := "é" + strings.Repeat("\u0316", 1<<18) + strings.Repeat("\u0301", 1<<18-1)
	if got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}

// TestShrinks: no text is more than nfcShrinks times as long as its normal form. Each character of a text gives its
// bytes in equal shares to the characters that it decomposes to, and these make one of the normal form.
func TestShrinks(t *testing.T) {
	share := map[rune]float64{}
	give := func(r rune) {
		parts := []rune(norm.NFD.String(string(r)))
		for _, p := range parts {
			share[p] = max(share[p], float64(utf8.RuneLen(r))/float64(len(parts)))
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if utf8.ValidRune(r) {
			give(r)
		}
	}
	worst := 0.
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		sum := 0.
		for _, p := range norm.NFD.String(string(r)) {
			sum += share[p]
		}
		worst = max(worst, sum/float64(utf8.RuneLen(r)))
	}
	if worst > nfcShrinks || worst < 3.5 || nfc("\u1fbe\u0308\u0341", &watch{}) != "\u0390" {
		t.Errorf("%v times", worst)
	}
}
