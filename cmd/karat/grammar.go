package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/karat-run/karat"
)

// maxGrammar bounds the size of a schema or grammar, in bytes.
const maxGrammar = 1 << 20

// grammarFlags say the form of an answer.
type grammarFlags struct {
	schema, gbnf, pattern string

	turn karat.ResponseFormat // the form of the flags; set by read
}

func (f *grammarFlags) add(c *command) {
	c.flags("json-schema", file(&f.schema), "grammar", file(&f.gbnf), "regex", file(&f.pattern))
}

// grammar reads the flags' grammar and returns it for a whole text, nil for none.
func (f *grammarFlags) grammar() (*karat.Grammar, error) {
	given := slices.DeleteFunc([]string{f.schema, f.gbnf, f.pattern}, func(s string) bool { return s == "" })
	switch {
	case len(given) == 0:
		return nil, nil
	case len(given) > 1:
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

// read returns the text of the schema or the grammar, and its source: a file, or the flag if the flag has the text
// itself.
func (f *grammarFlags) read() (from, text string, err error) {
	flag, value, inline := "--grammar", f.gbnf, strings.Contains(f.gbnf, "::=")
	if f.schema != "" {
		flag, value = "--json-schema", f.schema
		inline = strings.HasPrefix(strings.TrimSpace(value), "{") || value == "true" || value == "false"
	}
	text, err = readWhole(value, maxGrammar)
	switch {
	case err == nil:
		return value, text, nil
	case inline:
		return flag, value, nil
	}
	return "", "", fmt.Errorf("%s: %w", flag, err)
}
