package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/cobra"
)

type rerankFlags struct {
	named modelArg
	arithmetic
	sharing
	model, file    string
	context, top   int
	truncate, json bool
}

func newRerankCommand() *cobra.Command {
	var f rerankFlags
	c := &cobra.Command{
		Use:   "rerank MODEL QUERY [DOCUMENT...]",
		Short: "Order documents by how well they answer a query",
		Long: `Rerank prints a line for each document, the best one first: its score, its number from 0,
and its text. The score is the model's logit, and 1/(1+e^-score) of most models a probability.

The documents are DOCUMENT..., or the lines of the file after -f: each a JSON string, or an object
whose "text" is one. Without either, standard input is such a file.

The model must be made for it: one with a head for a score, such as bge-reranker-v2-m3.
A document's score has the same bits beside any other documents.`,
		Example: `  karat rerank bge-reranker-v2-m3 "capital of France" "Paris is a city." "Snow is white."
  karat rerank model.gguf --top 10 --json "capital of France" -f documents.jsonl`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fs := c.Flags()
	fs.SortFlags = false
	f.named.add(c, true)
	fs.VarP((*name)(&f.file), "file", "f", "read documents from the lines of this JSON Lines `file`; - is standard input")
	fs.IntVar(&f.top, "top", 0, "`number` of documents to print, the best ones (default: all)")
	fs.BoolVar(&f.truncate, "truncate", false, "cut the end of a document that the context does not hold with the query (default: that is an error)")
	fs.BoolVar(&f.json, "json", false, "print a JSON list of objects with index, score and document")
	addContext(fs, &f.context, "maximum `tokens` of a query and a document (default: the model's own, at most 8192)")
	f.sharing.add(c, 0)
	f.arithmetic.add(c, karat.Fast)
	return c
}

func (f *rerankFlags) run(c *cobra.Command, args []string) error {
	args, err := f.named.take(args)
	if err != nil {
		return err
	}
	if f.named.name == "" {
		return usagef("MODEL is missing; for example: karat rerank bge-reranker-v2-m3 \"capital of France\" \"Paris is a city.\"")
	}
	if len(args) == 0 {
		return usagef("give a QUERY")
	}
	if f.top < 0 || f.context < 0 {
		return usagef("--top and --ctx want 1 or more")
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	if f.model, err = f.named.find(c); err != nil {
		return err
	}
	if err := f.sharing.set(&o, c.Flags().Changed); err != nil {
		return err
	}
	o.Context = f.context
	ctx, stop := untilSignal()
	defer stop()
	return orInterrupted(ctx, f.rerank(ctx, c, args, o))
}

func (f *rerankFlags) rerank(ctx context.Context, c *cobra.Command, args []string, o karat.Options) (err error) {
	query, documents := args[0], args[1:]
	if len(documents) == 0 || f.file != "" {
		if documents, err = readTexts(ctx, c, documents, f.file, "DOCUMENT, -f FILE, or documents"); err != nil {
			return err
		}
	}
	m, err := loadModel(ctx, f.model, o, c.ErrOrStderr())
	if err != nil {
		return err
	}
	defer m.Close()
	ranked, err := m.Rerank(ctx, query, documents, karat.RerankOptions{Truncate: f.truncate, Progress: counted(c.ErrOrStderr())})
	if err != nil {
		return err
	}
	if f.top > 0 {
		ranked = ranked[:min(f.top, len(ranked))]
	}
	return f.write(c.OutOrStdout(), ranked, documents)
}

func (f *rerankFlags) write(w io.Writer, ranked []karat.RerankResult, documents []string) error {
	b := bufio.NewWriter(w)
	if f.json {
		type result struct {
			Index    int     `json:"index"`
			Score    float32 `json:"score"`
			Document string  `json:"document"`
		}
		results := []result{}
		for _, r := range ranked {
			results = append(results, result{r.Index, r.Score, documents[r.Index]})
		}
		e := json.NewEncoder(b)
		e.SetEscapeHTML(false)
		if err := e.Encode(results); err != nil {
			return fmt.Errorf("a score is no number that JSON can say: %w", err)
		}
		return b.Flush()
	}
	for _, r := range ranked {
		text := strings.Join(strings.Fields(documents[r.Index]), " ")
		fmt.Fprintf(b, "%9s %5d  %s\n", strconv.FormatFloat(float64(r.Score), 'f', 4, 32), r.Index, text)
	}
	return b.Flush()
}
