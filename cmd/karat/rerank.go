package main

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/spf13/cobra"
)

// rerankFlags are the flags of rerank.
type rerankFlags struct {
	file           string
	top            int
	truncate, json bool
	engine         engineFlags
}

func newRerankCommand() *cobra.Command {
	var f rerankFlags
	c := define("rerank", f.run)
	c.takesModel()
	c.flags("file", file(&f.file), "top", &f.top, "truncate", &f.truncate, "json", &f.json, "ctx", &f.engine.context)
	f.engine.addSharing(c)
	f.engine.add(c, karat.Fast)
	return c.Command
}

func (f *rerankFlags) run(x *call) error {
	if f.top < 0 {
		return usagef("--top %d: want 1 or more", f.top)
	}
	o := must(f.engine.options(x.changed))
	must(x.find())
	query, documents := x.args[0], x.args[1:]
	if len(documents) == 0 || f.file != "" {
		documents = must(x.readTexts(documents, f.file, "DOCUMENT, -f FILE, or documents"))
	}
	m := must(x.load(o))
	defer m.Close()
	p := newProgress(x.log, "")
	ranked, err := m.Rerank(x.ctx, query, documents, karat.RerankOptions{Truncate: f.truncate,
		Progress: func(done, total int) { p.pieces("documents", done, total) }})
	p.end()
	if err != nil {
		return err
	}
	if f.top > 0 {
		ranked = ranked[:min(f.top, len(ranked))]
	}
	if f.json {
		return writeRanked(x, ranked, documents)
	}
	b := bufio.NewWriter(x.out)
	for _, r := range ranked {
		text := strings.Join(strings.Fields(documents[r.Index]), " ")
		fmt.Fprintf(b, "%9s %5d  %s\n", strconv.FormatFloat(float64(r.Score), 'f', 4, 32), r.Index, text)
	}
	return b.Flush()
}

// writeRanked writes documents in JSON.
func writeRanked(x *call, ranked []karat.RerankResult, documents []string) error {
	type result struct {
		Index    int     `json:"index"`
		Score    float32 `json:"score"`
		Document string  `json:"document"`
	}
	results := []result{}
	for _, r := range ranked {
		results = append(results, result{r.Index, r.Score, documents[r.Index]})
	}
	if err := newEncoder(x.out).Encode(results); err != nil {
		return fmt.Errorf("a score is no number that JSON can say: %w", err)
	}
	return nil
}
