// Oracle cuts texts by regular expressions, for the tests of package tokenizer, which cuts them
// by functions. It is a module of its own, so that programs that use Karat never hear of the
// engine of regular expressions.
//
// Standard input is a JSON object with patterns and texts. Standard output is a list of the
// pieces of each text.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/dlclark/regexp2/v2"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("oracle: ")
	var question struct{ Patterns, Texts []string }
	if err := json.NewDecoder(os.Stdin).Decode(&question); err != nil {
		log.Fatal(err)
	}
	var res []*regexp2.Regexp
	for _, p := range question.Patterns {
		re, err := regexp2.Compile(p, regexp2.None)
		if err != nil {
			log.Fatalf("%s: %v", p, err)
		}
		res = append(res, re)
	}
	answer := make([][]string, len(question.Texts))
	for i, text := range question.Texts {
		answer[i] = pieces(res, text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		log.Fatal(err)
	}
}

// pieces cuts text by regular expressions, each applied to the pieces of the one before, as a
// Split with behavior Isolated does.
func pieces(res []*regexp2.Regexp, text string) (all []string) {
	if len(res) == 0 || text == "" {
		return []string{text}
	}
	runes, done := []rune(text), 0
	cut := func(from, to int) {
		if from < to {
			all = append(all, pieces(res[1:], string(runes[from:to]))...)
		}
	}
	m, err := res[0].FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = res[0].FindNextMatch(m) {
		cut(done, m.RuneIndex)
		done = m.RuneIndex + m.RuneLength
		cut(m.RuneIndex, done)
	}
	if err != nil {
		log.Fatalf("%s: %v", res[0], err)
	}
	cut(done, len(runes))
	return all
}
