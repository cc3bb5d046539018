package tokenizer_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/tokenizer"
)

// runs are texts of one thing, over which merging in order of the text takes quadratic time.
var runs = []string{"a", "^", " ", "\n", "▁", "ab", "字", "\xff", "<|", "1"}

// TestLinear counts the operations on the merge queue: twice the text must take about twice as many.
func TestLinear(t *testing.T) {
	for _, model := range golden.Models(t) {
		tok := fromJSON(t, golden.Model(t, model))
		for _, unit := range runs {
			small := tok.Steps(strings.Repeat(unit, 1<<13/len(unit)))
			large := tok.Steps(strings.Repeat(unit, 1<<15/len(unit)))
			if large > 5*small { // 4 times, and the logarithm
				t.Errorf("%s: %+q: %d steps for 8 KiB, %d for 32 KiB", model, unit, small, large)
			}
		}
	}
}

// TestMegabyte encodes a megabyte of one thing, with all ways of encoding, in the fast ring a quarter of that.
func TestMegabyte(t *testing.T) {
	length := 250_000
	if golden.Slow() {
		length = 1_000_000
	}
	for _, model := range []string{"tiny-llama", "tiny-gemma4"} {
		tok := fromJSON(t, golden.Model(t, model))
		for _, unit := range runs {
			text := strings.Repeat(unit, length/len(unit))
			ids := tok.Encode(text, tokenizer.Options{ParseSpecial: true})
			want := text
			switch {
			case unit == "\xff":
				want = strings.Repeat("\ufffd", len(text))
			case model == "tiny-gemma4":
				want = strings.ReplaceAll(text, "▁", " ")
			}
			if tok.Decode(ids, false) != want {
				t.Errorf("%s: %+q: another text decoded", model, unit)
			}
		}
	}
}

// english makes n bytes of text with the letter and word statistics of English: the words that make up most of it,
// inflected, with rarer ones, names, numbers and punctuation.
func english(n int) string {
	common := strings.Fields(`the of and to a in is that for it as was with be by on not he his but at are this have from or
		had an they which one you were all her she there would their we him been has when who will no more if out so up said what
		its about than into them can only other time new some could these two may first then do any like my now over such our man
		me even most made after also did many off before must well back through years where much your way down should because long
		each just state people those too mister how little good make world still see own men work life get here between both being
		under three never know same last another while us might great year since against go came right used take himself few house
		use during without again place around however home small found thought went say part once general high upon school every`)
	rare := strings.Fields(`tokenizer architecture parliament photosynthesis wonderful catastrophe Mississippi Wittgenstein
		entrepreneur rhythm bureaucracy manuscript quarterly hypothesis government electricity temperature machinery independence
		negotiations extraordinary Cambridge Elizabeth September pharmaceutical jurisdiction transparency`)
	rng := rand.New(rand.NewPCG(7, 7))
	var b strings.Builder
	for b.Len() < n {
		for k := range 6 + rng.IntN(16) {
			w := common[min(rng.IntN(len(common)), rng.IntN(len(common)))]
			if rng.IntN(7) == 0 {
				w = rare[rng.IntN(len(rare))]
			}
			if k == 0 {
				w = strings.ToUpper(w[:1]) + w[1:]
			} else {
				b.WriteByte(' ')
			}
			b.WriteString(w)
			switch rng.IntN(40) {
			case 0:
				b.WriteString("'s")
			case 1, 2:
				b.WriteByte(',')
			case 3:
				b.WriteString(" 1984")
			case 4, 5, 6:
				b.WriteString("ing")
			}
		}
		b.WriteString([]string{". ", ". ", "? ", ".\n\n"}[rng.IntN(4)])
	}
	return b.String()[:n]
}

// BenchmarkEnglish encodes English on one core.
func BenchmarkEnglish(b *testing.B) {
	text := english(1 << 20)
	for _, name := range []string{"llama-bpe", "qwen2", "gpt-2", "gemma-4", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			tok := fromGGUF(b, unpack(b, name))
			b.SetBytes(int64(len(text)))
			b.ResetTimer()
			for range b.N {
				tok.Encode(text, tokenizer.Options{})
			}
		})
	}
}

// BenchmarkRun encodes runs of one letter, each a word of its own.
func BenchmarkRun(b *testing.B) {
	for _, size := range []int{1 << 16, 1 << 18, 1 << 20} {
		b.Run(strconv.Itoa(size>>10)+"KiB", func(b *testing.B) {
			tok := fromGGUF(b, unpack(b, "llama-bpe"))
			text := strings.Repeat("a", size)
			b.SetBytes(int64(size))
			b.ResetTimer()
			for range b.N {
				tok.Encode(text, tokenizer.Options{})
			}
		})
	}
}

// BenchmarkLoad makes the tokenizer of each large vocabulary.
func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"llama-bpe", "gemma-4", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			g := metadata(b, unpack(b, name))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := tokenizer.FromGGUF(g); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
