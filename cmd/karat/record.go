package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/chat"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/graph"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/tokenizer"
	"github.com/spf13/cobra"
)

// recordFlags are the flags of lab record.
type recordFlags struct {
	prompts, out string
	images       []string
	taps         indices
	keep, decode int
	npy, json    bool
	head         bool
	class        class
	injected     injection
	engine       engineFlags
}

func newRecordCommand() *cobra.Command {
	f := recordFlags{keep: 8}
	c := define("lab record", f.run)
	c.flags("prompts", file(&f.prompts), "output", file(&f.out), "taps", f.taps.set, "keep", &f.keep, "decode-last",
		&f.decode, "npy", &f.npy, "json", &f.json, "numerics", f.class.set, "inject", f.injected.set, "key",
		file(&f.injected.key), "draft-head", &f.head, "image", &f.images, "mmproj", file(&f.engine.projector))
	f.engine.add(c, karat.Fast)
	c.takesModel()
	return c.Command
}

// numerics checks the flags, and returns the arithmetic.
func (f *recordFlags) numerics(x *call) (n numerics.Numerics, err error) {
	n, err = f.engine.numerics()
	f64 := f.engine.precision.value == string(karat.Float64)
	switch {
	case err != nil:
		return n, err
	case f.prompts == "" || f.out == "":
		return n, usagef("--prompts FILE.json and -o OUT.safetensors are needed")
	case filepath.Ext(f.out) != ".safetensors":
		return n, usagef("-o %s: want a name that ends in .safetensors", f.out)
	case f.keep < 1:
		return n, usagef("--keep %d: want 1 or more", f.keep)
	case f.decode < 0:
		return n, usagef("--decode-last %d: want 0 or more", f.decode)
	case f.head && f.decode > 0 && !f64 && !f.class.said:
		return n, usagef("--draft-head with --decode-last, drafts that continue the head's own state, needs " +
			"--precision f64 or --numerics")
	case f.class.said && (x.changed("precision") && !f64 || x.changed("kv")):
		return n, usagef("--numerics runs in the float64 interpreter: it does not work with --kv or another " +
			"--precision")
	}
	if f.class.said {
		f64, f.engine.precision.value = true, string(karat.Float64) // injections run on float64
		n = must(f.engine.numerics())
	}
	return n, f.injected.check(f64, f.out, f.taps.all || len(f.taps.list) > 0)
}

func (f *recordFlags) run(x *call) error {
	n := must(f.numerics(x))
	path := must(x.find())
	inputs := must(lab.ReadInputs(f.prompts))
	for i := range inputs {
		for _, path := range f.images {
			inputs[i].Images = append(inputs[i].Images, must(filepath.Abs(path)))
		}
	}
	for _, i := range f.taps.list {
		if i >= len(inputs) {
			return usagef("--taps %d: the prompts are 0 to %d", i, len(inputs)-1)
		}
	}
	throw(f.checkOutput(path))
	x.head = f.head
	w := must(lab.Create(f.out))
	defer w.Close()
	m, prompts := must2(x.openPrompts(inputs, &f.engine, func(x *call, m *model.Files, prompts []*lab.Prompt) error {
		return errors.Join(f.look(x, m, prompts), f.injected.prompts(x, m, prompts))
	}))
	defer m.Close()
	return f.record(x, m, n, prompts, w)
}

// folder returns where the NumPy files go.
func (f *recordFlags) folder() string { return strings.TrimSuffix(f.out, ".safetensors") }

// checkOutput refuses an output in the place of an input, or inside an input.
func (f *recordFlags) checkOutput(model string) error {
	if st, err := os.Stat(model); err == nil && st.IsDir() && sameFile(filepath.Dir(f.out), model) {
		return usagef("-o %s: a record cannot be written into the model's folder", f.out)
	}
	throw(refuseOverwrite("--key "+f.injected.key, f.injected.key, f.prompts, model))
	if f.npy {
		throw(atomicfile.CheckFolder(f.folder()))
	}
	return errors.Join(refuseOverwrite("-o "+f.out, f.out, f.prompts, model),
		refuseOverwrite("-o "+f.out, f.folder()+".json", f.prompts, model))
}

// openPrompts opens MODEL for prompts, with the ids fed by run, unless edit changes the ids. A model too large for
// memory is refused.
func (x *call) openPrompts(inputs []lab.Input, engine *engineFlags,
	edit func(*call, *model.Files, []*lab.Prompt) error) (
	m *model.Files, prompts []*lab.Prompt, err error) {
	n := must(engine.numerics())
	path := must(x.find())
	sayDemo(path, x.log)
	c := must(openCheckpoint(path))
	if err := checkpoint.FitProjector(c, engine.projector); err != nil {
		return nil, nil, err
	}
	t, err := c.Tokenizer()
	files := &model.Files{Checkpoint: c, Tokenizer: t} // without a graph, whose length depends on the prompts
	if err == nil {
		prompts, err = x.encodePrompts(files, inputs)
	}
	if err == nil && edit != nil {
		err = edit(x, files, prompts)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	longest := lab.Longest(prompts)
	m = must(model.OpenFiles(x.ctx, c, longest))
	throw(x.chooseGraph(m, longest))
	if !engine.noFit && len(prompts) > 0 {
		if err = model.Fits(c, m.Graph, n, engine.threads, longest, 0); err != nil {
			return nil, nil, errors.Join(err, m.Close())
		}
	}
	for _, note := range m.Notes {
		x.note(note)
	}
	return m, prompts, nil
}

// encodePrompts turns inputs into ids.
func (x *call) encodePrompts(m *model.Files, inputs []lab.Input) ([]*lab.Prompt, error) {
	prompts := make([]*lab.Prompt, len(inputs))
	for i, in := range inputs {
		p := &lab.Prompt{Index: i, Input: in, IDs: slices.Clone(in.IDs)}
		for _, path := range in.Images {
			p.Pictures = append(p.Pictures, lab.Picture{Path: path})
		}
		var ids []int
		var err error
		switch {
		case in.Text != nil:
			p.Text = *in.Text
			ids = m.Tokenizer.Encode(p.Text, tokenizer.Options{AddSpecial: true})
		case in.Chat != nil:
			p.Text, ids, err = encodeChat(x, m, in.Chat)
		default:
			p.Text = m.Tokenizer.Decode(idsAs[int](p.IDs), false)
		}
		if ids != nil {
			p.IDs = idsAs[int32](ids)
		}
		if err == nil && len(p.IDs) == 0 {
			err = errEmpty
		}
		if err != nil {
			return nil, fmt.Errorf("prompt %d: %w", i, err)
		}
		if most := m.Checkpoint.ContextLength(); most > 0 && len(p.IDs) > most {
			x.say("note: prompt %d has %d tokens, but the model was made for %d", i, len(p.IDs), most)
		}
		prompts[i] = p
	}
	return prompts, nil
}

// encodeChat renders messages with the model's chat template, and returns the text and its ids. The name of a special
// token counts if written by the template.
func encodeChat(x *call, m *model.Files, messages []lab.Message) (string, []int, error) {
	t, err := chat.Parse(m.Checkpoint.Template(), chat.Limits{})
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", m.Checkpoint.Path, err)
	}
	in := chat.Input{AddGenerationPrompt: true, BOSToken: m.Piece(m.Tokenizer.BOS()),
		EOSToken: m.Piece(m.Tokenizer.EOS())}
	for _, x := range messages {
		in.Messages = append(in.Messages, chat.Message(x.Role, x.Content))
	}
	segments, err := t.CheckedSegments(x.ctx, in)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", m.Checkpoint.Path, err)
	}
	text, said := chat.Flatten(segments)
	o := tokenizer.Options{ParseSpecial: true}
	for _, s := range said {
		o.Literal = append(o.Literal, tokenizer.Span(s))
	}
	return text, m.Tokenizer.Encode(text, o), nil
}

// idsAs converts ids.
func idsAs[To, From int | int32](ids []From) []To {
	list := make([]To, len(ids))
	for i, id := range ids {
		list[i] = To(id)
	}
	return list
}

// idsOf returns the ids of prompts.
func idsOf(prompts []*lab.Prompt) (ids [][]int32) {
	for _, p := range prompts {
		ids = append(ids, p.IDs)
	}
	return ids
}

// record computes the prompts and writes them.
func (f *recordFlags) record(x *call, m *model.Files, n numerics.Numerics, prompts []*lab.Prompt, w *lab.Writer) error {
	b, computed := must2(f.backend(n))
	defer b.Close()
	if r, ok := b.(reference.Backend); ok && f.head {
		r.Edits = reference.Edits{} // values of all positions, for the head's own states
		b = r
	}
	g, b := must2(f.injected.plan(m.Graph, b))
	r := must(lab.NewRecorder(x.ctx, g, b, lab.Longest(prompts), f.keep))
	defer r.Close()
	add := func(p *lab.Prompt) error {
		p.Next = m.Tokenizer.Decode([]int{p.NextID}, false)
		err := w.Add(p)
		p.Logits, p.Hidden, p.Taps = nil, nil, nil // large
		return err
	}
	for _, p := range prompts {
		start := time.Now()
		p.Decode = min(f.decode, len(p.IDs))
		throw(r.Record(x.ctx, p, f.taps.has(p.Index)))
		if len(f.injected.probe) == 0 { // the next prompt's values go to the same memory
			throw(add(p))
		}
		x.say("prompt %d: %s, %.1f s (%d of %d)", p.Index, count(len(p.IDs), "token"), time.Since(start).Seconds(),
			p.Index+1, len(prompts))
	}
	f.injected.taps(g, prompts, add)
	computed["hashes"] = must(hashesOf(x.ctx, m.Checkpoint, m.Tokenizer))
	throw(w.Commit(computed))
	if f.npy {
		throw(lab.WriteNumpy(f.folder(), f.out))
	}
	if err := f.injected.writeKey(); err != nil || !f.json {
		return err
	}
	return x.json(&labFile{Path: f.out, Prompts: len(prompts)})
}

// backend makes the backend, and describes its arithmetic for the record.
func (f *recordFlags) backend(n numerics.Numerics) (b backend.Backend, computed map[string]any, err error) {
	computed = map[string]any{"engine": "karat " + karat.Version(), "precision": n.Precision,
		"activations": n.Activations(), "kv": n.KV}
	if n.KV == "q8_0" {
		computed["kv"] = round.KVPages
	}
	if n.GPU > 0 {
		if computed["backend"], err = deviceName(n); err != nil {
			return nil, nil, err
		}
	}
	if !f.class.said {
		b, err := n.Backend(f.engine.threads)
		return b, computed, err
	}
	c := f.class.Class
	delete(computed, "precision")
	computed["activations"] = cmp.Or(c.Activations, round.F64)
	computed["kv"] = cmp.Or(c.KV, c.Activations.Stored(), round.F64)
	if c.GELU != "" {
		computed["gelu"] = c.GELU
	}
	if c.Lanes != 0 {
		computed["lanes"] = c.Lanes
	}
	return reference.Backend{Threads: f.engine.threads, Class: c}, computed, nil
}

// class is a flag with a class of numerics.
type class struct {
	round.Class
	said bool
}

func (c *class) set(s string) (err error) {
	c.Class, err = round.Parse(s)
	c.said = true
	return err
}

// indices is a flag with indices, or all.
type indices struct {
	all  bool
	list []int
}

func (x *indices) set(s string) error {
	if s == "all" {
		x.all = true
		return nil
	}
	for _, part := range strings.Split(s, ",") {
		i, err := strconv.Atoi(part)
		if err != nil || i < 0 {
			return fmt.Errorf("%q, want all, or indices from 0 as in 2,5", part)
		}
		x.list = append(x.list, i)
	}
	return nil
}

func (x *indices) has(i int) bool { return x.all || slices.Contains(x.list, i) }

// numberList returns numbers as "2,5".
func numberList(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]")
}

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
