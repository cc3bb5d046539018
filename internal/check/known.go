package check

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// known are the chat templates of publishers, by the data needed to tell that a template is one of them, or almost one,
// or says what one says.
type known struct {
	templates []knownTemplate
	lines     map[uint32]bool
}

type knownTemplate struct {
	name   string
	hash   string   // of the source, the first 16 hexadecimal digits
	sample []uint32 // of the hashes of its runs of signs, the smallest
	lines  []uint32 // hashes of its sentences
}

//go:embed known.txt
var knownText []byte

// publishers returns the templates in known.txt, which TestKnown writes.
func publishers() *known {
	knowing.Do(func() { theKnown = readKnown(knownText, "") })
	return theKnown
}

var (
	knowing  sync.Once
	theKnown *known
)

// pattern compiles a regular expression, once. What a program compiles when it starts is linked into every program that
// imports karat, and so are regexp and its tables.
func pattern(text string) *regexp.Regexp {
	if p, ok := patterns.Load(text); ok {
		return p.(*regexp.Regexp)
	}
	p := regexp.MustCompile(text)
	patterns.Store(text, p)
	return p
}

var patterns sync.Map // of *regexp.Regexp, by their text

// readKnown reads known.txt, all but the template of one name.
func readKnown(text []byte, without string) *known {
	k := &known{lines: map[uint32]bool{}}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		f := strings.Fields(lines.Text() + " -")
		if len(f) < 4 || f[0] == without || f[0] == "#" {
			continue
		}
		t := knownTemplate{name: f[0], hash: f[1], sample: unpack(f[2]), lines: unpack(f[3])}
		k.templates = append(k.templates, t)
		for _, h := range t.lines {
			k.lines[h] = true
		}
	}
	return k
}

// Hashes have 24 bits: a false one among a template's thousands is rare, and 24 of them at once are not there by
// chance.
func hash24(s string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(s))
	x := h.Sum32()
	return (x ^ x>>24*0x9e37) & 0xffffff
}

func unpack(s string) (hashes []uint32) {
	b, _ := base64.RawStdEncoding.DecodeString(s)
	for ; len(b) >= 3; b = b[3:] {
		hashes = append(hashes, uint32(b[0])<<16|uint32(b[1])<<8|uint32(b[2]))
	}
	return hashes
}

func sourceHash(source string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace(strings.ReplaceAll(source, "\r\n", "\n"))))
	return hex.EncodeToString(sum[:8])
}

const (
	runLength  = 5 // signs
	sampleSize = 24
	// almost is the share of a template's sample that one which was made from it has still: theKnown templates of one
	// family share less.
	almost = 0.8
)

const sign = `[\pL\pN_]+|[^\pL\pN_\s]`

// shingles returns the hashes of each few signs of a source that follow each other.
func shingles(source string) map[uint32]bool {
	signs := pattern(sign).FindAllString(source, -1)
	set := map[uint32]bool{}
	for i := range len(signs) - runLength + 1 {
		set[hash24(strings.Join(signs[i:i+runLength], " "))] = true
	}
	return set
}

// exactly reports whether a template is one of them.
func (k *known) exactly(source string) bool {
	h := sourceHash(source)
	return slices.ContainsFunc(k.templates, func(t knownTemplate) bool { return t.hash == h })
}

// says reports whether a template of a publisher has a sentence.
func (k *known) says(words string) bool { return k.lines[hash24(words)] }

// nearest returns the name of the template that a source was made from; "" if there is none.
func (k *known) nearest(source string) (name string) {
	have, most := shingles(source), almost
	for _, t := range k.templates {
		n := 0
		for _, h := range t.sample {
			if have[h] {
				n++
			}
		}
		if share := float64(n) / float64(max(len(t.sample), sampleSize/2)); share >= most {
			name, most = t.name, share
		}
	}
	return name
}
