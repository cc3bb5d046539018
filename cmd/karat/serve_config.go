package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
