package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/spf13/pflag"
)

// maxGrammar is the size of the largest schema or grammar that is read, in bytes.
const maxGrammar = 1 << 20

// grammarFlags say what an answer must fit.
type grammarFlags struct {
	schema, gbnf, pattern string

	turn karat.ResponseFormat // what the flags ask for; read sets it
}

func (f *grammarFlags) add(fs *pflag.FlagSet) {
	fs.Var((*name)(&f.schema), "json-schema", "the answer is JSON that fits this `schema`, or the schema in this file")
	fs.Var((*name)(&f.gbnf), "grammar", "the answer fits this `grammar`, or the grammar in this file: llama.cpp's notation (GBNF), or Lark's if the file's name ends in .lark")
	fs.Var((*name)(&f.pattern), "regex", "the answer fits this `pattern` as a whole")
}

// grammar reads what was asked for and returns it for a whole text, nil for none.
func (f *grammarFlags) grammar() (*karat.Grammar, error) {
	given := 0
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
	}
	from, text := "--regex", f.pattern
	if f.pattern == "" {
		var err error
		if from, text, err = f.read(); err != nil {
			return nil, err
		}
	}
	var g *karat.Grammar
	var err error
	switch {
	case f.pattern != "":
		f.turn.Regexp = text
		g, err = karat.Regexp(text)
	case f.schema != "":
		f.turn.Schema = []byte(text)
		g, err = karat.JSONSchema(f.turn.Schema)
	case strings.HasSuffix(from, ".lark"):
		f.turn.Lark = text
		g, err = karat.Lark(text)
	default:
		f.turn.GBNF = text
		g, err = karat.GBNF(text)
	}
	switch {
	case err == nil:
		return g, nil
	case strings.HasPrefix(from, "--"):
		return nil, usagef("%s: %w", from, err)
	}
	return nil, fmt.Errorf("%s: %w", from, err)
}

// read returns the text of the schema or the grammar, and where it is from: a file, or the flag if its value is the text itself.
func (f *grammarFlags) read() (from, text string, err error) {
	flag, value, inline := "--grammar", f.gbnf, strings.Contains(f.gbnf, "::=")
	if f.schema != "" {
		flag, value = "--json-schema", f.schema
		inline = strings.HasPrefix(strings.TrimSpace(value), "{") || value == "true" || value == "false"
	}
	r, err := os.Open(value)
	switch {
	case err != nil && inline:
		return flag, value, nil
	case err != nil:
		return "", "", fmt.Errorf("%s: %w", flag, patherr.Plain(err))
	}
	defer r.Close()
	text, err = readAll(r, value, maxGrammar)
	return value, text, err
}
