package tokenizer

import (
	"fmt"
	"slices"
)

// probes lists texts on which tokenizers of different rules differ: digits, runs of spaces and newlines, contractions,
// letters with combining marks, other scripts, emoji, code, bytes that are no UTF-8.
var probes = []string{
	"Hello, world! The quick brown fox jumps over the lazy dog.",
	"  leading,  double   spaces \t\ttabs\r\n\r\n\nand lines \n ",
	"It's 12345678 and 3.14159; don't we'll THEY'RE I'd",
	"caf\u00e9 cafe\u0301 \u212b \u1e9b\u0323 \ufb01",
	"\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 " +
		"\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \ud55c\uad6d\uc5b4",
	"\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2581 \u00a0 \ufffd",
	"func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(i)\n\t}\n}\n",
	"\xff\xfe\x00\x80", "a", " a", "",
}

// Same reports a difference between two tokenizers: in the spelling of a token, in the tokens around a text, or in the
// ids of probes, with special tokens among them.
func Same(a, b *Tokenizer) error {
	for id := range min(a.VocabSize(), b.VocabSize()) {
		x, kind := a.Token(id)
		if y, _ := b.Token(id); x != y && kind != Unused && kind != UserDefined { // these may be text
			return fmt.Errorf("the other form has token %d as %q, not %q", id, y, x)
		}
	}
	for _, special := range []bool{false, true} {
		for _, text := range probes {
			if special {
				text = surround(a, text)
			}
			if err := compareIDs(a, b, text, Options{AddSpecial: true, ParseSpecial: special}); err != nil {
				return err
			}
		}
	}
	for _, m := range []matcher{a.raw, a.cooked} {
		for _, k := range m.tokens {
			for _, text := range []string{"a " + k.content + " b", "a" + k.content + "b"} {
				if k.flags() == 0 {
					continue
				}
				if err := compareIDs(a, b, text, Options{ParseSpecial: true}); err != nil {
					return err
				}
			}
		}
	}
	for c := range 256 { // a vocabulary may lack tokens of some bytes
		if err := compareIDs(a, b, "a"+string([]byte{byte(c)})+"b", Options{}); err != nil {
			return err
		}
	}
	return nil
}

// compareIDs compares the ids of a text.
func compareIDs(a, b *Tokenizer, text string, o Options) error {
	if x, y := a.Encode(text, o), b.Encode(text, o); !slices.Equal(x, y) {
		return fmt.Errorf("the other form gives %q the ids %v, not %v", text, y, x)
	}
	return nil
}

// surround puts special tokens before, into and after a text.
func surround(t *Tokenizer, text string) string {
	name := "<s>"
	for _, k := range t.tokens {
		if k.kind == Control {
			name = k.text
			break
		}
	}
	return name + text + name + text + name
}
