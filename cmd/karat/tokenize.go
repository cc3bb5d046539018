package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/spf13/cobra"
)

// tokenizeFlags are the flags of tokenize.
type tokenizeFlags struct {
	file                              string
	json, ids, special, noBOS, decode bool
}

func newTokenizeCommand() *cobra.Command {
	var f tokenizeFlags
	c := define("tokenize", f.run)
	c.texts = true
	c.takesModel()
	c.flags("file", file(&f.file), "ids", &f.ids, "json", &f.json, "special", &f.special, "no-bos", &f.noBOS, "decode",
		&f.decode)
	return c.Command
}

func (f *tokenizeFlags) run(x *call) error {
	switch {
	case f.decode && (f.ids || f.special || f.noBOS):
		return usagef("--ids, --special and --no-bos do not work with --decode")
	case f.ids && f.json:
		return usagef("give --ids or --json, not both")
	}
	args, err := x.textArgs(1)
	switch {
	case err != nil && f.decode:
		return usagef("%w; the ids are one argument: \"1 2 3\"", err)
	case err != nil:
		return err
	}
	text := must(x.needText(args, f.file))
	t := must(openTokenizer(x))
	w := bufio.NewWriter(x.out)
	if f.decode {
		err = f.writeText(w, t, text)
	} else {
		err = f.writeIDs(x.ctx, w, t, text)
	}
	return cmp.Or(err, w.Flush())
}

// openTokenizer returns the tokenizer of MODEL, even if MODEL has nothing else.
func openTokenizer(x *call) (*tokenizer.Tokenizer, error) {
	path := must(x.find())
	if path != "" {
		return checkpoint.OpenTokenizer(path)
	}
	sayDemo(path, x.log)
	m := must(openCheckpoint(path))
	t, err := m.Tokenizer()
	return t, errors.Join(err, m.Close())
}

// kindNames are the kinds of tokens in words.
var kindNames = map[tokenizer.Kind]string{tokenizer.Normal: "normal", tokenizer.Unknown: "unknown",
	tokenizer.Control: "control", tokenizer.UserDefined: "user-defined", tokenizer.Byte: "byte"}

// kindName returns the name of a kind of token.
func kindName(k tokenizer.Kind) string { return cmp.Or(kindNames[k], "unused") }

// writeIDs writes the ids of a text as they come.
func (f *tokenizeFlags) writeIDs(ctx context.Context, w io.Writer, t *tokenizer.Tokenizer, text string) error {
	before, between, after := "", "\n", "\n"
	switch {
	case f.json:
		before, between, after = "[", ",", "]\n"
	case f.ids:
		between = " "
	}
	line := []byte(before)
	first := true
	for ids, err := range t.IDs(ctx, text, tokenizer.Options{ParseSpecial: f.special, AddSpecial: !f.noBOS}) {
		if err != nil {
			return err
		}
		for _, id := range ids {
			if !first {
				line = append(line, between...)
			}
			line, first = f.appendID(line, t, id), false
			if _, err := w.Write(line); err != nil {
				return err
			}
			line = line[:0]
		}
	}
	if first && !f.json && !f.ids {
		return nil
	}
	_, err := w.Write(append(line, after...))
	return err
}

// appendID appends an id in its printed form.
func (f *tokenizeFlags) appendID(b []byte, t *tokenizer.Tokenizer, id int) []byte {
	if f.ids {
		return strconv.AppendInt(b, int64(id), 10)
	}
	piece, k := t.Token(id)
	if f.json {
		var object strings.Builder
		newEncoder(&object).Encode(struct { // of strings to memory: cannot fail
			ID    int    `json:"id"`
			Piece string `json:"piece"`
			Kind  string `json:"kind"`
		}{id, piece, kindName(k)})
		return append(b, strings.TrimSuffix(object.String(), "\n")...)
	}
	b = fmt.Appendf(b, "%8d  %s", id, oneLine(piece))
	if k != tokenizer.Normal {
		b = fmt.Appendf(b, "  (%s)", kindName(k))
	}
	return b
}

func (f *tokenizeFlags) writeText(w io.Writer, t *tokenizer.Tokenizer, list string) error {
	var ids []int
	for _, word := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" \t\r\n,[]", r) }) {
		id, err := strconv.Atoi(word)
		if err != nil || id < 0 || id >= t.VocabSize() {
			return usagef("--decode: %q is not a token id, want a number from 0 to %d", word, t.VocabSize()-1)
		}
		ids = append(ids, id)
	}
	text := t.Decode(ids, false)
	if f.json {
		return newEncoder(w).Encode(text)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}
