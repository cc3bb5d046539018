package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/atomicfile"
	"github.com/karat-run/karat/internal/dev/adaptertest"
	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/synth"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"karat": main}) }

// TestScripts runs testdata/script: command lines and what they print. Lines that begin with [slow] are of the long ring.
func TestScripts(t *testing.T) {
	seeded, testdata := filepath.Dir(golden.Model(t, "tiny-qwen2")), golden.Unpacked(t)
	reranker := golden.Model(t, "xlm-roberta-reranker")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			if !golden.Slow() {
				e.Setenv("GOMAXPROCS", "1") // scripts run beside each other, and a thread waiting for another is busy
			}
			e.Setenv("TESTDATA", testdata)
			e.Setenv("SEEDED", seeded)
			e.Setenv("RERANKER", reranker)
			e.Setenv("ROOT", golden.Root(t))
			e.Setenv("NL", "\n")
			return writeHostile(e.WorkDir)
		},
		Condition: func(name string) (bool, error) {
			if name != "slow" {
				return false, fmt.Errorf("no condition %q", name)
			}
			return golden.Slow(), nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits, "cutoff": cutoff, "forget": forget, "told": told, "stopped": stopped, "e2b": e2b, "lora": lora, "served": served, "hub": serveHub, "pullstopped": pullStopped, "parrot": parrotScript, "synth": synthScript},
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

// cutoff is a script's command: cutoff FILE BYTES OUT writes the beginning of a file.
func cutoff(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: cutoff FILE BYTES OUT")
	}
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), data[:n], 0o666))
}

// forget is a script's command: forget KEY FILE writes the demo without a key.
func forget(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: forget KEY FILE")
	}
	size := binary.LittleEndian.AppendUint64(nil, uint64(len(args[0])))
	key, other := append(slices.Clone(size), args[0]...), append(slices.Clone(size), strings.Repeat("x", len(args[0]))...) // of the same length: everything stays in its place
	if bytes.Count(demo, key) != 1 {
		ts.Fatalf("the demo has no key %s", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), bytes.Replace(demo, key, other, 1), 0o666))
}

// lora is a script's command: lora FOLDER VALUE makes an adapter for the demo, of numbers of that size.
func lora(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: lora FOLDER VALUE")
	}
	v, err := strconv.ParseFloat(args[1], 32)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("demo.gguf"), demo, 0o666))
	ts.Check(adaptertest.Write(context.Background(), ts.MkAbs(args[0]), ts.MkAbs("demo.gguf"), float32(v)))
}

// synthScript is a script's command: synth [--arch A] [--shape S] [--type T] -o FILE writes a model of random weights.
func synthScript(ts *testscript.TestScript, neg bool, args []string) {
	o := synth.Options{Arch: "llama", Shape: "1b", Type: "Q4_K_M"}
	out := ""
	to := map[string]*string{"--arch": &o.Arch, "--shape": &o.Shape, "--type": &o.Type, "-o": &out}
	for i := 0; i+1 < len(args); i += 2 {
		if to[args[i]] == nil {
			ts.Fatalf("usage: synth [--arch A] [--shape S] [--type T] -o FILE")
		}
		*to[args[i]] = args[i+1]
	}
	ts.Check(atomicfile.Write(ts.MkAbs(out), func(w io.Writer) error { return synth.Write(context.Background(), w, o) }))
}

// told is a script's command: told SIGNAL FILE ARGUMENTS... runs karat, which records
// long.json to FILE, and sends it a signal once it computes the long prompt. It is to
// end as interrupted and to leave nothing beside FILE.
func told(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": os.Interrupt}
	if len(hangup) > 0 {
		signals["HUP"] = hangup[0]
	}
	if neg || len(args) < 3 || signals[args[0]] == nil {
		ts.Fatalf("usage: told SIGNAL FILE ARGUMENTS...")
	}
	if signal.Ignored(signals[args[0]]) {
		return // by who runs the tests, and so by karat
	}
	long := `[{"ids": [2]}, {"ids": [2` + strings.Repeat(", 5", 5000) + `]}]`
	ts.Check(os.WriteFile(ts.MkAbs("long.json"), []byte(long), 0o666))
	text := interrupted(ts, signals[args[0]], "karat: prompt 0:", "karat: interrupted", args[2:])
	if note := "karat: note: prompt 1 has 5001 tokens, but the model was made for 4096"; !slices.Contains(text, note) {
		ts.Fatalf("no %q in:\n%s", note, strings.Join(text, "\n"))
	}
	left, err := os.ReadDir(filepath.Dir(ts.MkAbs(args[1])))
	ts.Check(err)
	if len(left) != 0 {
		ts.Fatalf("%v is left", left)
	}
}

// stopped is a script's command: stopped TEXT ARGUMENTS... runs karat with the demo, or a model
// of which it has something to note, and interrupts it before it has loaded that. It is to end
// as interrupted, and to say TEXT last.
func stopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: stopped TEXT ARGUMENTS...")
	}
	if signal.Ignored(os.Interrupt) {
		return
	}
	interrupted(ts, os.Interrupt, "karat: no", "karat: "+args[0], args[1:])
}

// interrupted runs karat and sends it a signal once a line begins with at. It is to end as
// interrupted, with last as its last line. It returns all lines.
func interrupted(ts *testscript.TestScript, s os.Signal, at, last string, args []string) (text []string) {
	program, err := exec.LookPath("karat")
	ts.Check(err)
	c := exec.Command(program, args...)
	c.Dir = ts.MkAbs(".")
	_, err = c.StdinPipe() // which stays open
	ts.Check(err)
	log, err := c.StderrPipe()
	ts.Check(err)
	ts.Check(c.Start())
	for lines := bufio.NewScanner(log); lines.Scan(); {
		text = append(text, lines.Text())
		if strings.HasPrefix(lines.Text(), at) {
			ts.Check(c.Process.Signal(s))
		}
	}
	err = c.Wait()
	if len(text) == 0 || c.ProcessState.ExitCode() != 128+int(s.(syscall.Signal)) || text[len(text)-1] != last {
		ts.Fatalf("%v, and it says:\n%s", err, strings.Join(text, "\n"))
	}
	return text
}

// TestInterruptedPrefill checks that Ctrl-C before the first token is told.
func TestInterruptedPrefill(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, log strings.Builder
	a := answer{output: output{out: &out, log: &log}}
	err := a.write(ctx, func(yield func(karat.Token, error) bool) { yield(karat.Token{}, ctx.Err()) })
	if want := (failure{status: statusInterrupted}); err != want || log.String() != "karat: interrupted\n" || out.Len() > 0 {
		t.Errorf("%v, log %q, output %q", err, log.String(), out.String())
	}
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
	vocabulary := header(0, 1)                                                                // with the architecture alone
	for _, s := range []string{"general.architecture", "llama"} {
		vocabulary = append(binary.LittleEndian.AppendUint64(vocabulary, uint64(len(s))), s...)
		if s != "llama" {
			vocabulary = binary.LittleEndian.AppendUint32(vocabulary, 8) // a string
		}
	}
	for name, data := range map[string][]byte{
		"vocabulary.gguf": vocabulary,
		"short.gguf":      header(0)[:10],
		"counts.gguf":     header(1<<60, 1<<60),
		"key.gguf":        key,
		"empty.gguf":      header(0, 0),
		"nothing.gguf":    {},
		"text.gguf":       []byte("once upon a time there was no model"),
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

// TestLayout: there are colors on terminals, unless NO_COLOR is set and not empty.
func TestLayout(t *testing.T) {
	for value, color := range map[string]bool{"": true, "1": false, "0": false} {
		t.Setenv("NO_COLOR", value)
		if on, off := layout(true), layout(false); on.Color != color || on.Width != 80 || off.Color || off.Width != 0 {
			t.Errorf("NO_COLOR=%q: %+v on a terminal, %+v else", value, on, off)
		}
	}
}

// TestBenchThreads: bench measures with as many threads as run has, and a GPU once.
func TestBenchThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(500))
	want := "[" + strconv.Itoa(sysinfo.Threads()) + "]"
	if got := newBenchCommand().Flags().Lookup("threads").DefValue; got != want {
		t.Errorf("-t is %s, want %s", got, want)
	}
	for backend, want := range map[string][]int{"cpu": {1, 2}, "webgpu:0": {1}} {
		f := benchFlags{prompt: benchPrompt{counts: []int{1}}, tokens: []int{1}, depths: []int{0}, parallel: []int{1}, arrive: []int{0}, repeat: 1, threads: []int{1, 2},
			engine: engineFlags{backend: backend, precision: choice{value: "f32"}, kv: choice{value: "f32"}}}
		if o, err := f.options(); err != nil || !slices.Equal(o.Threads, want) {
			t.Errorf("%s: threads %v, %v, want %v", backend, o.Threads, err, want)
		}
	}
}

// TestRestOfText: the text that comes beside an error is written, in JSON in the summary alone.
func TestRestOfText(t *testing.T) {
	tokens := func(yield func(karat.Token, error) bool) {
		if yield(karat.Token{ID: 1, Text: "a"}, nil) {
			yield(karat.Token{Text: "b"}, errors.New("it failed"))
		}
	}
	for _, json := range []bool{false, true} {
		m, err := karat.LoadSources(t.Context(), []karat.Source{{Name: demoName, Data: demo}}, karat.Options{Context: 16})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s := m.NewSession()
		defer s.Close()
		var out, log strings.Builder
		a := answer{output: output{out: &out, log: &log, json: json, session: s, screen: &plainScreen{w: &out}}}
		if json {
			a.screen = nil
		}
		err = a.write(t.Context(), tokens)
		if lines := strings.Split(out.String(), "\n"); err == nil || json != (len(lines) == 3) || !json && out.String() != "ab\n" || json && !strings.Contains(lines[1], `"text":"ab"`) {
			t.Errorf("json %v: %v, %q", json, err, out.String())
		}
	}
}

// TestReadInterrupted: waiting for a text ends with the context.
func TestReadInterrupted(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		w.Write([]byte("half a text")) // returns when it is read
		cancel()
	}()
	x := &call{ctx: ctx, in: r}
	if text, _, err := x.readInput(nil, "-"); !errors.Is(err, context.Canceled) || text != "" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTokenizeMemory: the command, standard input and output included, takes at most 20
// bytes of memory for each byte of a text of one letter.
func TestTokenizeMemory(t *testing.T) {
	tokenize := func(text string) (allocated int) {
		c := newRootCommand()
		c.SetArgs([]string{"tokenize", "--ids", "-m", golden.Model(t, "tiny-llama")})
		c.SetIn(strings.NewReader(text))
		c.SetOut(io.Discard)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	none, n := tokenize("a"), 1<<20
	if got := tokenize(strings.Repeat("a", n)) - none; got > 20*n {
		t.Errorf("%d bytes for %d", got, n)
	}
}
