package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/dev/golden"
)

// TestMain makes the test binary a peer where FAKE says how it behaves.
func TestMain(m *testing.M) {
	if how := os.Getenv("FAKE"); how != "" {
		os.Exit(fake(how, os.Args))
	}
	os.Exit(m.Run())
}

// fake is llama-bench, llama-batched-bench and karat in one.
func fake(how string, args []string) (status int) {
	after := func(flag string) int {
		n, _ := strconv.Atoi(args[slices.Index(args, flag)+1])
		return n
	}
	switch how {
	case "fails":
		fmt.Fprint(os.Stderr, "loading\nno such architecture\n\n")
		return 3
	case "aborts":
		fmt.Fprint(os.Stderr, "loading\nggml-backend.cpp:930: a tensor in a buffer\nllama-bench(+0xce525)[0x5616963db525]\nlibc.so.6(abort+0xd3)[0x7f12]\n")
		return 3
	case "rubbish":
		fmt.Println("| model | t/s |")
	case "empty":
		fmt.Println("[]")
	case "endless":
		for range 1 << 12 {
			fmt.Println(strings.Repeat("x", 1<<10))
		}
	case "hangs":
		if to := os.Getenv("DIAL"); to != "" {
			if _, err := net.Dial("tcp", to); err != nil {
				return 4
			}
		}
		time.Sleep(time.Hour) // longer than a test may take
	case "wraps", "leaves":
		c := exec.Command(args[0])
		c.Env, c.Stdout = append(os.Environ(), "FAKE=hangs"), os.Stdout
		if err := c.Start(); err != nil {
			return 4
		}
		if how == "wraps" {
			_ = c.Wait()
		}
	case "other":
		fmt.Printf(`[{"n_threads": %d, "n_prompt": 7, "samples_ts": [1]}]`, after("-t"))
	case "zero":
		fmt.Printf(`[{"n_threads": %d, "n_prompt": %d, "n_gen": %d, "samples_ts": [0]}]`, after("-t"), after("-p"), after("-n"))
	case "quantizes", "quantizes worse":
		i := slices.Index(args, "in.gguf")
		text := "blocks"
		if i == 1 && how == "quantizes worse" { // the peer's, which has no command before the files
			text = "others"
		}
		if err := os.WriteFile(args[i+1], []byte(text), 0o666); err != nil {
			return 4
		}
	case "works":
		if slices.Contains(args, "-npl") {
			fmt.Printf("llama_log: n_ctx = %d\n{\"pp\": %d, \"tg\": %d, \"pl\": %d, \"speed_pp\": %g, \"speed_tg\": 1000}\n", after("-c"), after("-npp"), after("-ntg"), after("-npl"), 5e4)
			return 0
		}
		depth := 0
		if slices.Contains(args, "-d") {
			depth = after("-d")
		}
		if flash := slices.Contains(args, "-fa"); flash != (depth > 0) {
			return 4
		}
		fmt.Printf(`[{"build_commit": "abc", "build_number": 7, "n_threads": %d, "n_prompt": %d, "n_gen": %d, "n_depth": %d, "samples_ts": [%d]}]`,
			after("-t"), after("-p"), after("-n"), depth, 100+depth)
	}
	return 0
}

// peer is the fake one, by both its names.
func peer(t *testing.T, how string) *Peer {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{Bench: filepath.Join(t.TempDir(), "llama-bench"+filepath.Ext(self)), Self: []string{self, "bench"}, KV: "f16"}
	for _, name := range []string{p.Bench, p.batched()} {
		if err := os.Symlink(self, name); err != nil {
			golden.Lacking(t, err)
		}
	}
	t.Setenv("FAKE", how)
	return p
}

func TestPeer(t *testing.T) {
	p := peer(t, "works")
	if err := p.Check([]int{1, 8}); err != nil {
		t.Fatal(err)
	}
	o := Options{Prompts: []int{8}, Tokens: []int{4}, Depths: []int{0, 5}, Threads: []int{1}, Parallel: []int{1, 2}, Repeat: 3, Peer: p, Limits: true, Free: 64 << 20,
		Numerics: numerics.Numerics{Precision: "fast", KV: "f16"}}
	r, err := Run(t.Context(), open(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{100, 100, 5e4, 1000, 105, 105, 0, 1000} // by depth, parallel, and the test
	for i, x := range r.Results {
		if x.PeerRate != want[i] || (x.Ratio != nil) != (want[i] > 0) || (x.PeerShare > 0) != (want[i] > 0) || want[i] > 0 && len(x.Peer) != 3 {
			t.Errorf("%+v, want %g", x, want[i])
		}
		if x.Ratio != nil && math.Abs(x.Ratio.Median-x.Median/want[i]) > 1e-9*x.Ratio.Median {
			t.Errorf("ratio %v of %g to %g", x.Ratio, x.Median, want[i])
		}
	}
	l := r.Loads[0]
	if len(l.Process) != 3 || len(l.Peer) != 3 || l.Ratio == nil || r.PeerName != "llama.cpp b7 (abc)" {
		t.Errorf("%+v, peer %q", l, r.PeerName)
	}
	var b strings.Builder
	if err := r.WriteMarkdown(&b); err != nil || !strings.Contains(b.String(), "ratio (min..max)") || !strings.Contains(b.String(), "process until first token") {
		t.Errorf("Markdown %s, %v", b.String(), err)
	}
	formats(t, r)
}

func TestRatio(t *testing.T) {
	r := ratio([]float64{2, 6, 3}, []float64{2, 3, 6})
	if r.Median != 1 || r.Min != 0.5 || r.Max != 2 || r.String() != "1.00 (0.50..2.00)" {
		t.Errorf("%v", r)
	}
	if s := ratio([]float64{1}, []float64{2}).String(); s != "0.50 (0.50..0.50) slower" {
		t.Errorf("%s", s)
	}
	if r := ratio([]float64{1}, nil); r != nil || r.String() != "" {
		t.Errorf("%v of nothing", r)
	}
}

func TestPeerErrors(t *testing.T) {
	one, eight := &Result{Threads: 1, Tokens: 4, Parallel: 1}, &Result{Threads: 1, Tokens: 4, Parallel: 8}
	for _, c := range []struct {
		how  string
		test *Result
		want string
	}{
		{"fails", one, "exit status 3: no such architecture"},
		{"fails", eight, "llama-batched-bench"},
		{"aborts", one, "exit status 3: ggml-backend.cpp:930: a tensor in a buffer"},
		{"rubbish", one, "no JSON"},
		{"rubbish", eight, "does not have the test -npp 1 -ntg 4 -npl 8"},
		{"empty", one, "not one run"},
		{"zero", one, "not one run"},
		{"endless", one, "too much"},
		{"other", one, "it measured -p 7 -n 0 -t 1, not -p 0 -n 4 -t 1"},
	} {
		t.Run(c.how, func(t *testing.T) {
			_, err := peer(t, c.how).sample(t.Context(), "model.gguf", c.test)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestPeerMissing(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "llama-bench")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir, text} {
		if err := (&Peer{Bench: path}).Check([]int{1}); err == nil || !strings.HasPrefix(err.Error(), "peer: ") {
			t.Errorf("%s: error %v", path, err)
		}
	}
	p := peer(t, "works")
	if err := os.Remove(p.batched()); err != nil {
		t.Fatal(err)
	}
	if p.Check([]int{1}) != nil || p.Check([]int{8}) == nil {
		t.Error("llama-batched-bench is not looked for where it is needed")
	}
}

// TestPeerCanceled ends a program that would take an hour, when it runs.
func TestPeerCanceled(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("DIAL", l.Addr().String())
	p := peer(t, "hangs")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := l.Accept(); err == nil {
			defer conn.Close()
		}
		cancel()
	}()
	if _, _, err := p.load(ctx, "model.gguf", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// TestPeerHangs ends a program that takes too long, and says so.
func TestPeerHangs(t *testing.T) {
	p := peer(t, "hangs")
	p.limit = 1 // of an hour
	if _, _, err := p.load(t.Context(), "model.gguf", 1); err == nil || !strings.Contains(err.Error(), "it has not ended after") {
		t.Errorf("error %v", err)
	}
}

// TestPeerScript ends a program that another one has started, too, whether that one
// waits for it or is gone.
func TestPeerScript(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("what a program has started is its own there")
	}
	for how, want := range map[string]string{"wraps": "it has not ended after", "leaves": "it has ended, but not what it started"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		t.Setenv("DIAL", l.Addr().String())
		p := peer(t, how)
		done := make(chan error, 1)
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			_, _, err := p.load(ctx, "model.gguf", 1)
			done <- err
		}()
		conn, err := l.Accept() // it is there
		if err != nil {
			t.Fatal(err)
		}
		if how == "wraps" {
			stop(errors.New("it has not ended after all"))
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", how, err, want)
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil { // it ends when the program does
			t.Errorf("%s: the program that it started goes on: %v", how, err)
		}
		stop(nil)
	}
}

// FuzzPeer reads what a peer may print.
func FuzzPeer(f *testing.F) {
	f.Add([]byte(`[{"samples_ts": [1], "n_gen": 4, "n_threads": 1}]`))
	f.Add([]byte(`[{"samples_ts": [-1]}]`))
	f.Add([]byte(`[null]`))
	f.Fuzz(func(t *testing.T, out []byte) {
		x, err := parseBench(out)
		if (err == nil) != (x != nil && len(x.Samples) == 1 && x.Samples[0] > 0) || err == nil && !json.Valid(out) {
			t.Errorf("%q: %+v, %v", out, x, err)
		}
	})
}

// FuzzBatched reads what a peer may print of sequences in parallel.
func FuzzBatched(f *testing.F) {
	f.Add([]byte("llama_log: n_ctx = 512\n{\"pp\": 8, \"tg\": 4, \"pl\": 2, \"speed_pp\": 1e3, \"speed_tg\": 12.5}\n"), 8, 4, 2)
	f.Add([]byte(`{"pp": 8, "speed_tg": -1}`), 8, 0, 0)
	f.Add([]byte("null\n[{}]\n{\"pl\": 1e99}"), 0, 0, 0)
	f.Fuzz(func(t *testing.T, out []byte, prompt, tokens, parallel int) {
		x := parseBatched(out, prompt, tokens, parallel)
		if x != (batch{}) && (x.Prompt != prompt || x.Tokens != tokens || x.Parallel != parallel) {
			t.Errorf("%q: %+v, not of %d, %d, %d", out, x, prompt, tokens, parallel)
		}
		for _, rate := range []float64{x.Prompts, x.Decoded} {
			if math.IsNaN(rate) || math.IsInf(rate, 0) || rate != 0 && !bytes.Contains(out, []byte("{")) {
				t.Errorf("%q: %v tokens a second", out, rate)
			}
		}
	})
}

// TestParseBench: what a peer says is printed, so it must be plain and finite.
func TestParseBench(t *testing.T) {
	for _, c := range []struct{ out, err string }{
		{`[{"build_commit": "d32676d77", "samples_ts": [12.5]}]`, ""},
		{`[{"samples_ts": [1e-320]}]`, "not one run"},
		{`[{"samples_ts": [1e308]}]`, "not one run"},
		{`[{"build_commit": "a\u001b[31m\n", "samples_ts": [12.5]}]`, `build_commit is "a\x1b[31m\n"`},
	} {
		if _, err := parseBench([]byte(c.out)); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %q", c.out, err, c.err)
		}
	}
}
