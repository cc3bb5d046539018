package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/checkpoint"
	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
	"github.com/karat-run/karat/internal/model"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

// openStore opens the store of models.
func openStore() (*hub.Store, error) {
	dir, err := local.DefaultDir()
	if err != nil {
		return nil, err
	}
	return hub.Open(dir)
}

// withStore returns a run with the store, for a command about models.
func withStore(do func(x *call, s *hub.Store) error) func(*call) error {
	return func(x *call) error {
		s := must(openStore())
		defer s.Close()
		return do(x, s)
	}
}

func newListCommand() *cobra.Command {
	var asJSON bool
	c := define("list", withStore(func(x *call, s *hub.Store) error { return listModels(x, s, asJSON) }))
	c.Aliases = []string{"ls"}
	c.flags("json", &asJSON)
	return c.Command
}

func listModels(x *call, s *hub.Store, asJSON bool) error {
	all, broken := s.List()
	if asJSON {
		return errors.Join(x.json(append([]*hub.Manifest{}, all...)), broken)
	}
	pulls, err := s.Unfinished()
	broken = errors.Join(broken, err)
	if len(all)+len(pulls) == 0 {
		x.say("no models in %s: karat pull gets one", s.Dir())
		return broken
	}
	t := newTable(x.out)
	fmt.Fprintf(t, "NAME\tSIZE\tTYPE\tPULLED\n")
	for _, m := range all {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, bytesText(m.Bytes()), oneLine(cmp.Or(m.Type, string(m.Format))),
			m.Pulled.Local().Format(time.DateTime))
	}
	for _, u := range pulls {
		fmt.Fprintf(t, "%s\t\tunfinished: karat pull %s goes on\t%s\n", u.Name, oneLine(u.Source),
			u.Began.Local().Format(time.DateTime))
	}
	return errors.Join(t.Flush(), broken)
}

func newShowCommand() *cobra.Command { return define("show", withStore(showModel)).Command }

func showModel(x *call, s *hub.Store) error {
	name := x.args[0]
	m, err := s.Get(name)
	if err != nil {
		if _, missing := os.Stat(name); missing == nil {
			return fmt.Errorf("%s is not the name of a pulled model: \"karat inspect %s\" shows a file or a folder",
				name, name)
		}
		return err
	}
	path := must(s.Path(m))
	t := newTable(x.out)
	fmt.Fprintf(t, "name\t%s\nfrom\t%s\n", m.Name, oneLine(m.Source))
	if m.Revision != "" {
		fmt.Fprintf(t, "revision\t%s\n", oneLine(m.Revision))
	}
	fmt.Fprintf(t, "pulled\t%s\n", m.Pulled.Local().Format(time.DateTime))
	for _, f := range m.Files {
		fmt.Fprintf(t, "file\t%s, %s, %s\n", oneLine(f.Path), bytesText(f.Size), f.SHA256)
	}
	throw(t.Flush())
	facts, broken := describe(x.ctx, path)
	if facts == nil {
		return broken
	}
	throw(facts.write(x.out, m))
	return errors.Join(x.printf("tensors        karat inspect %s\n", m.Name), broken)
}

func newRemoveCommand() *cobra.Command { return define("rm", withStore(removeModels)).Command }

func removeModels(x *call, s *hub.Store) error {
	for _, name := range x.args {
		m, _ := s.Get(name) // an unfinished pull has no manifest
		free := must(s.Remove(x.ctx, name))
		text := fmt.Sprintf("removed %s; %s freed", name, bytesIn(free))
		if m != nil && free == 0 {
			if names := s.Sharing(m); len(names) > 0 {
				text = fmt.Sprintf("removed %s; its %s are still used by %s", name, bytesIn(m.Bytes()),
					strings.Join(names, ", "))
			}
		}
		throw(x.printf("%s\n", text))
	}
	return nil
}

func newCopyCommand() *cobra.Command {
	return define("cp", withStore(func(x *call, s *hub.Store) error {
		return s.Copy(x.ctx, x.args[0], x.args[1])
	})).Command
}

// hostVariable names the server asked by karat ps.
const hostVariable = "KARAT_HOST"

func newRunningCommand() *cobra.Command {
	var url string
	c := define("ps", func(x *call) error {
		return listRunning(x, cmp.Or(url, os.Getenv(hostVariable), "127.0.0.1:8080"))
	})
	c.flags("url", &url)
	return c.Command
}

func listRunning(x *call, url string) error {
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	key := os.Getenv(keyVariable)
	if _, secret, ok := strings.Cut(key, ":"); ok {
		key = secret
	}
	data, err := hub.Running(x.ctx, url, strings.TrimSpace(key))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no server answers at %s: \"karat serve\" starts one, --url names another one", url)
	} else if err != nil {
		return err
	}
	var answer struct {
		Models []struct {
			Name    string `json:"name"`
			Size    int64  `json:"size"`
			Details struct {
				Format string `json:"format"`
				Family string `json:"family"`
			} `json:"details"`
			Expires string `json:"expires_at"`
		} `json:"models"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return fmt.Errorf("%s/api/ps: %w", url, err)
	}
	t := newTable(x.out)
	fmt.Fprintf(t, "NAME\tSIZE\tTYPE\tUNTIL\n")
	for _, m := range answer.Models {
		until := m.Expires
		// of a model without an end
		if t, err := time.Parse(time.RFC3339, until); until == "" || err == nil && t.Year() == 9999 {
			until = "forever"
		}
		kind := strings.TrimSpace(m.Details.Format + " " + m.Details.Family)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(m.Name), bytesText(m.Size), oneLine(kind), oneLine(until))
	}
	return t.Flush()
}

// pullFlags are the flags of pull.
type pullFlags struct {
	rate  size
	lines int
	check bool
}

func newPullCommand() *cobra.Command {
	f := pullFlags{lines: 4}
	c := define("pull", f.run)
	c.flags("limit-rate", &f.rate, "connections", &f.lines, "check", &f.check)
	return c.Command
}

func (f *pullFlags) run(x *call) error {
	if f.lines < 1 || f.lines > 32 {
		return usagef("--connections %d: want 1 to 32", f.lines)
	}
	reference, name := x.args[0], ""
	if _, err := hub.ParseReference(reference); err != nil {
		return usageError{err}
	}
	if len(x.args) > 1 {
		name = x.args[1]
		if err := hub.CheckName(name); err != nil {
			return usageError{err}
		}
	}
	s := must(openStore())
	defer s.Close()
	p := newProgress(x.log, reference)
	m, err := s.Pull(x.ctx, reference, hub.PullOptions{Name: name, Rate: int64(f.rate), Lines: f.lines,
		Progress: p.download, Note: x.note})
	p.end()
	if err != nil {
		return x.orInterrupted(err, keptPull)
	}
	path := must(s.Path(m))
	if throw(tellPulled(x, s, m, path)); !f.check {
		return nil
	}
	return new(checkFlags).run(x, path)
}

// keptPull is the state of an interrupted pull.
const keptPull = ": what has come is kept, and the same command goes on with it"

// tellPulled describes the pulled model, with the notes to read before using it.
func tellPulled(x *call, s *hub.Store, m *hub.Manifest, path string) error {
	throw(x.printf("%s: %s in %s, from %s\n", m.Name, bytesIn(m.Bytes()), count(len(m.Files), "file"),
		oneLine(m.Source)))
	facts, broken := describe(x.ctx, path)
	if facts == nil {
		return fmt.Errorf("it was pulled, but does not open: %w", broken)
	}
	throw(s.SetType(x.ctx, m.Name, facts.kind))
	throw(facts.write(x.out, m))
	if broken != nil {
		return fmt.Errorf("it was pulled, but does not run: %w", broken)
	}
	return nil
}

// facts are the facts of a model of interest before a run.
type facts struct {
	kind           string // format, family and type of weights
	use            string // the command for the model
	weights, cache int64  // bytes; cache is 0 where the model does not load
	context        int
	license        string
	template       *templateFacts
}

// describe opens a model and returns its facts, also beside the error of a model without a graph.
func describe(ctx context.Context, path string) (*facts, error) {
	m, err := checkpoint.Open(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r := newReport(m, nil)
	f := &facts{kind: fmt.Sprintf("%s %s", m.Format, m.Arch), weights: m.Bytes(), context: model.DefaultContext,
		template: r.Template}
	if len(r.Types) > 0 {
		f.kind += " " + r.Types[0].Type
	}
	for _, e := range m.Metadata {
		if e.Key == "general.license" {
			f.license = e.Value
		}
	}
	g, _, err := model.Graph(ctx, m, 0)
	if err != nil {
		return f, err
	}
	f.use = "run"
	if e, err := describeEncoder(m, g); err == nil && e != nil {
		if f.use = "embed"; e.Ranks {
			f.use = "rerank"
		}
	}
	n, err := numerics.Parse(string(karat.Fast), "")
	if err != nil {
		return f, err
	}
	if most := m.ContextLength(); most > 0 {
		f.context = min(f.context, most)
	}
	f.weights, f.cache = f.weights+n.Repacked(g), n.CacheBytes(g, 0, f.context)
	_, err = m.Tokenizer()
	return f, err
}

func (f *facts) write(w io.Writer, m *hub.Manifest) error {
	t := newTable(w)
	fmt.Fprintf(t, "type\t%s\n", oneLine(f.kind))
	if f.cache > 0 {
		fmt.Fprintf(t, "memory\t%s: weights %s, KV cache of %d tokens %s", gibibytes(f.weights+f.cache),
			gibibytes(f.weights), f.context, gibibytes(f.cache))
		if free := sysinfo.Memory(); free > 0 {
			fmt.Fprintf(t, "; %s is free", gibibytes(free))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "license\t%s\n", oneLine(cmp.Or(m.License, f.license, "not said")))
	if f.template == nil {
		fmt.Fprintf(t, "chat template\tnone\n")
	} else {
		fmt.Fprintf(t, "chat template\t%s, sha256 %s\n", count(f.template.Bytes, "byte"), f.template.SHA256)
	}
	if f.use != "" {
		fmt.Fprintf(t, "next\tkarat %s %s\n", f.use, m.Name)
	}
	return t.Flush()
}
