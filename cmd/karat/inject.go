package main

import (
	"io"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/tokenizer"
)

// injection is the flags of lab record for building faults into Karat.
type injection struct {
	engine, input, probe, looks []mistake.Fault
	key                         string
	done                        []mistake.Injected
}

// set takes a value of --inject, perhaps one of several.
func (j *injection) set(text string) error {
	faults, err := mistake.Parse(text)
	engine, input, probe, looks := mistake.Split(faults)
	j.engine, j.input, j.probe = append(j.engine, engine...), append(j.input, input...), append(j.probe, probe...)
	j.looks = append(j.looks, looks...)
	return err
}

// check refuses impossible injections. inRef says that the reference interpreter will run; out is the record.
func (j *injection) check(inRef bool, out string, taps bool) error {
	switch {
	case len(j.engine)+len(j.input)+len(j.probe)+len(j.looks) == 0 && j.key != "":
		return usagef("--key %s needs --inject", j.key)
	case len(j.engine)+len(j.looks) > 0 && !inRef:
		return usagef("--inject runs in the float64 interpreter: give --precision f64, or --numerics to imitate " +
			"another arithmetic")
	case len(j.probe) > 0 && !taps:
		return usagef("--inject %v is a fault of the taps: it needs --taps", j.probe[0])
	case j.key != "" &&
		(filepath.Ext(j.key) != ".json" || filepath.Clean(j.key) == strings.TrimSuffix(filepath.Clean(out),
			".safetensors")+".json"):
		return usagef("--key %s: want a name that ends in .json and is not the record's own JSON file", j.key)
	}
	return nil
}

// prompts builds in the faults of the input.
func (j *injection) prompts(x *call, m *model.Files, prompts []*lab.Prompt) error {
	if len(j.input) == 0 {
		return nil
	}
	t := mistake.Tokens{BOS: -1}
	t.Encode = func(text string) ([]int32, error) {
		return idsAs[int32](m.Tokenizer.Encode(text, tokenizer.Options{AddSpecial: true})), nil
	}
	if ids, _ := t.Encode(""); len(ids) > 0 {
		t.BOS = ids[0]
	}
	t.Render = func(chat []lab.Message) ([]int32, error) {
		_, ids, err := encodeChat(x, m, chat)
		return idsAs[int32](ids), err
	}
	done, err := mistake.Inputs(prompts, j.input, t)
	j.done = append(j.done, done...)
	return err
}

// plan builds in the faults of the engine run by b, a reference.Backend.
func (j *injection) plan(g *graph.Graph, b backend.Backend) (*graph.Graph, backend.Backend, error) {
	if len(j.engine) == 0 {
		return g, b, nil
	}
	r := b.(reference.Backend)
	g, edits, done, err := mistake.Inject(g, j.engine)
	r.Edits = edits
	j.done = append(j.done, done...)
	return g, r, err
}

// taps builds in the faults of the probe, and only then adds the prompts.
func (j *injection) taps(g *graph.Graph, prompts []*lab.Prompt, add func(*lab.Prompt) error) {
	if len(j.probe) == 0 {
		return
	}
	done := must(mistake.Probe(g, prompts, j.probe))
	j.done = append(j.done, done...)
	for _, p := range prompts {
		throw(add(p))
	}
}

// writeKey writes the answer key, if --key names a file.
func (j *injection) writeKey() error {
	if j.key == "" {
		return nil
	}
	return atomicfile.Write(j.key, func(w io.Writer) error { return writeJSON(w, map[string]any{"injected": j.done}) })
}
