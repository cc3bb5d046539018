package main

import (
	"fmt"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/convert"
	"github.com/spf13/cobra"
)

// checkFlags are the flags of check.
type checkFlags struct {
	against, fix string
	json         bool
}

func newCheckCommand() *cobra.Command {
	var f checkFlags
	c := define("check", func(x *call) error {
		path, err := x.find()
		if err == nil && f.fix != "" {
			path, err = f.repair(x, path)
		}
		if err != nil {
			return failure{statusUsage, err}
		}
		return f.run(x, path)
	})
	c.flags("against", file(&f.against), "fix", file(&f.fix), "json", &f.json)
	c.takesModel()
	return c.Command
}

func (f *checkFlags) run(x *call, path string) error {
	resolve(&f.against)
	p := newLateProgress(x.log, path)
	r, err := karat.Check(x.ctx, path, karat.CheckOptions{Against: f.against, Progress: p.bytes})
	p.end()
	switch {
	case x.isEnded(err):
		return x.interrupted(": " + path + " was not checked to the end")
	case err == nil && f.json:
		err = x.json(r)
	case err == nil:
		err = x.printf("%s", checkText(r))
	}
	switch {
	case err != nil:
		return failure{statusUsage, err} // no finding
	case !r.Clean():
		return failure{status: statusError}
	}
	return nil
}

// checkText returns a report for people, an area after the other.
func checkText(r *karat.CheckReport) string {
	out := new(strings.Builder)
	fmt.Fprintf(out, "%s: %s, %s, %s, %s\n", oneLine(r.Path), r.Format, oneLine(r.Architecture),
		count(r.Tensors, "tensor"), bytesText(r.Bytes))
	if r.Against != "" {
		fmt.Fprintf(out, "%s compared with %s\n", count(r.Compared, "tensor"), oneLine(r.Against))
	}
	number := map[string]int{}
	area := ""
	for _, f := range r.Findings {
		if string(f.Area) != area {
			area = string(f.Area)
			fmt.Fprintf(out, "\n%s\n", area)
		}
		number[string(f.Severity)]++
		fmt.Fprintf(out, "  %s: %s\n", f.Severity, f.ID)
		writeEntry(out, "", f.What)
		if len(f.Where) > 1 {
			writeEntry(out, "in", listFew(f.Where, 3))
		}
		writeEntry(out, "means", f.Means)
		writeEntry(out, "fix", f.Fix)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintf(out, "\nnothing was found\n")
	} else {
		fmt.Fprintf(out, "\n%s, %s, %s\n", count(number["error"], "error"), count(number["warning"], "warning"),
			count(number["note"], "note"))
	}
	if len(r.Unproven) > 0 {
		fmt.Fprintf(out, "\nwhat such a check does not see:\n")
	}
	for _, u := range r.Unproven {
		fmt.Fprintf(out, "  - %s\n", oneLine(u))
	}
	return out.String()
}

// writeEntry writes a text beside its label, in lines of bounded length.
func writeEntry(out *strings.Builder, label, text string) {
	const width = 100
	line := fmt.Sprintf("    %-6s", label)
	for _, word := range strings.Fields(oneLine(text)) {
		if len(line)+len(word) >= width && len(line) > 10 {
			out.WriteString(line + "\n")
			line = strings.Repeat(" ", 10)
		}
		line += " " + word
	}
	out.WriteString(line + "\n")
}

// repair writes the copy, prints the changes, and returns its name.
func (f *checkFlags) repair(x *call, path string) (string, error) {
	if f.against == "" {
		return "", usagef("--fix needs --against FOLDER, which the model was made from")
	}
	resolve(&f.against)
	if err := refuseOverwrite("--fix "+f.fix, f.fix, path, f.against); err != nil {
		return "", err
	}
	changes, err := convert.Repair(x.ctx, path, f.against, f.fix, x.checkLoads)
	if err != nil {
		return "", err
	}
	w := x.out
	if f.json { // the report alone is there
		w = x.log
	}
	return f.fix, writeChanges(w, f.fix, changes, "\n")
}
