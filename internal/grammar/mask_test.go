package grammar

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// vocabulary returns n tokens of the kinds that vocabularies have: bytes, numbers, signs of JSON beside each other, and
// words, with and without a blank before them.
func vocabulary(n int) *Vocabulary {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	var all []string
	add := func(s string) {
		if !seen[s] && len(all) < n-3 {
			seen[s] = true
			all = append(all, s)
		}
	}
	for i := range 256 {
		add(string([]byte{byte(i)}))
	}
	for i := range 1000 {
		add(fmt.Sprint(i))
		add(fmt.Sprintf("%03d", i))
	}
	signs := []string{`"`, `":`, `":"`, `": `, `": "`, `",`, `","`, `", "`, `"}`, `"]`, `{"`, `[{"`, `["`, `}`, `},`, `}}`, `]}`, `],`, `},{`, `[]`, `{}`, ` {`, ` "`, ` [`, "\n", "\n\n", ",\n", `\n`, `\"`, `\\`, `\u`, `.`, `. `, `-`, `true`, `false`, `null`}
	for _, s := range signs {
		add(s)
		for k := 1; k < 24; k += 3 {
			add(s + strings.Repeat(" ", k))
		}
	}
	for k := 1; k <= 128; k++ {
		add(strings.Repeat(" ", k))
		add(strings.Repeat("=", k))
	}
	for len(all) < n-3 {
		var b strings.Builder
		if r.IntN(2) == 0 {
			b.WriteByte(" \"'.({<>_-/"[min(r.IntN(24), 10)%11])
		}
		for range 1 + r.IntN(4) {
			b.WriteString([]string{"st", "r", "b", "pl", "n", "m", "t", "ch", "é", "д", "漢"}[min(r.IntN(9)+r.IntN(3), 10)])
			b.WriteString([]string{"a", "e", "i", "o", "u", "er", "ing", "on", "и"}[r.IntN(9)])
		}
		if r.IntN(12) == 0 {
			b.WriteString([]string{`"`, `":`, `",`, `.`, `,`, `()`, `{`, `}`, "\n"}[r.IntN(9)])
		}
		add(b.String())
	}
	tokens := append(all, string(Special("<tool>")), "", "")
	return NewVocabulary(n, func(id int) []byte { return []byte(tokens[id]) }, nil, []int{n - 1, n - 2})
}

// matched begins a text.
func matched(t testing.TB, g *Grammar, v *Vocabulary) *Matcher {
	t.Helper()
	m, err := g.Match(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// schemas that the tests of masks go through.
var masked = []string{
	`{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":130},"tags":{"type":"array","items":{"type":"string","maxLength":12}},"when":{"type":"string","format":"date-time"},"kind":{"enum":["a","abc","b"]},"mail":{"type":"string","format":"email"}},"required":["name","age"]}`,
	`{"type":"object"}`,
	`{"$ref":"#/$defs/t","$defs":{"t":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"number"},{"type":"string","pattern":"^[a-m]*n+"}]}}}}`,
	`{"type":"object","additionalProperties":{"type":"string","minLength":3,"maxLength":40},"propertyNames":{"pattern":"^[a-z]{1,20}$"}}`,
}

// walk follows a grammar with random tokens, and hands each state to see. It returns the text.
func walk(t *testing.T, g *Grammar, v *Vocabulary, seed uint64, steps int, see func(m *Matcher)) (text []byte, ended bool) {
	r := rand.New(rand.NewPCG(seed, 7))
	m := matched(t, g, v)
	for range steps {
		mask, err := m.Mask()
		if err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if see != nil {
			see(m)
		}
		var all []int
		for id := range v.size {
			if mask.Has(id) {
				all = append(all, id)
			}
		}
		id := all[r.IntN(len(all))]
		if end := slices.Index(all, v.size-1); end >= 0 && r.IntN(3) == 0 {
			id = all[end]
		}
		if err := m.Accept(id); err != nil {
			t.Fatalf("after %q: %v", text, err)
		}
		if m.ended {
			return text, true
		}
		text = append(text, v.text[id]...)
	}
	return text, false
}

// TestMask: a mask has the tokens that go on, and no others, and the end where the text fits.
func TestMask(t *testing.T) {
	v := vocabulary(3000)
	for _, schema := range masked {
		g, err := JSONSchema([]byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		ends := 0
		for seed := range uint64(12) {
			text, ended := walk(t, g, v, seed, 60, func(m *Matcher) {
				mask, err := m.Mask()
				if err != nil {
					t.Fatal(err)
				}
				for id := range v.size {
					want := false
					if b := v.text[id]; b != nil {
						s, err := g.read(t.Context(), m.s, b)
						want = err == nil && !s.dead()
					} else {
						want = m.s.accept
					}
					if got := mask.Has(id); got != want {
						t.Fatalf("token %d, %q: %v, want %v", id, v.text[id], got, want)
					}
				}
			})
			if ended {
				ends++
				if _, err := parseJSON(text); err != nil {
					t.Errorf("%q: %v", text, err)
				}
			}
		}
		if ends == 0 {
			t.Errorf("%s: no text ended", schema)
		}
	}
}

// TestForced: the bytes that every text goes on with are forced, up to the first choice.
func TestForced(t *testing.T) {
	v := NewVocabulary(256, func(id int) []byte { return []byte{byte(id)} }, nil, nil)
	for _, c := range []struct{ pattern, begin, want string }{
		{"abc|abd", "", "ab"}, {"abc|abd", "ab", ""}, {"abc|abd", "abd", ""}, {"x{3}y?", "", "xxx"}, {"ü|ö", "", "\xc3"},
		{"a*", "", ""}, {"(true|false), and so on", "t", "rue, and so on"},
	} {
		g, err := Regexp(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		m, err := g.Match(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range []byte(c.begin) {
			if err := m.Accept(int(b)); err != nil {
				t.Fatal(err)
			}
		}
		for most := range 20 {
			if got, err := m.Forced(most); err != nil || string(got) != c.want[:min(most, len(c.want))] {
				t.Errorf("%s behind %q: %q, %v, want %q up to %d", c.pattern, c.begin, got, err, c.want, most)
			}
		}
	}
}

// TestForcedEnd: where nothing else may come, the end must.
func TestForcedEnd(t *testing.T) {
	v := vocabulary(3000)
	g, err := JSONSchema([]byte(`{"const":1}`))
	if err != nil {
		t.Fatal(err)
	}
	m := matched(t, g, v)
	for _, want := range [][]int32{nil, {2998, 2999}} {
		mask, err := m.Mask()
		if err != nil || want != nil && !slices.Equal(mask.IDs, want) || want == nil && mask.Has(2999) {
			t.Fatal(mask, err)
		}
		if want == nil {
			if err := m.Accept(int(mask.IDs[0])); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.Accept(0) == nil || m.Accept(-1) == nil || m.Accept(3000) == nil || m.Accept(2998) != nil || m.Accept(2999) == nil {
		t.Error("wrong tokens were taken")
	}
	if _, err := m.Mask(); err == nil {
		t.Error("a text that has ended goes on")
	}
}

// TestCacheHit: a mask that is there costs no allocation.
func TestCacheHit(t *testing.T) {
	v := vocabulary(3000)
	m := matched(t, JSONObject(), v)
	if _, err := m.Mask(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { m.Mask() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCacheBound: masks are forgotten, and stay right.
func TestCacheBound(t *testing.T) {
	v := vocabulary(3000)
	for i := range 3 * maxCache / 2 / (1 << 20) {
		v.put(key{uid: uids.Add(1)}, &candidates{exits: make([]int32, 1<<18)})
		if i%16 == 0 {
			walk(t, JSONObject(), v, uint64(i), 10, nil)
		}
	}
	held := 0
	for _, m := range []map[key]*candidates{v.young, v.old} {
		for _, f := range m {
			held += f.bytes()
		}
	}
	if held > maxCache+1<<21 {
		t.Errorf("%d bytes", held)
	}
}

// realistic is an answer as a model gives one, to a schema.
const (
	realisticSchema = `{"type":"object","properties":{"title":{"type":"string"},"summary":{"type":"string","maxLength":400},"year":{"type":"integer","minimum":1900,"maximum":2100},
		"rating":{"type":"number"},"genre":{"enum":["drama","comedy","action","horror"]},"released":{"type":"string","format":"date"},"seen":{"type":"boolean"},
		"cast":{"type":"array","minItems":1,"maxItems":20,"items":{"type":"object","properties":{"name":{"type":"string"},"role":{"type":["string","null"]},"mail":{"type":"string","format":"email"}},"required":["name","role","mail"],"additionalProperties":false}}},
		"required":["title","summary","year","rating","genre","released","seen","cast"],"additionalProperties":false}`
	realistic = `{"title": "The strange plate", "summary": "A man from nowhere comes to a town by the sea, where nobody is what he seems to be, and starts to ask about a plate that was stolen ten years before. The mayor, who has his own reasons, tries to stop him.", "year": 1987, "rating": 7.25, "genre": "drama", "released": "1987-11-02", "seen": true, "cast": [{"name": "Anna Berg", "role": "the mayor's sister", "mail": "anna@example.com"}, {"name": "Tom Stone", "role": null, "mail": "tom.stone@mail.example.org"}, {"name": "Peter Chan", "role": "a fisherman", "mail": "p@x.y"}]}`
)

// cut returns a text in the longest tokens of a vocabulary.
func cut(v *Vocabulary, text string) (ids []int) {
	byText := map[string]int{}
	for id, b := range v.text {
		if b != nil {
			byText[string(b)] = id
		}
	}
	for text != "" {
		n := min(len(text), 64)
		for byText[text[:n]] == 0 && n > 1 {
			n--
		}
		ids, text = append(ids, byText[text[:n]]), text[n:]
	}
	return ids
}

// TestPartsShared asks for the masks of a grammar that was compiled twice: the second one walks the vocabulary for no
// part again.
func TestPartsShared(t *testing.T) {
	v := vocabulary(4 << 10)
	parts := func() (n int) {
		g, err := JSONSchema([]byte(realisticSchema))
		if err != nil {
			t.Fatal(err)
		}
		m := matched(t, g, v)
		for _, id := range cut(v, realistic) {
			if _, err := m.Mask(); err != nil {
				t.Fatal(err)
			}
			if err := m.Accept(id); err != nil {
				t.Fatal(err)
			}
		}
		for k := range v.young {
			if k.kind == ofPart {
				n++
			}
		}
		return n
	}
	first := parts()
	if again := parts(); first < 50 || again != first {
		t.Errorf("%d parts were walked for the first grammar, then %d", first, again-first)
	}
}

// BenchmarkMask is a token of a realistic answer at a vocabulary of 128k: of the first grammar that a vocabulary sees,
// of a new grammar of a kind that it has seen, both with the time to compile it, and of one whose masks are kept.
func BenchmarkMask(b *testing.B) {
	v := vocabulary(128 << 10)
	ids := cut(v, realistic)
	for _, name := range []string{"first", "new", "kept"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			g, err := JSONSchema([]byte(realisticSchema))
			tokens := 0
			for b.Loop() {
				if name == "first" {
					v.young, v.old, v.bytes = map[key]*candidates{}, nil, 0
				}
				if name != "kept" {
					g, err = JSONSchema([]byte(realisticSchema))
				}
				if err != nil {
					b.Fatal(err)
				}
				m := matched(b, g, v)
				for _, id := range ids {
					mask, err := m.Mask()
					if err == nil && !mask.Has(id) {
						err = fmt.Errorf("token %d, %q, is not in the mask", id, v.text[id])
					}
					if err == nil {
						err = m.Accept(id)
					}
					if err != nil {
						b.Fatal(err)
					}
					tokens++
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tokens), "ns/token")
			b.ReportMetric(float64(len(ids)), "tokens")
		})
	}
}
