package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/karat-run/karat/internal/patherr"
)

// Peer is llama.cpp, for comparison.
type Peer struct {
	Bench string   // absolute path of llama-bench
	Self  []string // command to load the model and compute a token, before -t N
	KV    string   // type of its keys and values

	limit time.Duration // of a process, taken for hanging afterwards; 0 is none
}

// expect sets p's limit from Karat's time for the same work.
func (p *Peer) expect(took time.Duration) { p.limit = 2*time.Minute + 50*took }

// batched returns the path of the program for several sequences, beside llama-bench.
func (p *Peer) batched() string {
	dir, name := filepath.Split(p.Bench)
	return dir + "llama-batched-bench" + filepath.Ext(name)
}

// Check reports a missing program, or a program unable to run.
func (p *Peer) Check(parallel []int) error {
	programs := []string{p.Bench}
	if maximum(parallel) > 1 {
		programs = append(programs, p.batched())
	}
	for _, path := range programs {
		if _, err := exec.LookPath(path); err != nil {
			if e := (*exec.Error)(nil); errors.As(err, &e) {
				if err = patherr.Plain(e.Err); err == e.Err { // the path otherwise
					err = fmt.Errorf("%s: %w", e.Name, e.Err)
				}
			}
			return fmt.Errorf("peer: %w", err)
		}
	}
	return nil
}

// can reports whether the peer has t: llama-batched-bench has no prompt behind a depth.
func (p *Peer) can(t *Result) bool { return t.Parallel == 1 || t.Prompt == 0 || t.Depth == 0 }

// sample returns the tokens a second of a run of t in a new process.
func (p *Peer) sample(ctx context.Context, file string, t *Result) (float64, error) {
	if t.Parallel > 1 {
		return p.sampleBatched(ctx, file, t)
	}
	x, err := p.bench(ctx, file, t.Prompt, t.Tokens, t.Threads, append(p.flash(t), "-d", strconv.Itoa(t.Depth))...)
	if err != nil {
		return 0, err
	}
	if x.Depth != t.Depth {
		return 0, fmt.Errorf("%s: it measured at depth %d, not %d", p.Bench, x.Depth, t.Depth)
	}
	return x.Samples[0], nil
}

// flash holds the arguments for flash attention.
func (p *Peer) flash(t *Result) []string {
	if t.Depth > 0 {
		return []string{"-fa", "on"}
	}
	return nil
}

// benched is a test of llama-bench's JSON.
type benched struct {
	Commit  string    `json:"build_commit"`
	Build   int       `json:"build_number"`
	Threads int       `json:"n_threads"`
	Prompt  int       `json:"n_prompt"`
	Tokens  int       `json:"n_gen"`
	Depth   int       `json:"n_depth"`
	Samples []float64 `json:"samples_ts"`
}

// bench runs a test once.
func (p *Peer) bench(ctx context.Context, file string, prompt, tokens, threads int, more ...string) (*benched, error) {
	args := []string{"-m", file, "-p", strconv.Itoa(prompt), "-n", strconv.Itoa(tokens), "-t", strconv.Itoa(threads),
		"-r", "1", "-o", "json", "-ctk", p.KV, "-ctv", p.KV}
	out, err := p.output(ctx, p.Bench, append(args, more...)...)
	if err != nil {
		return nil, err
	}
	x, err := parseBench(out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Bench, err)
	}
	if x.Prompt != prompt || x.Tokens != tokens || x.Threads != threads {
		return nil, fmt.Errorf("%s: it measured -p %d -n %d -t %d, not -p %d -n %d -t %d", p.Bench, x.Prompt, x.Tokens,
			x.Threads, prompt, tokens, threads)
	}
	return x, nil
}

func parseBench(out []byte) (*benched, error) {
	var all []benched
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("its output is no JSON of llama-bench: %w", err)
	}
	if len(all) != 1 || len(all[0].Samples) != 1 || !plausible(all[0].Samples[0]) {
		return nil, errors.New("its output is not one run of one test")
	}
	if strings.ContainsFunc(all[0].Commit, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return nil, fmt.Errorf("its build_commit is %q", all[0].Commit)
	}
	return &all[0], nil
}

// plausible reports whether a program may compute so many tokens a second.
func plausible(rate float64) bool { return rate > 1e-6 && rate < 1e9 }

// sampleBatched makes a depth of prompts of at least a token: without any the rate would be 0/0, invalid in JSON.
func (p *Peer) sampleBatched(ctx context.Context, file string, t *Result) (float64, error) {
	prompt, tokens := t.Prompt, 1
	if t.Tokens > 0 {
		prompt, tokens = max(t.Depth, 1), t.Tokens
	}
	room := (prompt + tokens + 255) &^ 255 * t.Parallel // sequences get equal shares, multiples of 256
	args := []string{"-m", file, "-npp", strconv.Itoa(prompt), "-ntg", strconv.Itoa(tokens), "-npl",
		strconv.Itoa(t.Parallel), "-c", strconv.Itoa(room), "-t", strconv.Itoa(t.Threads), "-ctk", p.KV, "-ctv", p.KV,
		"--output-format", "jsonl"}
	out, err := p.output(ctx, p.batched(), append(args, p.flash(t)...)...)
	if err != nil {
		return 0, err
	}
	x := parseBatched(out, prompt, tokens, t.Parallel)
	rate := x.Prompts
	if t.Tokens > 0 {
		rate = x.Decoded
	}
	if !plausible(rate) {
		return 0, fmt.Errorf("%s: its output does not have the test -npp %d -ntg %d -npl %d", p.batched(), prompt,
			tokens, t.Parallel)
	}
	return rate, nil
}

// batch is a test of llama-batched-bench's JSON, with tokens a second.
type batch struct {
	Prompt   int     `json:"pp"`
	Tokens   int     `json:"tg"`
	Parallel int     `json:"pl"`
	Prompts  float64 `json:"speed_pp"`
	Decoded  float64 `json:"speed_tg"`
}

// parseBatched finds a test among the lines of a log, all 0 if missing.
func parseBatched(out []byte, prompt, tokens, parallel int) batch {
	for line := range bytes.Lines(out) {
		var x batch
		if json.Unmarshal(line, &x) == nil && x.Prompt == prompt && x.Tokens == tokens && x.Parallel == parallel {
			return x
		}
	}
	return batch{}
}

// load returns the seconds of a process loading the model and computing a token, and the program's version.
func (p *Peer) load(ctx context.Context, file string, threads int) (seconds float64, version string, err error) {
	start := time.Now()
	x, err := p.bench(ctx, file, 1, 0, threads, "--no-warmup")
	if err != nil {
		return 0, "", err
	}
	return time.Since(start).Seconds(), fmt.Sprintf("llama.cpp b%d (%s)", x.Build, x.Commit), nil
}

// loadSelf returns the seconds of load for this program.
func (p *Peer) loadSelf(ctx context.Context, threads int) (seconds float64, err error) {
	start := time.Now()
	args := append(p.Self[1:len(p.Self):len(p.Self)], "-t", strconv.Itoa(threads))
	_, err = p.output(ctx, p.Self[0], args...)
	return time.Since(start).Seconds(), err
}

// output runs a program and returns the text printed. ctx, and p's limit, end the program as Ctrl-C does, and
// then kill the program with all descendants.
func (p *Peer) output(ctx context.Context, program string, args ...string) ([]byte, error) {
	if p.limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, p.limit,
			fmt.Errorf("%s: it has not ended after %v", program, p.limit.Round(time.Second)))
		defer stop()
	}
	c := exec.CommandContext(ctx, program, args...)
	group(c)
	c.Cancel = func() error { return interrupt(c.Process) }
	c.WaitDelay = 3 * time.Second
	out, log := head{most: 1 << 20}, tail{most: 4 << 10}
	c.Stdout, c.Stderr = &out, &log
	err := c.Run()
	if err != nil {
		if c.Process != nil {
			kill(c.Process)
		}
		select { // Ctrl-C may reach the program before us
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		if line := log.line(); out.full {
			err = errors.New("it prints too much")
		} else if errors.Is(err, exec.ErrWaitDelay) {
			err = errors.New("it has ended, but not what it started")
		} else if line != "" {
			err = fmt.Errorf("%w: %s", err, line)
		}
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return out.text, nil
}

// head keeps the written bytes, and refuses more than most.
type head struct {
	text []byte
	most int
	full bool
}

func (h *head) Write(p []byte) (int, error) {
	if h.full = len(h.text)+len(p) > h.most; h.full {
		return 0, io.ErrShortWrite
	}
	h.text = append(h.text, p...)
	return len(p), nil
}

// tail keeps the last bytes written.
type tail struct {
	text []byte
	most int
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-t.most):]
	return len(p), nil
}

// line returns the last informative line: neither empty nor a pointer to help nor a part of a backtrace.
func (t *tail) line() string {
	lines := strings.Split(strings.TrimSpace(string(t.text)), "\n")
	last := len(lines) - 1
	for last > 0 && (strings.HasPrefix(lines[last], "Run \"") || strings.Contains(lines[last], ")[0x")) {
		last--
	}
	return strings.TrimSpace(lines[last])
}
