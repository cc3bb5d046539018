package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/backend/reference"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/parity"
	"github.com/karat-run/karat/internal/image"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/internal/round"
	"github.com/karat-run/karat/internal/vision"
	"github.com/spf13/pflag"
)

// demo is the model without --models, from the root of the repository.
const demo = "cmd/karat/demo.gguf"

const parityHelp = `Parity builds faults into the reference interpreter, diagnoses the dump of each such
engine for three prompts, and scores the findings. The faults come from the table of mistakes
that the diagnosis reads. A third of them has no hypothesis, and should be called unknown.

  single  each fault that the model can have, at each place worth a test
  pictures  in models that see, each fault in preparing pictures, in the tower, and in the
          rows of pictures
  multi   random sets of 2 to 5 of them
  within  sets of which two or three share an equation, with the taps of PyTorch's modules
  clean   right engines: each class of rounding, stated or not, and the same function
          in other forms
  probe   right engines with a broken dump
  coarse  single faults, with taps of layer outputs only
  logits  single faults, without taps
  right   right engines: every class with every precision of keys and values, and Karat's
          own, with all taps, PyTorch's modules, layer outputs, hidden states or none

The seed decides the random order of the cases. So a slice (--every), or the part
finished at Ctrl-C, is a sample of all. A folder with seed.json in place of weights gets weights,
and a tokenizer if it has none. Without --models the command's demo is the model,
--every is 100, and four conditions are left out: within, right, and coarse and logits, which take
minutes a case.

Usage:
  go run ./internal/dev/task parity

Examples:
  go run ./internal/dev/task parity --models ./models --faults single,clean --every 10 --verbose
  go run ./internal/dev/task parity --models ./models --only tiny-qwen3 --json-file scores.json --html-file scores.html

Flags:
`

// parityFlags are the flags of the task.
type parityFlags struct {
	json, html, models, match        string
	only, faults                     []string
	seed                             uint64
	sets, every, most, longest, jobs int
	class                            class
	verbose                          bool
	changed                          func(flag string) bool
}

// class is a flag that takes a class of numerics.
type class struct{ round.Class }

func (c *class) Type() string { return "class" }

func (c *class) Set(s string) (err error) {
	c.Class, err = round.Parse(s)
	return err
}

// parityTask runs ParityBench.
func parityTask(ctx context.Context, args []string, out, log io.Writer) error {
	var f parityFlags
	fs := pflag.NewFlagSet("parity", pflag.ContinueOnError)
	fs.SetOutput(log)
	fs.Usage = func() { fmt.Fprint(log, parityHelp, fs.FlagUsages()) }
	fs.StringVar(&f.models, "models", "", "`folder` of Hugging Face folders and GGUF files (default: the demo)")
	fs.StringSliceVar(&f.only, "only", nil, "`names` of the models in it to take")
	fs.StringSliceVar(&f.faults, "faults", []string{"all"}, "`conditions`: single, pictures, multi, within, clean, "+
		"probe, coarse, logits, right, all")
	fs.Uint64Var(&f.seed, "seed", 1, "`number` that seeds prompts, sets and the order")
	fs.IntVar(&f.sets, "sets", 24, "random `sets` of faults for each model")
	fs.IntVar(&f.every, "every", 1, "run one case in `N`")
	fs.IntVar(&f.most, "most", 0, "run at most `N` cases of a kind for each model, so that models with few faults "+
		"count as much as others; 0 is no limit")
	fs.IntVar(&f.longest, "longest", 128, "maximum `tokens` of a prompt; a model with a wider window gets no faults "+
		"of the window")
	fs.StringVar(&f.match, "match", "", "run the cases with this `text` in their name, such as rope_theta=5e5@full")
	fs.IntVar(&f.jobs, "jobs", 1, "`cases` at a time")
	fs.Var(&f.class, "numerics", "`class` of rounding of the faulty engines, as in lab record")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "print a line for each case that misses a score")
	fs.StringVar(&f.json, "json-file", "", "`file` to write scores and all results to, as JSON; - is standard output")
	fs.StringVar(&f.html, "html-file", "", "`file` to write a page to")
	if err := fs.Parse(args); err != nil {
		return err
	}
	f.changed = fs.Changed
	return f.bench(ctx, out, log)
}

func (f *parityFlags) options() (o parity.Options, err error) {
	if f.models == "" {
		if !f.changed("every") {
			f.every = 100
		}
		if !f.changed("faults") {
			f.faults = []string{"single", "multi", "clean", "probe"}
		}
	}
	for _, n := range []struct {
		flag         string
		value, least int
		most         int
	}{{"sets", f.sets, 0, 1e6}, {"every", f.every, 1, 1e6}, {"most", f.most, 0, 1e6},
		{"longest", f.longest, 1, 1 << 20}, {"jobs", f.jobs, 1, 1024}} {
		if n.value < n.least || n.value > n.most {
			return o, fmt.Errorf("--%s %d: want %d to %d", n.flag, n.value, n.least, n.most)
		}
	}
	if f.models == "" && len(f.only) > 0 {
		return o, fmt.Errorf("--only: the names are those of --models")
	}
	o = parity.Options{Class: f.class.Class, Seed: f.seed, Sets: f.sets, Every: f.every, Most: f.most,
		Longest: f.longest, Match: f.match, Jobs: f.jobs}
	for _, name := range f.faults {
		switch condition := parity.Condition(name); {
		case name == "all":
			o.Conditions = append(o.Conditions, parity.Conditions...)
		case slices.Contains(parity.Conditions, condition):
			o.Conditions = append(o.Conditions, condition)
		default:
			return o, fmt.Errorf("--faults %s: want single, pictures, multi, within, clean, probe, coarse, logits, "+
				"right or all", name)
		}
	}
	return o, nil
}

func (f *parityFlags) bench(ctx context.Context, out, log io.Writer) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	paths, err := f.paths()
	if err != nil {
		return err
	}
	for _, file := range []string{f.json, f.html} {
		if file == "" || file == "-" {
			continue
		}
		if slices.Contains(paths, filepath.Clean(file)) {
			return fmt.Errorf("%s would be replaced, which is read", file)
		}
		if err := atomicfile.Check(file); err != nil {
			return err
		}
	}
	temp, err := os.MkdirTemp("", "parity-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := parity.Draw(temp, o.Seed); err != nil {
		return err
	}
	for _, path := range paths {
		if path, err = grown(path, temp); err != nil {
			return err
		}
		m, file, err := parityModel(ctx, path, f.longest)
		if err != nil {
			return err
		}
		defer file.Close()
		if m.Tower = file.Tower; m.Tower != nil {
			if m.Eye, err = lab.OpenEye(file, m.Tokenizer, reference.Backend{}, temp); err != nil {
				return err
			}
		}
		o.Models = append(o.Models, m)
	}
	p := paced{w: log, start: time.Now(), verbose: f.verbose}
	p.last = p.start
	o.Progress = p.report
	r, err := parity.Run(ctx, o)
	interrupted := err != nil && errors.Is(err, context.Canceled)
	if err != nil && !interrupted {
		return err
	}
	if r.Cases == 0 && f.match != "" {
		return fmt.Errorf("--match: no case has %q in its name, of one in %d (--every)", f.match, f.every)
	}
	if interrupted { // files of these names may have all cases
		for _, path := range []*string{&f.html, &f.json} {
			if ext := filepath.Ext(*path); *path != "" && *path != "-" {
				*path = strings.TrimSuffix(*path, ext) + ".partial" + ext
			}
		}
	}
	if err := f.write(out, r); err != nil {
		return err
	}
	if interrupted {
		return errors.New("interrupted: these are the scores of the finished cases")
	}
	return nil
}

func (f *parityFlags) write(w io.Writer, r *parity.Report) error {
	if f.html != "" {
		if err := atomicfile.Write(f.html, r.HTML); err != nil {
			return err
		}
	}
	switch f.json {
	case "":
	case "-":
		return r.JSON(w)
	default:
		if err := atomicfile.Write(f.json, r.JSON); err != nil {
			return err
		}
	}
	return r.Text(w)
}

// paths returns the models of the folder, or the demo.
func (f *parityFlags) paths() ([]string, error) {
	if f.models == "" {
		return []string{demo}, nil
	}
	entries, err := os.ReadDir(f.models)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	var paths, names []string
	for _, e := range entries {
		path := filepath.Join(f.models, e.Name())
		_, err := os.Stat(filepath.Join(path, "config.json"))
		if err != nil && filepath.Ext(path) != ".gguf" {
			continue
		}
		name := strings.TrimSuffix(e.Name(), ".gguf")
		if names = append(names, name); len(f.only) == 0 || slices.Contains(f.only, name) {
			paths = append(paths, path)
		}
	}
	for _, name := range f.only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--only %s: the models in %s are %s", name, f.models, strings.Join(names, ", "))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("--models %s: it has no folder with a config.json and no GGUF file", f.models)
	}
	return paths, nil
}

// parityModel opens a model for prompts of so many tokens.
func parityModel(ctx context.Context, path string, tokens int) (*parity.Model, *checkpoint.Checkpoint, error) {
	file, err := checkpoint.Open(path)
	if err != nil {
		return nil, nil, err
	}
	t, err := file.Tokenizer()
	if err == nil {
		m := &parity.Model{Name: strings.TrimSuffix(filepath.Base(path), ".gguf"), Tokenizer: t,
			Template: file.Template()}
		if m.Graph, _, err = model.Graph(ctx, file, tokens); err == nil {
			return m, file, nil
		}
	}
	file.Close()
	return nil, nil, err
}

// grown returns a model's folder, or a copy in a temporary folder with missing weights and a missing tokenizer: the
// weights of seed.json, and a token for each mark of the pictures.
func grown(dir, temp string) (string, error) {
	_, seed := os.Stat(filepath.Join(dir, "seed.json"))
	if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err == nil || seed != nil {
		return dir, nil
	}
	to := filepath.Join(temp, filepath.Base(dir))
	err := os.CopyFS(to, os.DirFS(dir))
	if err == nil {
		err = golden.Grow(to)
	}
	if err != nil {
		return "", err
	}
	const processor = "preprocessor_config.json" // changed for small pictures
	if b, err := os.ReadFile(filepath.Join(to, processor)); err == nil {
		b = bytes.Replace(b, []byte(`"max_soft_tokens": 280`), []byte(`"max_soft_tokens": 12`), 1)
		if err := os.WriteFile(filepath.Join(to, processor), b, 0o666); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(to, "tokenizer.json")); err == nil {
		return to, nil
	}
	names, err := marks(to)
	if err != nil {
		return "", err
	}
	return to, golden.WriteTokenizer(to, names, "")
}

// marks names the tokens of a model's marks of pictures: 514 for rows, and others behind.
func marks(dir string) (map[int]string, error) {
	file, err := checkpoint.Open(dir)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if file.Tower == nil {
		return nil, nil
	}
	m, err := vision.Open(file.Tower, reference.Backend{}, "")
	if err != nil {
		return nil, err
	}
	texts := append(m.Kind.Around[:], m.Kind.Image)
	for _, size := range [][2]int{{90, 50}, {37, 100}} {
		p, err := m.Prepare(&image.Image{Width: size[0], Height: size[1]})
		if err != nil {
			return nil, err
		}
		for _, x := range p.Marks {
			texts = append(texts, x.Text)
		}
	}
	for _, name := range m.Kind.Folder.Tokens {
		texts = append(texts, name)
	}
	slices.Sort(texts)
	names, next := map[int]string{514: m.Kind.Image}, 515
	for key, name := range m.Kind.Folder.Tokens {
		if key == "image_token_id" || key == "image_token_index" {
			names[514] = name
		}
	}
	for _, text := range texts {
		for _, name := range regexp.MustCompile(`<[^<>]+>|\[[A-Z_]+\]|\n+`).FindAllString(text, -1) {
			if !slices.Contains(slices.Collect(maps.Values(names)), name) {
				names[next] = name
				next++
			}
		}
	}
	if next > 540 {
		return nil, fmt.Errorf("%s: %d marks", dir, next-515)
	}
	return names, nil
}

// paced tells how far long work is, how fast it goes, and when it may end.
type paced struct {
	w           io.Writer
	start, last time.Time
	verbose     bool
}

func (p *paced) report(done, total int, x *parity.Result) {
	if p.verbose && x != nil && len(x.Failed) > 0 {
		fmt.Fprintln(p.w, x.Line())
	}
	if time.Since(p.last) < 10*time.Second || done == total {
		return
	}
	p.last = time.Now()
	each := time.Since(p.start) / time.Duration(done)
	fmt.Fprintf(p.w, "parity: %d of %d, %.3g a minute, %v left\n", done, total, time.Minute.Seconds()/each.Seconds(),
		(each * time.Duration(total-done)).Round(time.Second))
}
