//go:build js

package main

import (
	"errors"
	"syscall/js"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/bench"
	"github.com/karat-run/karat/internal/checkpoint"
)

// bench measures as "karat bench" does: the result is its JSON form.
func (m *model) bench(args []js.Value) (any, error) {
	options := argument(args, 0)
	o := struct {
		Prompts []int `json:"prompts"`
		Tokens  []int `json:"tokens"`
		Depths  []int `json:"depths"`
		Repeat  int   `json:"repeat"`
	}{[]int{64}, []int{16}, []int{0}, 3}
	if err := read(options, "bench", &o); err != nil {
		return nil, err
	}
	for _, n := range append(append(append([]int{o.Repeat - 1}, o.Prompts...), o.Tokens...), o.Depths...) {
		if n < 0 || n > 1<<20 {
			return nil, errors.New("karat: bench: possible are 0 to 1048576 tokens, and 1 repetition or more")
		}
	}
	if len(o.Depths) == 0 {
		return nil, errors.New("karat: bench: no depth")
	}
	n, err := numerics.Parse(string(m.o.Precision), m.o.KV)
	if err == nil {
		n, err = n.On(m.o.Backend)
	}
	if err != nil {
		return nil, err
	}
	ctx, end := until(options)
	defer end()
	progress := function(options, "onProgress")
	var report *bench.Report
	err = m.aside(func() error {
		report, err = bench.Run(ctx, func() (*checkpoint.Checkpoint, error) { return m.checkpoint(n) }, bench.Options{Prompts: o.Prompts, Tokens: o.Tokens,
			Depths: o.Depths, Threads: []int{1}, Parallel: []int{1}, Repeat: o.Repeat, Numerics: n, Progress: func(test string) { progress(test) }})
		return err
	})
	if err != nil {
		return nil, err
	}
	report.Backend = m.o.Backend
	return plain(report)
}
