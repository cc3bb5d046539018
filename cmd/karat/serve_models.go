package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/server"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// servedFlags say how a model is served. A file of --config may say so of each.
type servedFlags struct {
	name    string // "" is the name of its file or folder
	aliases []string
	keep    keepAlive
	engine  engineFlags
}

// add registers the flags common to all models.
func (f *servedFlags) add(c *command) {
	f.keep = -1
	c.flags("keep-alive", &f.keep, "ctx", &f.engine.context)
	f.engine.addSharing(c)
	f.engine.addDraft(c)
	c.flags("lora", f.engine.addLora, "mmproj", file(&f.engine.projector))
	f.engine.add(c, karat.Fast)
}

// keepAlive is a time; below 0 is for ever.
type keepAlive time.Duration

func (k *keepAlive) Type() string { return "time" }

func (k *keepAlive) String() string {
	if *k < 0 {
		return "forever"
	}
	return time.Duration(*k).String()
}

func (k *keepAlive) Set(s string) error {
	if n, err := strconv.Atoi(s); err == nil {
		s = strconv.Itoa(n) + "s"
	}
	d, err := time.ParseDuration(s)
	switch {
	case s == "forever":
		*k = -1
	case err != nil || d < 0:
		return errors.New("want a time as 10m, seconds, or forever")
	default:
		*k = keepAlive(d)
	}
	return nil
}

// modelSpec is a model to be served.
type modelSpec struct {
	path    string // "" is the demo
	found   bool   // in a given folder
	name    string
	aliases []string
	keep    time.Duration
	options karat.Options
}

// models returns the models of the command line, and of the file of --config; the demo if there are none.
func (f *serveFlags) models(args []string, more []modelSpec) (all []modelSpec, err error) {
	o := must(f.model.engine.options(f.changed))
	for _, arg := range args {
		named := must(namedModel(arg))
		found := must(modelsIn(named.Path))
		for _, p := range found {
			all = append(all, modelSpec{path: p, found: p != named.Path, name: cmp.Or(named.Name, modelName(p)),
				keep: time.Duration(f.model.keep), options: o})
		}
	}
	if all = append(all, more...); len(all) == 0 {
		all = []modelSpec{{name: modelName(""), keep: -1, options: o}}
	}
	throw(f.alias(all))
	return all, checkNames(all)
}

// checkModels returns the models with sound files. A fault is an error for a named model; a model found in a folder is
// left out with a line about the reason.
func (f *serveFlags) checkModels(x *call, all []modelSpec) (good []modelSpec, err error) {
	for _, m := range all {
		fault := catch(func() error { return m.check(x.ctx) })
		switch {
		case fault == nil:
			good = append(good, m)
		case x.ctx.Err() != nil || f.check || !m.found:
			return nil, fault
		default:
			err = fault
			x.say("%s is left out: %v", m.path, fault)
		}
	}
	if len(good) == 0 {
		return nil, err
	}
	return good, nil
}

// check finds faults of a model's files, and a budget of keys and values without room for its first page, without
// reading weights.
func (m *modelSpec) check(ctx context.Context) error {
	c := must(openCheckpoint(m.path))
	defer c.Close()
	g, _ := must2(model.Graph(ctx, c, 0))
	if model.Encoder(g) {
		m.options.Context = 0 // its own: --ctx is for generating models
	}
	must(c.Tokenizer())
	n, err := numerics.Parse(string(m.options.Precision), string(m.options.KV))
	if err != nil || m.options.KVBudget == 0 || m.options.Backend != karat.CPU { // an open GPU alone knows its pages
		return err
	}
	return explainBudget(model.FitsBudget(g, n, m.options.KVBudget))
}

// checkNames finds a name shared by two models, before loading.
func checkNames(all []modelSpec) error {
	of := map[string]int{}
	for i, m := range all {
		for _, name := range append([]string{m.name}, m.aliases...) {
			if other, twice := of[name]; twice && other != i {
				return usagef("two models are named %q: %s and %s", name, cmp.Or(all[other].path, "the demo"),
					cmp.Or(m.path, "the demo"))
			}
			of[name] = i
		}
	}
	return nil
}

// server returns the server's description of a model.
func (m *modelSpec) server(stderr io.Writer) server.Model {
	s := server.Model{Name: m.name, Aliases: m.aliases, Keep: m.keep}
	if m.options.Backend != karat.CPU {
		s.Device = string(m.options.Backend)
	}
	s.Bytes, s.Changed = files(m.path)
	s.Load = func(ctx context.Context, memory int64) (*karat.Model, error) {
		o := m.options
		o.Memory = memory
		return loadModel(ctx, m.path, o, stderr)
	}
	return s
}

// part is the end of the names of a split model's files.
var part = regexp.MustCompile(`-(\d{5})-of-\d{5}$`)

// modelName returns the clients' name for the model at a path.
func modelName(path string) string {
	if path == "" {
		return "demo"
	}
	return part.ReplaceAllString(strings.TrimSuffix(filepath.Base(filepath.Clean(path)), ".gguf"), "")
}

// modelsIn returns the models in a folder that is none itself: GGUF files, the first of a split file, and folders of
// Hugging Face. Any other path is a model.
func modelsIn(path string) (all []string, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() || isModel(path) {
		return []string{path}, nil // opening it reports the fault
	}
	list, err := os.ReadDir(path)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	for _, e := range list {
		name := e.Name()
		stem := strings.TrimSuffix(name, ".gguf")
		n := part.FindStringSubmatch(stem)
		switch file := filepath.Join(path, name); {
		case strings.HasPrefix(name, "."):
		case stem != name && (n == nil || n[1] == "00001"), isModel(file):
			all = append(all, file)
		}
	}
	if len(all) == 0 {
		return nil, usagef("%s is no model, and there is none in it: no config.json, no file .gguf", path)
	}
	return all, nil
}

// isModel reports whether a folder is a model of Hugging Face.
func isModel(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "config.json"))
	return err == nil
}

// files returns the bytes of a model's files, and the time of the last write.
func files(path string) (bytes int64, changed time.Time) {
	add := func(info fs.FileInfo) {
		bytes += info.Size()
		if info.ModTime().After(changed) {
			changed = info.ModTime()
		}
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.IsDir():
		if n := part.FindStringIndex(strings.TrimSuffix(path, ".gguf")); n != nil {
			// the pattern is well-formed, or there is nothing to list
			parts, _ := filepath.Glob(path[:n[0]] + "-*.gguf")
			for _, p := range parts {
				if info, err := os.Stat(p); err == nil {
					add(info)
				}
			}
			return bytes, changed
		}
		add(info)
	default:
		list, _ := os.ReadDir(path) // opening it reports the fault
		for _, e := range list {
			if info, err := e.Info(); err == nil && !info.IsDir() {
				add(info)
			}
		}
	}
	return bytes, changed
}

// alias gives the models their other names: NAME for a single model, else NAME=MODEL.
func (f *serveFlags) alias(models []modelSpec) error {
	for _, a := range f.aliases {
		alias, of, ok := strings.Cut(a, "=")
		if !ok && len(models) > 1 {
			return usagef("--alias %s: there are %d models, want NAME=MODEL", a, len(models))
		}
		found := false
		for i := range models {
			if !ok || models[i].name == of {
				models[i].aliases, found = append(models[i].aliases, alias), true
			}
		}
		if !found {
			return usagef("--alias %s: there is no model %q", a, of)
		}
	}
	return nil
}

// variablePrefix begins the names of the variables for flags of serve.
const variablePrefix = "KARAT_SERVE_"

// maxConfig bounds a file of --config, in bytes.
const maxConfig = 1 << 20

// configure sets the flags missing from the command line: by their variables, then by the file of --config, and returns
// the file's models.
func (f *serveFlags) configure(c *command) (more []modelSpec, err error) {
	f.changed = c.Flags().Changed
	c.Flags().VisitAll(func(g *pflag.Flag) {
		variable := variablePrefix + strings.ToUpper(strings.ReplaceAll(g.Name, "-", "_"))
		if text, ok := os.LookupEnv(variable); ok && text != "" && !g.Changed && err == nil {
			if e := c.Flags().Set(g.Name, text); e != nil {
				err = usageError{fmt.Errorf("%s=%q: %w", variable, text, e)}
			}
		}
	})
	if err != nil || f.config == "" {
		return nil, err
	}
	text := must(readWhole(f.config, maxConfig))
	if more, err = f.read(c, []byte(text)); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", f.config, err)}
	}
	return more, nil
}

// configValue is a name and a value of a file, in its order.
type configValue struct {
	name  string
	value json.RawMessage
}

// settings returns the members of a JSON object, each name once.
func settings(text []byte) (all []configValue, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("want a JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		s := configValue{name: fmt.Sprint(t)}
		if slices.ContainsFunc(all, func(x configValue) bool { return x.name == s.name }) {
			return nil, fmt.Errorf("%q is there twice", s.name)
		}
		if err := d.Decode(&s.value); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, s)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows the JSON object")
	}
	return all, nil
}

// read sets flags by a file's text.
func (f *serveFlags) read(c *command, text []byte) (more []modelSpec, err error) {
	all, err := settings(text)
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	for _, s := range all {
		switch {
		case s.name == "models":
			if err := json.Unmarshal(s.value, &list); err != nil {
				return nil, errors.New("models: want an array of objects")
			}
		case s.name == "config" || s.name == "check-config" || s.name == "help" || c.Flags().Lookup(s.name) == nil:
			return nil, fmt.Errorf("%q is no flag of serve", s.name)
		case !c.Flags().Changed(s.name):
			if err := set(c, s); err != nil {
				return nil, err
			}
		}
	}
	for i, m := range list { // after the flags, common to all models
		spec, err := f.readModel(m)
		if err != nil {
			return nil, fmt.Errorf("models[%d]: %w", i, err)
		}
		more = append(more, spec)
	}
	return more, nil
}

// set sets a flag by a value of JSON: a string, a number or a boolean, or an array of them.
func set(c *command, s configValue) error {
	values := []json.RawMessage{s.value}
	if s.value[0] == '[' {
		if err := json.Unmarshal(s.value, &values); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, v := range values {
		var text string
		switch v[0] {
		case '"':
			if err := json.Unmarshal(v, &text); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		case '{', '[', 'n':
			return fmt.Errorf("%s: want a string, a number, true or false, or an array of them", s.name)
		default:
			text = string(v)
		}
		if err := c.Flags().Set(s.name, text); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// readModel reads a model of a file: its path, and its own flags.
func (f *serveFlags) readModel(text []byte) (m modelSpec, err error) {
	all, err := settings(text)
	if err != nil {
		return m, err
	}
	var own servedFlags
	c := &command{Command: &cobra.Command{}, words: helpWords()["serve"]}
	own.add(c)
	own = f.model // unless the file says something else
	own.engine.lora = slices.Clone(f.model.engine.lora)
	c.Flags().StringVar(&m.path, "path", "", "")
	c.Flags().StringVar(&own.name, "name", "", "")
	c.Flags().StringArrayVar(&own.aliases, "alias", nil, "")
	for _, s := range all {
		if c.Flags().Lookup(s.name) == nil {
			return m, fmt.Errorf("%q is nothing that is said of a model", s.name)
		}
		if s.name == "lora" {
			own.engine.lora = nil
		}
		if err := set(c, s); err != nil {
			return m, err
		}
	}
	if m.options, err = own.engine.options(c.Flags().Changed); err != nil {
		return m, err
	}
	if m.path == "" {
		return m, errors.New("path is missing: want a model's file, folder or name")
	}
	named, err := namedModel(m.path)
	if err != nil {
		return m, err
	}
	m.path, m.aliases, m.keep = named.Path, own.aliases, time.Duration(own.keep)
	m.name = cmp.Or(own.name, named.Name, modelName(m.path))
	return m, nil
}
