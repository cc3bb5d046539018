// Package talker has models for the tests of programs that talk to one: the command's demo, and models that say a text.
package talker

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/dev/parrot"
)

// root returns the path of a file of the repository, for a program that runs within.
func root(path string) string {
	dir, _ := os.Getwd()
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, path)); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(dir, path)
}

// Demo is the path of the demo model.
func Demo() string { return root("cmd/karat/demo.gguf") }

// Parrot loads a model that says a text, behind a chat template that has tools and reasoning, and another
// text after a tool's result.
func Parrot(ctx context.Context, text string, after ...string) (*karat.Model, error) {
	template, err := os.ReadFile(root("internal/chat/testdata/templates/Qwen-Qwen3-0.6B.jinja"))
	if err != nil {
		return nil, err
	}
	then := strings.Join(after, "")
	var file bytes.Buffer
	if err := parrot.Write(&file, string(template), text, parrot.Options{Loop: text == Endless, Context: 32768,
		Control: []string{"<tool_response>"}, After: "<tool_response>", Then: then}); err != nil {
		return nil, err
	}
	return karat.LoadSources(ctx, []karat.Source{{Name: "parrot", Data: file.Bytes()}}, karat.Options{Threads: 1})
}

// Texts of parrots: a call, an answer after it, JSON, and a text without end.
const (
	Call = "<think>\nI look.\n</think>\n\nLet me see.\n<tool_call>\n" +
		`{"name": "weather", "arguments": {"city": "Oslo"}}` + "\n</tool_call>"
	Told    = "<think>\nSo it is.\n</think>\n\nIt rains in Oslo."
	Endless = "again and again. "
)

// Schema is the schema of the arguments of Call.
const Schema = `{"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"],
	"additionalProperties": false}`
