package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/patherr"
	"github.com/karat-run/karat/server"
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
		fault := m.check(x.ctx)
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
	c, err := openCheckpoint(m.path)
	if err != nil {
		return err
	}
	defer c.Close()
	g, _, err := model.Graph(ctx, c, 0)
	if err != nil {
		return err
	}
	if model.Encoder(g) {
		m.options.Context = 0 // its own: --ctx is for generating models
	}
	if _, err := c.Tokenizer(); err != nil {
		return err
	}
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
