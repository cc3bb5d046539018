package main

import (
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
	"github.com/spf13/pflag"
)

// openStore opens the store of models.
func openStore() (*hub.Store, error) {
	dir, err := local.DefaultDir()
	if err != nil {
		return nil, err
	}
	return hub.Open(dir)
}

// findModel is the path of a MODEL: a path, a name of the store, or a reference that was pulled. "" is the demo.
func findModel(model string) (string, error) {
	f, err := namedModel(model)
	return f.Path, err
}

// namedModel is findModel, with the model's name in the store if it has one.
func namedModel(model string) (local.Found, error) {
	if model == "" {
		return local.Found{}, nil
	}
	return hub.Find(model)
}

// modelFlag is a flag that takes a MODEL. Before a command runs it is made the path of that (findModels).
type modelFlag string

func (m *modelFlag) String() string     { return string(*m) }
func (m *modelFlag) Type() string       { return "model" }
func (m *modelFlag) Set(s string) error { return (*name)(m).Set(s) }

// findModels makes the flags of a command that name models their paths. A model that is not found stays a name, of which who opens it
// says that: by then the command has looked at its other flags.
func findModels(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if m, ok := f.Value.(*modelFlag); ok {
			if path, err := findModel(string(*m)); err == nil {
				*m = modelFlag(path)
			}
		}
	})
}

func newListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the models that were pulled",
		Long: `List prints the models in the store: name, size, type, and when they were pulled. Unfinished
downloads are listed too; "karat rm NAME" discards one.`,
		Args: atMost(0, "all models are listed"),
		RunE: func(c *cobra.Command, _ []string) error { return listModels(c, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the manifests as one JSON array")
	return c
}

func listModels(c *cobra.Command, asJSON bool) error {
	s, err := openStore()
	if err != nil {
		return err
	}
	defer s.Close()
	all, broken := s.List()
	w := c.OutOrStdout()
	if asJSON {
		e := newEncoder(w)
		e.SetIndent("", "  ")
		return errors.Join(e.Encode(append([]*hub.Manifest{}, all...)), broken)
	}
	pulls, err := s.Unfinished()
	broken = errors.Join(broken, err)
	if len(all)+len(pulls) == 0 {
		fmt.Fprintf(c.ErrOrStderr(), "karat: no models in %s: karat pull gets one\n", s.Dir())
		return broken
	}
	t := newTable(w)
	fmt.Fprintf(t, "NAME\tSIZE\tTYPE\tPULLED\n")
	for _, m := range all {
		kind := m.Type
		if kind == "" {
			kind = string(m.Format)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, bytesText(m.Bytes()), oneLine(kind), m.Pulled.Local().Format(time.DateTime))
	}
	for _, u := range pulls {
		fmt.Fprintf(t, "%s\t\tunfinished: karat pull %s goes on\t%s\n", u.Name, oneLine(u.Source), u.Began.Local().Format(time.DateTime))
	}
	return errors.Join(t.Flush(), broken)
}

func newShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Show what a model is, and where it came from",
		Long: `Show prints where a pulled model came from, its files, its license and the memory it needs.
"karat inspect NAME" prints its settings and tensors.`,
		Example: `  karat show Qwen3-0.6B:Q4_K_M`,
		Args:    byUse,
		RunE:    func(c *cobra.Command, args []string) error { return showModel(c, args[0]) },
	}
}

func showModel(c *cobra.Command, name string) error {
	s, err := openStore()
	if err != nil {
		return err
	}
	defer s.Close()
	m, err := s.Get(name)
	if err != nil {
		if _, missing := os.Stat(name); missing == nil {
			return fmt.Errorf("%s is not the name of a pulled model: \"karat inspect %s\" shows a file or a folder", name, name)
		}
		return err
	}
	path, err := s.Path(m)
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	t := newTable(w)
	fmt.Fprintf(t, "name\t%s\n", m.Name)
	fmt.Fprintf(t, "from\t%s\n", oneLine(m.Source))
	if m.Revision != "" {
		fmt.Fprintf(t, "revision\t%s\n", oneLine(m.Revision))
	}
	fmt.Fprintf(t, "pulled\t%s\n", m.Pulled.Local().Format(time.DateTime))
	for _, f := range m.Files {
		fmt.Fprintf(t, "file\t%s, %s, %s\n", oneLine(f.Path), bytesText(f.Size), f.SHA256)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	facts, broken := describe(c.Context(), path)
	if facts == nil {
		return broken
	}
	if m.License == "" {
		m.License = facts.license
	}
	if err := facts.write(w, m); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "tensors        karat inspect %s\n", m.Name); err != nil {
		return err
	}
	return broken
}

func newRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME...",
		Short: "Remove models that were pulled",
		Long: `Rm removes models from the store, and the files that no other model has. An unfinished
download is discarded by its name.`,
		Example: `  karat rm Qwen3-0.6B:Q4_K_M`,
		Args:    byUse,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openStore()
			if err != nil {
				return err
			}
			defer s.Close()
			for _, name := range args {
				m, _ := s.Get(name) // an unfinished pull has no manifest
				free, err := s.Remove(c.Context(), name)
				if err != nil {
					return err
				}
				text := fmt.Sprintf("removed %s; %s freed", name, bytesIn(free))
				if m != nil && free == 0 {
					if names := s.Sharing(m); len(names) > 0 {
						text = fmt.Sprintf("removed %s; its %s are still used by %s", name, bytesIn(m.Bytes()), strings.Join(names, ", "))
					}
				}
				if _, err := fmt.Fprintln(c.OutOrStdout(), text); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newCopyCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cp NAME NEW",
		Short:   "Give a model a second name",
		Long:    `Cp gives a pulled model a second name. It takes no room, since the files are the same.`,
		Example: `  karat cp Qwen3-0.6B:Q4_K_M small`,
		Args:    byUse,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := openStore()
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Copy(c.Context(), args[0], args[1])
		},
	}
}

// hostVariable names the server that karat ps asks.
const hostVariable = "KARAT_HOST"

func newRunningCommand() *cobra.Command {
	var url string
	c := &cobra.Command{
		Use:   "ps",
		Short: "List the models that a running server has loaded",
		Long: `Ps asks a server (karat serve, or another with Ollama's routes) which models it has loaded.
The server is --url, or the variable KARAT_HOST, or http://127.0.0.1:8080. If it wants a key, the variable
KARAT_API_KEY has it.`,
		Args: atMost(0, "the server goes after --url"),
		RunE: func(c *cobra.Command, _ []string) error { return listRunning(c, url) },
	}
	c.Flags().StringVar(&url, "url", "", "`address` of the server")
	return c
}

func listRunning(c *cobra.Command, url string) error {
	if url == "" {
		url = os.Getenv(hostVariable)
	}
	if url == "" {
		url = "127.0.0.1:8080"
	}
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	key := os.Getenv(keyVariable)
	if _, secret, ok := strings.Cut(key, ":"); ok {
		key = secret
	}
	ctx, stop := untilSignal()
	defer stop()
	data, err := hub.Running(ctx, url, strings.TrimSpace(key))
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
	t := newTable(c.OutOrStdout())
	fmt.Fprintf(t, "NAME\tSIZE\tTYPE\tUNTIL\n")
	for _, m := range answer.Models {
		until := m.Expires
		if t, err := time.Parse(time.RFC3339, until); until == "" || err == nil && t.Year() == 9999 { // as the server writes of a model that stays
			until = "forever"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", oneLine(m.Name), bytesText(m.Size), oneLine(strings.TrimSpace(m.Details.Format+" "+m.Details.Family)), oneLine(until))
	}
	return t.Flush()
}
