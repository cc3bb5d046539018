package main

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestPaste: a text that is pasted is one part of a line, however it is read and whatever
// lines it has.
func TestPaste(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, x := range []struct{ sent, keys, line string }{
		{"abc", "abc", "abc"},
		{"a\x1b[Db", "a\x1b[Db", "a\x1b[Db"},
		{"say \x1b[200~one\rtwo\r\nthree\x1b[201~ now", "say [paste 1, 3 lines] now", "say one\ntwo\nthree now"},
		{"\x1b[200~a\n\x1b[201~\x1b[200~b\n\n\x1b[201~", "[paste 1, 1 line][paste 2, 2 lines]", "ab\n"},
		{"\x1b[200~one [2\x1b[201~", "one [2", "one [2"},
		{"\x1b[200~one \x1b[2\x1b[201~", "[paste 1, 1 line]", "one \x1b[2"},
		{"\x1b[200~\x04\t\x03\x1b[201~", "[paste 1, 1 line]", "\x04\t\x03"}, // text, no keys
		{"\x1b[200~" + long + "\x1b[201~", "[paste 1, 1 line]", long},
		{"\x1b[200~\x1b[200~\x03\n\x1b[201~", "[paste 1, 1 line]", "\x1b[200~\x03"},
	} {
		for _, in := range []io.Reader{strings.NewReader(x.sent), iotest.OneByteReader(strings.NewReader(x.sent))} {
			k := &keys{in: in}
			got, err := io.ReadAll(k)
			if line := k.expand(string(got)); err != nil || string(got) != x.keys || line != x.line || k.interrupted {
				t.Errorf("%.40q: %q is %.40q, %v", x.sent, got, line, err)
			}
		}
	}
	k := &keys{in: strings.NewReader("a\x03")}
	if io.ReadAll(k); !k.interrupted {
		t.Error("Ctrl-C is not seen")
	}
	k = &keys{in: strings.NewReader("a\x03\x03b")} // two at once are two
	for _, want := range []string{"a\x03", "\x03", "b"} {
		b := make([]byte, 10)
		if n, err := k.Read(b); err != nil || string(b[:n]) != want {
			t.Errorf("read %q, %v, want %q", b[:n], err, want)
		}
	}
	suspended := 0
	k = &keys{in: strings.NewReader("a\x1a\x1ab\x1b[200~\x1a\x1b[201~"), suspend: func() error { suspended++; return nil }}
	if b, err := io.ReadAll(k); string(b) != "ab[paste 1, 1 line]" || err != nil || suspended != 2 {
		t.Errorf("Ctrl-Z: read %q, %v, suspended %d times", b, err, suspended)
	}
}
