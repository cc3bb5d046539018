package chat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/karat-run/karat/jinja"
)

// turns are a long talk, which ends with a user's message.
func turns(n, size int) []*jinja.Dict {
	var all []*jinja.Dict
	for i := range n {
		all = append(all, Message([]string{"user", "assistant"}[i%2], fmt.Sprintf("%d ", i)+strings.Repeat("word ", size/5)))
	}
	return all
}

// agent is a long talk with tools, each of them called again and again.
func agent(n, tools int) Input {
	in := Input{Messages: []*jinja.Dict{Message("system", "Use the tools.")}, AddGenerationPrompt: true}
	for i := range tools {
		word := object("type", "string", "description", "the word to look up")
		in.Tools = append(in.Tools, object("type", "function", "function", object("name", fmt.Sprintf("tool_%d", i), "description", strings.Repeat("Looks up. ", 50),
			"parameters", object("type", "object", "properties", object("word", word), "required", jinja.List(jinja.String("word"))))))
	}
	for i := range n / 4 {
		name, id := fmt.Sprintf("tool_%d", i%tools), fmt.Sprintf("call%05d", i)
		call := object("id", id, "type", "function", "function", object("name", name, "arguments", object("word", strings.Repeat("pear ", 20))))
		in.Messages = append(in.Messages, Message("user", "Look it up."), object("role", "assistant", "content", "", "tool_calls", jinja.List(call)),
			object("role", "tool", "content", strings.Repeat("found ", 50), "name", name, "tool_call_id", id), Message("assistant", "There it is."))
	}
	in.Messages = append(in.Messages, Message("user", "Thanks."))
	return in
}

// TestLong: no published template reaches a limit with 4,000 turns or 2 MB, with
// or without tools. Each renders one of these at least, but for firefunction's,
// which raises an error without its own variables functions and datetime.
func TestLong(t *testing.T) {
	dir := "testdata/templates"
	if shared := sharedOrEmpty(t); shared != "" {
		dir = shared
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 14 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	if testing.Short() {
		files = files[:8]
	}
	inputs := map[string]Input{
		"4000 turns of 500 bytes": {Messages: turns(3999, 500), AddGenerationPrompt: true},
		"one of 2 MB":             {Messages: turns(1, 2<<20), AddGenerationPrompt: true},
		"100 turns, 50 tools":     agent(100, 50),
		"1000 turns, 8 tools":     agent(1000, 8),
	}
	for _, f := range files {
		tmpl, err := Parse(string(read(t, filepath.Join(dir, f.Name()))), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		rendered := 0
		for name, in := range inputs {
			in.BOSToken, in.EOSToken = "<s>", "</s>"
			segments, err := tmpl.Segments(context.Background(), in)
			var e *jinja.Error
			if errors.As(err, &e) && e.Kind == jinja.KindLimit {
				t.Errorf("%s: %s: %v", f.Name(), name, err)
			}
			if err == nil && len(segments) > 0 {
				rendered++
			}
		}
		if rendered == 0 && f.Name() != "fireworks-ai-llama-3-firefunction-v2.jinja" {
			t.Errorf("%s: no conversation is rendered", f.Name())
		}
	}
}
