package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/pflag"
)

// maxGrammar is the size of the largest schema or grammar that is read, in bytes.
const maxGrammar = 1 << 20

// grammarFlags say what an answer must fit.
type grammarFlags struct{ schema, gbnf, pattern string }

func (f *grammarFlags) add(fs *pflag.FlagSet) {
	fs.Var((*name)(&f.schema), "json-schema", "the answer is JSON that fits the schema in this `file`")
	fs.Var((*name)(&f.gbnf), "grammar", "the answer fits the grammar in this `file`, in llama.cpp's notation (GBNF), or Lark's if its name ends in .lark")
	fs.Var((*name)(&f.pattern), "regex", "the answer fits this `pattern` as a whole")
}

// grammar is the one that was asked for, nil for none.
func (f *grammarFlags) grammar() (*karat.Grammar, error) {
	file, flag, given := f.schema, "--json-schema", 0
	for _, x := range []string{f.schema, f.gbnf, f.pattern} {
		if x != "" {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, nil
	case given > 1:
		return nil, usagef("--json-schema, --grammar and --regex: give one of them")
	case f.pattern != "":
		g, err := karat.Regexp(f.pattern)
		if err != nil {
			return nil, usagef("--regex: %s", plainError(err))
		}
		return g, nil
	case f.gbnf != "":
		file, flag = f.gbnf, "--grammar"
	}
	r, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer r.Close()
	text, err := readAll(r, file, maxGrammar)
	if err != nil {
		return nil, err
	}
	var g *karat.Grammar
	switch {
	case f.schema != "":
		g, err = karat.JSONSchema([]byte(text))
	case strings.HasSuffix(file, ".lark"):
		g, err = karat.Lark(text)
	default:
		g, err = karat.GBNF(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", file, plainError(err))
	}
	return g, nil
}

// plainError is an error without the name of its package.
func plainError(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "grammar: "), "schema: ")
}
