package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/karat-run/karat/internal/lab/mistake"
	"github.com/spf13/cobra"
)

func newCausesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "causes",
		Short: "List the causes of wrong logits that the lab can name",
		Long: `Causes prints the catalogue. Each cause has its ID, which is stable, the operation, the
engine's mistake, the numbers of the known faults behind it (in the list that the
catalogue was made from), where it was met, and how to fix it.`,
		Example: `  karat lab causes
  karat lab causes --json | jq '.[] | select(.op == "RoPE") | .id'`,
		Args: byUse,
		RunE: func(c *cobra.Command, _ []string) error {
			if !asJSON {
				return writeCauses(c.OutOrStdout())
			}
			e := newEncoder(c.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(mistake.All())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	return c
}

func writeCauses(w io.Writer) error {
	var b strings.Builder
	kind := mistake.Kind("")
	for _, c := range mistake.All() {
		if c.Kind != kind {
			kind = c.Kind
			fmt.Fprintf(&b, "%s\n", kind)
		}
		fmt.Fprintf(&b, "  %s", c.ID)
		if c.Op != "" {
			fmt.Fprintf(&b, " (%s)", c.Op)
		}
		fmt.Fprintf(&b, "\n      %s\n", c.Sentence)
		if numbers := strings.Trim(fmt.Sprint(c.Numbers), "[]"); numbers != "" {
			fmt.Fprintf(&b, "      known faults: %s\n", strings.ReplaceAll(numbers, " ", ", "))
		}
		if c.Story != "" {
			fmt.Fprintf(&b, "      met: %s\n", c.Story)
		}
		fmt.Fprintf(&b, "      fix: %s\n", c.Fix)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
