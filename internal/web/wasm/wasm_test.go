//go:build !js

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/karat-run/karat/internal/dev/webbuild"
	"github.com/karat-run/karat/internal/lab"
	"github.com/karat-run/karat/js"
)

// problem is an error as a page has it.
type problem struct{ Message, Kind string }

func (p problem) want(t *testing.T, what, kind, message string) {
	t.Helper()
	if p.Kind != kind || !strings.Contains(p.Message, message) {
		t.Errorf("%s: %q (%s), want %q (%s)", what, p.Message, p.Kind, message, kind)
	}
}

// answer is what generate returns.
type answer struct {
	Text, Stop           string
	Prompt, Kept, Tokens int
}

// outcome is what scenario.cjs prints.
type outcome struct {
	LoadSeconds, FirstSeconds, Progress float64
	Largest                             int
	Info                                struct{ Name, Format, Architecture, Backend, Template string }
	Render                              struct {
		Text   string
		Tokens []struct{ ID int }
	}
	First, Chat, Formed, Aborted, AbortedPrompt, AfterLost answer
	Tokens                                                 []struct {
		Text    string
		Logprob float64
		Top     []struct{ Text string }
		Stop    string
	}
	Calls                                                               []struct{ ID, Name, Arguments string }
	Plain, Receipt                                                      int
	Bytes                                                               string
	Checked                                                             []*string
	Template, Strange                                                   problem
	Busy, Unknown, Closed, Garbage, Torn, BrokenShader, Lost, StillLost problem

	Nodes int
	Probe struct {
		DType string
		Shape []int
		All   struct {
			N             int
			Min, Max, RMS float64
		}
		Histogram struct{ Counts []int }
	}
	Proof struct {
		lab.Comparison
		Inside bool
		Taps   []lab.TapComparison
	}
	Seen, Judged      []string
	Other, Same       bool
	Verified, Altered struct {
		Verified bool
		Tokens   int
		Findings []struct{ Kind string }
	}
	NoReceipt problem
	SHA256    string
}

// built is the program, built of this source, and what Go's release runs it with.
func built(t *testing.T) (wasm, exec string) {
	t.Helper()
	module, script, err := build.Build(t.Context(), golden.Root(t))
	kernels, err2 := js.Joined("kernels.js", "simd.js")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	script = append(append(script, kernels...), "globalThis.giveKernels = giveKernels;\n"...)
	dir := t.TempDir()
	wasm, exec = filepath.Join(dir, "karat.wasm"), filepath.Join(dir, "wasm_exec.js")
	if err := errors.Join(os.WriteFile(wasm, module, 0o666), os.WriteFile(exec, script, 0o666)); err != nil {
		t.Fatal(err)
	}
	return wasm, exec
}

// run runs the scenario under Node, and skips the test where Node cannot.
func run(t *testing.T, program, script, backend string) (o outcome) {
	t.Helper()
	root := golden.Root(t)
	args := []string{"scenario.cjs", script, program,
		filepath.Join(root, "cmd", "karat", "demo.gguf"), filepath.Dir(golden.Record(t, "demo").Tensors(t)), backend}
	if backend == "webgpu" {
		dawn := filepath.Join(root, "internal", "backend", "webgpu", "gpu", "node.cjs")
		if err := exec.CommandContext(t.Context(), "node", "--require", dawn, "--eval", "process.exit(0)").Run(); err != nil {
			golden.Lacking(t, "node has no package webgpu (NODE_PATH): "+err.Error())
		}
		args = slices.Concat([]string{"--require", dawn}, args)
	}
	var failed bytes.Buffer
	c := exec.CommandContext(t.Context(), "node", args...)
	c.Stderr = &failed
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, failed.Bytes())
	}
	if err := json.Unmarshal(out, &o); err != nil {
		t.Fatal(err)
	}
	t.Logf("loaded in %.1f s, the first token after %.1f s", o.LoadSeconds, o.FirstSeconds)
	return o
}

// TestNode does under Node what a page does: with the CPU, and with a GPU where the npm
// package webgpu and a driver are.
func TestNode(t *testing.T) {
	golden.SkipFast(t, "this builds the program for js and runs it")
	if _, err := exec.LookPath("node"); err != nil {
		golden.Lacking(t, err)
	}
	program, script := built(t)
	t.Run("size", func(t *testing.T) { size(t, program) })
	for _, backend := range []string{"cpu", "webgpu"} {
		t.Run(backend, func(t *testing.T) {
			o := run(t, program, script, backend)
			o.text(t, backend)
			o.numbers(t)
			o.errors(t)
			if backend == "webgpu" {
				o.faults(t)
			} else if o.Other {
				t.Error("the record of other weights is found to be equal")
			}
		})
	}
}

// size wants the program to be small enough for a page.
func size(t *testing.T, program string) {
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes, %d with gzip", len(data), b.Len()); b.Len() > 6<<20 {
		t.Error("more than 6 MiB")
	}
}

// text checks a generated text.
func (o *outcome) text(t *testing.T, backend string) {
	if o.Info.Backend != backend || o.Info.Architecture != "gemma3" || o.Info.Format != "GGUF" || o.Info.Template == "" || o.Progress != 1 {
		t.Errorf("info %+v, progress %v", o.Info, o.Progress)
	}
	if o.Largest > 16<<20 {
		t.Errorf("%d bytes were read at once", o.Largest)
	}
	if !strings.HasSuffix(o.Render.Text, "model\n") || len(o.Render.Tokens) != o.Chat.Prompt {
		t.Errorf("rendered %q: %d tokens, the chat had %d", o.Render.Text, len(o.Render.Tokens), o.Chat.Prompt)
	}
	if got := strings.Join(strings.Fields(o.Formed.Text), ""); got != `{"color":"blue"}` || o.Formed.Stop != "end" {
		t.Errorf("by a schema: %+v", o.Formed)
	}
	if len(o.Calls) != 1 || o.Calls[0].Name != "paint" || o.Calls[0].ID == "" || strings.Join(strings.Fields(o.Calls[0].Arguments), "") != `{"color":"red"}` {
		t.Errorf("with a tool: %+v", o.Calls)
	}
	if o.Receipt != o.Chat.Tokens || !o.Same {
		t.Errorf("the receipt is of %d tokens, the answer has %d; it is the answer without a receipt: %v", o.Receipt, o.Chat.Tokens, o.Same)
	}
	if v := o.Verified; !v.Verified || len(v.Findings) > 0 || v.Tokens != o.Receipt || len(o.Judged) == 0 || !strings.HasSuffix(o.Judged[len(o.Judged)-1], "/"+strconv.Itoa(o.Receipt)) {
		t.Errorf("the receipt is verified so: %+v, in steps %q", v, o.Judged)
	}
	if v := o.Altered; v.Verified || len(v.Findings) != 1 || v.Findings[0].Kind != map[string]string{"cpu": "choice", "webgpu": "engine"}[backend] {
		t.Errorf("with another token the receipt is verified so: %+v", v)
	}
	o.NoReceipt.want(t, "half a receipt", "other", "no receipt: ")
	if o.First.Prompt != o.Plain {
		t.Errorf("a text of %d tokens is a prompt of %d", o.Plain, o.First.Prompt)
	}
	if o.First.Text != " blue. The opposite" || o.First.Stop != "length" || o.First.Tokens != 3 || !strings.HasPrefix(o.Chat.Text, "The color") {
		t.Errorf("generated %+v, and in a chat %+v", o.First, o.Chat)
	}
	var text string
	for _, x := range o.Tokens {
		if text += x.Text; x.Logprob >= 0 || len(x.Top) != 2 || x.Top[0].Text != x.Text {
			t.Errorf("token %+v", x)
		}
	}
	if text != o.First.Text || len(o.Tokens) != 3 || o.Tokens[2].Stop != "length" {
		t.Errorf("tokens %+v", o.Tokens)
	}
	if o.Aborted.Stop != "aborted" || o.Aborted.Tokens < 1 || o.Aborted.Tokens > 50 || o.AbortedPrompt.Stop != "aborted" {
		t.Errorf("aborted: %+v, in its prompt: %+v", o.Aborted, o.AbortedPrompt)
	}
}

// numbers checks measurements. The bounds of the proof are those of native GPUs.
func (o *outcome) numbers(t *testing.T) {
	p := &o.Proof
	if !p.Inside || len(p.Prompts) != 2 || !(p.All.MaxAbsDiff < 5e-5) || !(p.All.KLMean < 1e-10) || strings.Join(o.Seen, " ") != "1/5 2/5 3/5 4/5 5/5" {
		t.Errorf("proof: inside %v, %d prompts, %+v, progress %v", p.Inside, len(p.Prompts), p.All, o.Seen)
	}
	if len(p.Taps) < 50 || !(p.Taps[0].Worst < 3e-6) {
		t.Errorf("%d taps, the worst %+v", len(p.Taps), p.Taps[:min(1, len(p.Taps))])
	}
	t.Logf("proof: max |Δlogit| %.2g, KL %.2g, taps %.2g", float64(p.All.MaxAbsDiff), float64(p.All.KLMean), float64(p.Taps[0].Worst))
	b, counts := &o.Probe, 0
	for _, n := range b.Histogram.Counts {
		counts += n
	}
	if b.DType != "f32" || !slices.Equal(b.Shape, []int{7, 256}) || b.All.N != 7*256 || counts != 7*256 || !(b.All.Min < 0 && b.All.Max > 0 && b.All.RMS > 0) {
		t.Errorf("probe %+v", b)
	}
	if o.Nodes < 100 {
		t.Errorf("%d nodes", o.Nodes)
	}
	if o.SHA256 != "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" {
		t.Error("SHA-256 of abc:", o.SHA256)
	}
}

// errors are what a page may do wrong, and a file.
func (o *outcome) errors(t *testing.T) {
	o.Busy.want(t, "busy", "other", "the model is busy")
	o.Unknown.want(t, "unknown node", "other", `no node "blk.99"`)
	o.Template.want(t, "a template that refuses", "template", "alternate")
	o.Strange.want(t, "unknown architecture", "architecture", `"mambas" is not supported`)
	if len(o.Checked) != 3 || o.Checked[0] != nil || *o.Checked[1] != "architecture" || *o.Checked[2] != "file" {
		t.Errorf("checked: %v", o.Checked)
	}
	if strings.Contains(o.Bytes, "\ufffd") || !strings.Contains(o.Bytes, "<0x") {
		t.Errorf("byte tokens are %q", o.Bytes)
	}
	o.Closed.want(t, "closed", "other", "closed")
	o.Garbage.want(t, "garbage", "file", "garbage.gguf: not a GGUF file")
	o.Torn.want(t, "torn", "file", "the file is gone")
}

// faults are of shaders and devices.
func (o *outcome) faults(t *testing.T) {
	o.BrokenShader.want(t, "broken shader", "shader", "blk.0.attn_")
	o.BrokenShader.want(t, "broken shader", "shader", "shader ")
	o.Lost.want(t, "lost", "lost", "the GPU is lost")
	o.StillLost.want(t, "still lost", "lost", "the GPU is lost")
	if o.AfterLost.Text != o.First.Text {
		t.Errorf("after a lost device: %+v", o.AfterLost)
	}
}
