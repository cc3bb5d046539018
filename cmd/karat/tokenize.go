package main

import (
	"bufio"
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

type tokenizeFlags struct {
	model                             modelArg
	file                              string
	json, ids, special, noBOS, decode bool
}

func newTokenizeCommand() *cobra.Command {
	var f tokenizeFlags
	c := &cobra.Command{
		Use:   "tokenize [MODEL] [TEXT]",
		Short: "Turn text into token ids, or ids into text",
		Long: `Tokenize prints the token ids of a text, each with its piece in the
vocabulary's own spelling. "karat run" gives the model these ids for
the same prompt, with BOS if the model uses it.

The text is TEXT, the file after -f, or standard input. A trailing newline of a file is
removed. Special-token names such as <eos> are plain text unless --special is given. With --decode the text holds ids, separated by spaces,
commas or line ends, and their text is printed.

A tokenizer is enough for MODEL: a GGUF file without tensors, a
tokenizer.json or a tokenizer.model, or the folder of one.`,
		Example: `  karat tokenize "The color of the sky is"
  karat tokenize model.gguf --ids -f prompt.txt
  karat tokenize model.gguf --special "<|im_start|>user"
  karat tokenize --ids "Hello" | karat tokenize --decode
  karat tokenize --json "Hello" | jq '.[].id'
  karat tokenize tokenizer.json "Hello"`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.model.add(c, false)
	fs.VarP((*name)(&f.file), "file", "f", "read the text from this `file`; - is standard input")
	fs.BoolVar(&f.ids, "ids", false, "print the ids alone, in one line")
	fs.BoolVar(&f.json, "json", false, "print a JSON list of objects with id, piece and kind; with --decode, a JSON string")
	fs.BoolVar(&f.special, "special", false, "read names of special tokens as the tokens")
	fs.BoolVar(&f.noBOS, "no-bos", false, "add no tokens around the text, such as BOS")
	fs.BoolVar(&f.decode, "decode", false, "turn ids into text")
	return c
}

func (f *tokenizeFlags) run(c *cobra.Command, args []string) error {
	switch {
	case f.decode && (f.ids || f.special || f.noBOS):
		return usagef("--ids, --special and --no-bos do not work with --decode")
	case f.ids && f.json:
		return usagef("give --ids or --json, not both")
	}
	args, err := f.model.takeBefore(args, 1)
	switch {
	case err != nil && f.decode:
		return usagef("%w; the ids are one argument: \"1 2 3\"", err)
	case err != nil:
		return err
	}
	text, ok, err := readInput(context.Background(), c, args, f.file)
	if err != nil {
		return err
	}
	if !ok {
		return usagef("give TEXT, -f FILE, or a text on standard input")
	}
	t, err := f.open(c)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(c.OutOrStdout())
	if f.decode {
		err = f.writeText(w, t, text)
	} else {
		err = f.writeIDs(w, t, text)
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// open is the tokenizer of the model, or of what has no more than a tokenizer.
func (f *tokenizeFlags) open(c *cobra.Command) (*tokenizer.Tokenizer, error) {
	path, err := f.model.find(c)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return checkpoint.OpenTokenizer(path)
	}
	sayModel(path, c.ErrOrStderr())
	m, err := openCheckpoint(path)
	if err != nil {
		return nil, err
	}
	t, err := m.Tokenizer()
	return t, errors.Join(err, m.Close())
}

// kindName names a kind of token.
func kindName(k tokenizer.Kind) string {
	switch k {
	case tokenizer.Normal:
		return "normal"
	case tokenizer.Unknown:
		return "unknown"
	case tokenizer.Control:
		return "control"
	case tokenizer.UserDefined:
		return "user-defined"
	case tokenizer.Byte:
		return "byte"
	}
	return "unused"
}

// writeIDs writes the ids of a text as they come.
func (f *tokenizeFlags) writeIDs(w io.Writer, t *tokenizer.Tokenizer, text string) error {
	before, between, after := "", "\n", "\n"
	switch {
	case f.json:
		before, between, after = "[", ",", "]\n"
	case f.ids:
		between = " "
	}
	line := []byte(before)
	first := true
	for ids, err := range t.IDs(context.Background(), text, tokenizer.Options{ParseSpecial: f.special, AddSpecial: !f.noBOS}) {
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

// appendID appends an id as it is printed.
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
