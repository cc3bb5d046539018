package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/model"
	"github.com/spf13/cobra"
)

// adapters is the values of --lora.
type adapters []karat.Adapter

// add registers the flag.
func (a *adapters) add(c *cobra.Command) {
	c.Flags().Var(a, "lora", "low-rank adapter, a GGUF `file` or a PEFT folder; FILE:0.5 adds half of it; may be given again")
}

func (a *adapters) String() string {
	var all []string
	for _, x := range *a {
		all = append(all, x.Path+":"+strconv.FormatFloat(x.Scale, 'g', -1, 64))
	}
	return strings.Join(all, ",")
}

func (a *adapters) Type() string { return "file" }

// Set takes FILE or FILE:SCALE. What follows the last colon is a scale if it is a number, and
// if no file has all of it for its name.
func (a *adapters) Set(s string) error {
	x := karat.Adapter{Path: s, Scale: 1}
	if _, err := os.Stat(s); err == nil {
		*a = append(*a, x)
		return nil
	}
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		if by, err := strconv.ParseFloat(s[i+1:], 64); err == nil {
			x.Path, x.Scale = s[:i], by
		} else if _, e := os.Stat(s[:i]); e == nil {
			return fmt.Errorf("%q after the last colon is no number", s[i+1:])
		}
	}
	switch {
	case x.Path == "":
		return errors.New("it is empty")
	case math.IsNaN(x.Scale) || math.IsInf(x.Scale, 0):
		return errors.New("the scale is no finite number")
	}
	*a = append(*a, x)
	return nil
}

// model are the adapters for commands that have an engine of their own.
func (a adapters) model() (list []model.Adapter) {
	for _, x := range a {
		list = append(list, model.Adapter{Path: x.Path, By: x.Scale})
	}
	return list
}

// json are the adapters as a summary tells of them.
func (a adapters) json() (list []jsonAdapter) {
	for _, x := range a {
		list = append(list, jsonAdapter{x.Path, x.Scale})
	}
	return list
}
