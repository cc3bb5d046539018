package report

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/karat-run/karat/internal/lab/diagnose"
	"github.com/karat-run/karat/internal/lab/mistake"
)

// sarifLog is the form of static analysis results, version 2.1.0, as far as a diagnosis has a use for it.
type sarifLog struct {
	Schema  string     `json:"$schema"`
	Version string     `json:"version"`
	Runs    []sarifRun `json:"runs"`
}

type sarifRun struct {
	Tool struct {
		Driver struct {
			Name  string      `json:"name"`
			Rules []sarifRule `json:"rules"`
		} `json:"driver"`
	} `json:"tool"`
	Results    []sarifResult     `json:"results"`
	Properties map[string]string `json:"properties"`
}

// sarifRule is a cause.
type sarifRule struct {
	ID    string    `json:"id"`
	Short sarifText `json:"shortDescription"`
	Help  sarifText `json:"help"`
}

type sarifText struct {
	Text string `json:"text"`
}

// sarifResult is a finding. Its place is an operation of the model, not a line of a file.
type sarifResult struct {
	RuleID     string          `json:"ruleId"`
	Level      string          `json:"level"`
	Message    sarifText       `json:"message"`
	Locations  []sarifLocation `json:"locations"`
	Properties map[string]any  `json:"properties"`
}

type sarifLocation struct {
	Logical []sarifLogical `json:"logicalLocations"`
}

type sarifLogical struct {
	Name string `json:"fullyQualifiedName"`
	Kind string `json:"kind"`
}

// SARIF writes the findings for tools that gather results of analyses. Rounding is a note. A verdict against the engine
// without another finding is a result itself: a run without results counts as passed.
func SARIF(w io.Writer, d *diagnose.Diagnosis) error {
	run := sarifRun{Results: []sarifResult{}, Properties: map[string]string{"verdict": name(string(d.Verdict)),
		"model": base(d.Model), "dump": base(d.Dump)}}
	driver := &run.Tool.Driver
	driver.Name, driver.Rules = "karat lab diagnose", []sarifRule{}
	for i := range d.Findings[:min(len(d.Findings), maxList)] {
		f := &d.Findings[i]
		known, _ := mistake.Find(f.Cause)
		hasRule := func(r sarifRule) bool { return r.ID == f.Cause }
		if !slices.ContainsFunc(driver.Rules, hasRule) {
			driver.Rules = append(driver.Rules, sarifRule{f.Cause, sarifText{known.Sentence}, sarifText{known.Fix}})
		}
		r := sarifResult{RuleID: f.Cause, Level: "error", Locations: []sarifLocation{},
			Properties: map[string]any{"layers": f.Layers, "residual": f.Residual, "floor": f.Floor,
				"add_taps": sentences(f.AddTaps)}}
		r.Message.Text = where(d, f) + ": the engine " + sentence(f.Computed) + "; " + sentence(f.Fix)
		if rounding(*f) {
			r.Level = "note"
		}
		if more := others(len(f.Nodes), "operation"); more != "" {
			r.Message.Text += "; the places " + more
		}
		for _, n := range f.Nodes[:min(len(f.Nodes), maxList)] {
			r.Locations = append(r.Locations, sarifLocation{[]sarifLogical{{name(n), "function"}}})
		}
		run.Results = append(run.Results, r)
	}
	alone := func(id, level, short, help, text string) {
		driver.Rules = append(driver.Rules, sarifRule{id, sarifText{short}, sarifText{help}})
		run.Results = append(run.Results, sarifResult{RuleID: id, Level: level, Message: sarifText{text},
			Locations: []sarifLocation{}, Properties: map[string]any{}})
	}
	if more := others(len(d.Findings), "finding"); more != "" {
		alone("more", "warning", "Findings are left out.", "Look at the whole diagnosis: karat lab diagnose.", more)
	}
	isError := func(r sarifResult) bool { return r.Level == "error" }
	if !isRight(d.Verdict) && !slices.ContainsFunc(run.Results, isError) {
		alone(name(string(d.Verdict)), "error", meaning(d.Verdict), "Look at the whole diagnosis: karat lab diagnose.",
			headline(d))
	}
	if len(d.Errors) > 0 {
		alone("dump", "error", "Values of the dump were not looked at.", "Give the taps names that have a place.",
			strings.Join(sentences(d.Errors), " "))
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}})
}
