package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/karat-run/karat/internal/golden"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"karat": main}) }

// TestScripts runs testdata/script: command lines and what they print.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TESTDATA", golden.Repo(t))
			return writeHostile(e.WorkDir)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "forget": forget, "e2b": e2b},
	})
}

// exits is a script's command: exits STATUS PROGRAM ARGUMENTS...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARGUMENTS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// forget is a script's command: forget KEY FILE writes the demo without a key.
func forget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 || bytes.Count(demo, []byte(args[0])) != 1 {
		ts.Fatalf("usage: forget KEY FILE")
	}
	other := bytes.Repeat([]byte("x"), len(args[0])) // of the same length: everything stays in its place
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes.Replace(demo, []byte(args[0]), other, 1), 0o666))
}

// writeHostile writes files that are no models, though they begin as such.
func writeHostile(dir string) error {
	header := func(counts ...uint64) []byte { // of tensors and of keys
		b := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
		for _, n := range counts {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
		return b
	}
	key := append(binary.LittleEndian.AppendUint64(header(0, 1), 1<<62), make([]byte, 64)...) // a name of 2^62 bytes
	for name, data := range map[string][]byte{
		"short.gguf":  header(0)[:10],
		"counts.gguf": header(1<<60, 1<<60),
		"key.gguf":    key,
		"empty.gguf":  header(0, 0),
		"text.gguf":   []byte("once upon a time there was no model"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func TestDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -100: "-100", 1234567: "1,234,567"} {
		if got := digits(n); got != want {
			t.Errorf("digits(%d) = %q, want %q", n, got, want)
		}
	}
}
