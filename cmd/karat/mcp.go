package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/karat-run/karat"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

// skill is the page for agents, from nothing to a verdict.
//
//go:embed SKILL.md
var skill string

func newSkillCommand() *cobra.Command {
	return define("lab skill", func(x *call) error { return x.printf("%s", skill) }).Command
}

// newMCPCommand returns the command serving the lab to agents by MCP, over standard input and output.
func newMCPCommand() *cobra.Command {
	return define("lab mcp", func(x *call) error { return newLabServer().Run(x.ctx, &mcp.StdioTransport{}) }).Command
}

func newLabServer() *mcp.Server {
	_, text, _ := strings.Cut(strings.TrimPrefix(skill, "---\n"), "---\n")
	s := mcp.NewServer(&mcp.Implementation{Name: "karat-lab", Version: karat.Version()},
		&mcp.ServerOptions{Instructions: strings.TrimSpace(text)})
	for i := range labTools {
		t := &labTools[i]
		mcp.AddTool(s, &mcp.Tool{Name: t.name, Description: t.about, InputSchema: t.schema()}, t.serve)
	}
	return s
}

// labTool is a tool of MCP: a command of the lab with its arguments as JSON.
type labTool struct {
	name, about string
	command     []string // with the flags that are always given
	params      []labParam
	part        string // the part of the command's JSON that is the answer; "" is all
}

// labParam is an argument of a tool. Without a flag it is one of the command's arguments, in this order.
type labParam struct {
	name, kind, flag string
	needed           bool
	about            string
}

// What several tools ask for.
var (
	modelParam = labParam{"model", "string", "", true,
		"path of the model that the engine ran: a GGUF file or a folder"}
	dumpParam = labParam{"dump", "string", "", true,
		"path of the engine's values: .safetensors, .npz or a folder of .npy"}
	headParam = labParam{"draft_head", "boolean", "draft-head", false,
		"the model's head for drafts (multi-token prediction), in place of the model"}
)

// labTools are the tools in the order of their use.
var labTools = []labTool{
	{"record", "Write what Karat computes for prompts, as a dump: a right engine's, or a golden record.",
		[]string{"record", "--json"}, []labParam{modelParam,
			{"prompts", "array", "prompts", true, `a list of {"text": ...} or {"ids": [...]}`},
			{"out", "string", "output", true, "path of the record to write, .safetensors"},
			{"precision", "string", "precision", false, "f64, f32 or fast"},
			{"taps", "string", "taps", false, "all, or indices of prompts whose values of all modules are written"},
			{"inject", "string", "inject", false, "faults to build in, to try a diagnosis on"}, headParam}, ""},
	{"diagnose", "Find the operation of an engine that is wrong, the layers and the cause. next says what to do.",
		[]string{"diagnose", "--brief"}, []labParam{modelParam, dumpParam,
			{"golden", "string", "golden", false, "path of a golden record of the same prompts"}, headParam}, ""},
	{"next_probe", "List what to do next about a dump: taps to add, causes to mend, prompts to add.",
		[]string{"diagnose", "--brief"}, []labParam{modelParam, dumpParam, headParam}, "next"},
	{"expect", "Show the values that a tap should have from the engine's own values before it, beside the tap's.",
		[]string{"expect", "--json"}, []labParam{modelParam, dumpParam,
			{"tap", "string", "tap", true, "name of the value: PyTorch's, llama.cpp's or the graph's"},
			{"prompt", "integer", "prompt-index", false, "index of the prompt"},
			{"position", "integer", "position", false, "position; without it the worst of each prompt"},
			headParam}, ""},
	{"compare", "Measure how far a record is from a golden one.",
		[]string{"compare", "--json"}, []labParam{
			{"golden", "string", "", true, "path of the golden record"},
			{"record", "string", "", true, "path of the other record"},
			{"max_kl", "number", "max-kl", false, "largest KL divergence of a prompt, in nats"},
			{"max_diff", "number", "max-diff", false, "largest difference of a logit"},
			{"partial", "boolean", "partial", false, "the record may lack prompts of the golden one"}}, ""},
	{"causes", "List the causes that a diagnosis can name, with stable IDs, stories and fixes.",
		[]string{"causes", "--json"}, nil, ""},
}

// schema returns the JSON schema of the arguments.
func (t *labTool) schema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, p := range t.params {
		s := map[string]any{"type": p.kind, "description": p.about}
		if p.kind == "array" {
			s["items"] = map[string]any{"type": "object"}
		}
		properties[p.name] = s
		if p.needed {
			required = append(required, p.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required,
		"additionalProperties": false}
}

// serve runs the tool's command in a process of its own. A verdict against the engine is an answer; only what could not
// be judged is an error.
func (t *labTool) serve(ctx context.Context, _ *mcp.CallToolRequest, given map[string]any) (
	result *mcp.CallToolResult, object any, err error) {
	args, prompts, err := t.arguments(given)
	if prompts != "" {
		defer os.Remove(prompts)
	}
	if err != nil {
		return nil, nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	var out, log bytes.Buffer
	c := exec.CommandContext(ctx, self, args...)
	c.Args[0], c.Stdout, c.Stderr = os.Args[0], &out, &log
	var exit *exec.ExitError
	switch err := c.Run(); {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case errors.As(err, &exit) && exit.ExitCode() == statusOutside && json.Valid(out.Bytes()):
	case err != nil:
		return nil, nil, errors.New(strings.TrimSpace(log.String()))
	}
	answer := json.RawMessage(out.Bytes())
	if t.part != "" {
		var all map[string]json.RawMessage
		if err := json.Unmarshal(answer, &all); err != nil {
			return nil, nil, err
		}
		answer = all[t.part]
	}
	if strings.HasPrefix(string(answer), "{") {
		object = answer
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(answer)}}}, object, nil
}

// arguments returns the command line. Prompts are in a file to remove.
func (t *labTool) arguments(given map[string]any) (args []string, prompts string, err error) {
	args = append([]string{"lab"}, t.command...)
	rest := []string{"--"} // an argument that looks like a flag is none
	for _, p := range t.params {
		v, ok := given[p.name]
		switch {
		case !ok:
		case p.kind == "array":
			if prompts, err = writeTemporary(v); err != nil {
				return nil, prompts, err
			}
			args = append(args, "--"+p.flag+"="+prompts)
		case p.flag != "":
			args = append(args, fmt.Sprintf("--%s=%v", p.flag, v))
		default:
			rest = append(rest, v.(string))
		}
	}
	return append(args, rest...), prompts, nil
}

// writeTemporary writes a value as JSON to a new file.
func writeTemporary(v any) (path string, err error) {
	f, err := os.CreateTemp("", "karat-*.json")
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(json.NewEncoder(f).Encode(v), f.Close())
}
