package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/karat-run/karat/internal/hub"
	"github.com/karat-run/karat/internal/hub/local"
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
		s, err := openStore()
		if err != nil {
			return err
		}
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
