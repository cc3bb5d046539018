package main

import (
	"os"

	"github.com/karat-run/karat/internal/dev/parrot"
	"github.com/rogpeppe/go-internal/testscript"
)

// parrotScript is a script's command: parrot MODEL TEMPLATE TEXT CONTROL... writes a model that says the text of a file. CONTROL
// names its control tokens. It says the text of TEXT.then after a tool's result.
func parrotScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: parrot MODEL TEMPLATE TEXT CONTROL...")
	}
	template, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	text := ts.ReadFile(args[2])
	o := parrot.Options{Control: args[3:], Context: 16384}
	if then, err := os.ReadFile(ts.MkAbs(args[2] + ".then")); err == nil {
		o.Control, o.After, o.Then = append(o.Control, "<tool_response>"), "<tool_response>", string(then[:len(then)-1])
	}
	ts.Check(parrot.WriteFile(ts.MkAbs(args[0]), string(template), text[:len(text)-1], o))
}
