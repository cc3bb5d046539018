package tokenizer_test

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// samples are the building blocks of the generated texts: what the patterns, the normalizers and the vocabularies tell
// apart.
var samples = []string{
	"The color of the sky is", " blue.", "func main() {\n\treturn nil\n}\n", "http://x.org/?a=1&b=2", "CamelCase_snake",
	"it's", "I'LL", "we've", "he'D", "'re", "'s", "'ſ", "'S", "'", "''", "don't'", "x'll", "'lL",
	"0", "7", "42", "123", "1234", "98765", "3.14", "٣٤٥", "४५", "Ⅷ", "½", "²", "１２３", "𝟘𝟙𝟚𝟛",
	" ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n ", "\n \n", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\v\f", "\u200b", "\ufeff",
	"你好世界", "漢字かな交じり文", "カタカナ", "ｶﾀｶﾅ", "한국어 문장", "ᄒ\u1161\u11ab", "가\u11a8", "ㄱㄴㄷ", "龥", "𠀀",
	"كتب الطالب", "مُدَرِّسَة", "שָׁלוֹם", "Привет, мир", "Ѐ", "Ελληνικά", "ᾳ", "Ὀδυσσεύς", "नमस्ते", "ภาษาไทย", "Հայերեն", "ქართული", "አማርኛ",
	"e\u0301", "é", "o\u0308\u0304", "q\u0307\u0323", "\u0323\u0307", "Å", "\u212b", "ﬁ", "ß", "İ", "ı", "ǅ", "\u0344", "\u0958",
	"😀", "👩\u200d👩\u200d👧", "🇩🇪", "✈\ufe0f", "→", "≠", "€", "©", "“quoted”", "«»", "…", "—", "-", "--", "=====", "!?!", "...", "<", ">", "|", "\\", "`", "~",
	"\x00", "\x01\x02", "\x7f", "\x1b[31m", "\u0090", "\ue000", "\U0010ffff", "\u0378", "\ufffd", "▁", "▁▁", "▁the", "Ġ", "Ċ", "ø", "<0x0A>", "<0xE2>",
	"<s>", "</s>", "<|eot_id|", "[PAD]", "<unk>", "<table>",
}

// invalid are bytes that are no UTF-8.
var invalid = []string{"\xff", "\xc0\xaf", "\xe2\x82", "\xf0\x9f\x98", "\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xfe"}

// texts generates n texts from seed, of up to so many samples and the given names of special tokens.
func texts(seed uint64, n int, special []string, broken bool) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	list := make([]string, n)
	for i := range list {
		var b strings.Builder
		for range 1 + rng.IntN(24) {
			s := samples[rng.IntN(len(samples))]
			switch k := rng.IntN(40); {
			case k == 0:
				r := rune(rng.IntN(utf8.MaxRune + 1))
				s = string(r)
			case k == 1:
				s = string(rune(rng.IntN(0x3000)))
			case k == 2 && broken:
				s = invalid[rng.IntN(len(invalid))]
			case k == 3 && len(special) > 0:
				s = special[rng.IntN(len(special))]
			case k == 4:
				s = strings.Repeat(s, 1+rng.IntN(40))
			case k < 12:
				s = " " + s
			case k == 12:
				s = strings.ToUpper(s)
			}
			b.WriteString(s)
		}
		list[i] = b.String()
		if !broken {
			list[i] = strings.ToValidUTF8(list[i], "?")
		}
	}
	return list
}
