package main

import (
	"os"

	"github.com/karat-run/karat/internal/dev/parrot"
	"github.com/rogpeppe/go-internal/testscript"
)

// parrotScript is a script's command: parrot MODEL TEMPLATE TEXT CONTROL... writes a model that says the text of a file. CONTROL
// names its control tokens.
func parrotScript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: parrot MODEL TEMPLATE TEXT CONTROL...")
	}
	template, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	text := ts.ReadFile(args[2])
	ts.Check(parrot.WriteFile(ts.MkAbs(args[0]), string(template), text[:len(text)-1], parrot.Options{Control: args[3:]}))
}
