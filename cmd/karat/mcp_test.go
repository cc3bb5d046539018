package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/internal/dev/golden"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMCPFlags: each tool's command has the flags that the tool gives.
func TestMCPFlags(t *testing.T) {
	for _, tool := range labTools {
		c, _, err := newRootCommand().Find([]string{"lab", tool.command[0]})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tool.params {
			if p.flag != "" && c.Flags().Lookup(p.flag) == nil {
				t.Errorf("%s: %s has no flag --%s", tool.name, c.CommandPath(), p.flag)
			}
		}
	}
}

// TestMCP: an agent records an engine with a fault, asks what is wrong and what to do, and reads why it cannot be told.
func TestMCP(t *testing.T) {
	was := os.Args[0]
	os.Args[0] = "karat" // by which this test's binary runs the command
	defer func() { os.Args[0] = was }()
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := newLabServer().Connect(t.Context(), ours, nil); err != nil {
		t.Fatal(err)
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if text := s.InitializeResult().Instructions; !strings.HasPrefix(text, "# Mend a port") {
		t.Errorf("instructions %.40q", text)
	}
	model, dump := golden.Model(t, "tiny-qwen2"), filepath.Join(t.TempDir(), "wrong.safetensors")
	headed, drafts := golden.WithHead(t, "qwen35"), filepath.Join(t.TempDir(), "drafts.safetensors")
	for _, c := range []struct {
		tool  string
		args  map[string]any
		want  string
		error bool
	}{
		{"record", map[string]any{"model": model, "prompts": []any{map[string]any{"text": "The sky is blue"}}, "out": dump, "taps": "all", "precision": "f64",
			"inject": "attention_scale=0.5@1"}, `"prompts": 1`, false},
		{"diagnose", map[string]any{"model": model, "dump": dump}, `"cause": "attention_scale"`, false},
		{"next_probe", map[string]any{"model": model, "dump": dump}, `"do": "mend"`, false},
		{"expect", map[string]any{"model": model, "dump": dump, "tap": "blk.1.attention", "prompt": 0, "position": 2}, `"position": 2`, false},
		{"expect", map[string]any{"model": model, "dump": dump, "tap": "blk.1.attentoin"}, "did you mean blk.1.attention?", true},
		{"compare", map[string]any{"golden": dump, "record": dump, "max_kl": 0.1}, `"inside": true`, false},
		{"record", map[string]any{"model": headed, "prompts": []any{map[string]any{"text": "The sky is"}}, "out": drafts,
			"taps": "all", "precision": "f64", "inject": "draft_state", "draft_head": true}, `"prompts": 1`, false},
		{"diagnose", map[string]any{"model": headed, "dump": drafts, "draft_head": true}, `"draft_state"`, false},
		{"diagnose", map[string]any{"model": model, "dump": dump, "draft_head": true}, "no head for drafts", true},
		{"causes", nil, `"id": "attention_scale"`, false},
		{"diagnose", map[string]any{"model": model}, `missing properties: ["dump"]`, true},
		{"diagnose", map[string]any{"model": model, "dump": "--help"}, "--help", true},
		{"expect", map[string]any{"model": model, "dump": dump, "tap": 3}, `/properties/tap: type: 3 has type "integer", want "string"`, true},
		{"diagnose", map[string]any{"model": model, "dump": dump, "verbose": true}, `unexpected additional properties ["verbose"]`, true},
	} {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			t.Fatal(err)
		}
		text := r.Content[0].(*mcp.TextContent).Text
		if r.IsError != c.error || !strings.Contains(text, c.want) || !c.error && !json.Valid([]byte(text)) {
			t.Errorf("%s %v: %v, %.300s", c.tool, c.args, r.IsError, text)
		}
	}
}
