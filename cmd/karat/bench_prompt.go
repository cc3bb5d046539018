package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/bench"
)

// benchPrompt is a flag that takes numbers of tokens, or a text. In quotation marks numbers are text.
type benchPrompt struct {
	counts []int
	text   string
	given  bool
}

var countList = regexp.MustCompile(`^[-+0-9, ]+$`)

func (p *benchPrompt) Type() string { return "tokens or text" }

func (p *benchPrompt) String() string {
	if p.text != "" {
		return p.text
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(p.counts), " ", ","), "[]")
}

func (p *benchPrompt) Set(s string) error {
	if !p.given {
		p.counts = nil
	}
	if p.text != "" || p.given && !countList.MatchString(s) {
		return errors.New("one text, or numbers of tokens")
	}
	p.given = true
	if !countList.MatchString(s) {
		if p.text = unquoted(s); p.text == "" {
			return errors.New("want numbers of tokens, or a text")
		}
		return nil
	}
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 || n > 1<<20 {
			return cmp.Or(err, fmt.Errorf("want 0 to %d", 1<<20))
		}
		p.counts = append(p.counts, n)
	}
	return nil
}

// readPrompt sets what o measures to the text of -p, if there is one.
func (f *benchFlags) readPrompt(ctx context.Context, o *bench.Options, log io.Writer) error {
	if f.prompt.text == "" {
		return nil
	}
	var g karat.GenerateOptions
	var err error
	if g.Template, g.TemplateArgs, err = f.chat.template(); err != nil {
		return err
	}
	m, err := load(ctx, f.model, karat.Options{NoFit: f.noFit}, log)
	if err != nil {
		return err
	}
	defer m.Close()
	ids, template, err := f.chat.ids(ctx, m, f.prompt.text, g)
	if err == nil {
		o.Prompt, o.Prompts = &bench.Prompt{Template: template, IDs: ids}, []int{len(ids)}
	}
	return err
}
